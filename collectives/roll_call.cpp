#include "collectives/roll_call.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/timers.hpp"

namespace copper {
namespace {

// A node gives the nodes below a part of its own time, so that their answers arrive before its time is over.
// At least one millisecond: none means that the addressee must not pass the call on.
std::chrono::milliseconds share_for_below(std::chrono::milliseconds patience) {
    return std::max(patience * 4 / 5, std::chrono::milliseconds(1));
}

// The same call, for one node, which must not pass it on.
Call direct(Call call) {
    call.patience = std::chrono::milliseconds(0);
    return call;
}

// As many answers as needed, since a message has a maximum size.
std::vector<Answer> as_answers(const Call& call, std::vector<Answer::Part> parts) {
    constexpr std::size_t part_overhead_bytes = 64;
    std::vector<Answer> answers;
    std::size_t bytes = 0;
    for (Answer::Part& part : parts) {
        const std::size_t part_bytes =
            part.text.size() + part.with.size() * sizeof(Rank) + part_overhead_bytes;
        if (answers.empty() || bytes + part_bytes > answer_text_bytes_max) {
            answers.push_back({.id = call.id, .origin = call.origin, .parts = {}});
            bytes = 0;
        }
        answers.back().parts.push_back(std::move(part));
        bytes += part_bytes;
    }
    return answers;
}

}  // namespace

RollCall::Pending& RollCall::begin(std::string verb, std::string argument, std::chrono::milliseconds patience,
                                   TimePoint now) {
    const std::uint64_t id = next_id_++;
    Pending& pending = pending_[{membership_.self(), id}];
    pending.call = {
        .id = id, .origin = membership_.self(), .verb = std::move(verb), .argument = std::move(argument)};
    pending.deadline = now + patience;
    pending.answer_to.emplace<Own>();
    return pending;
}

std::uint64_t RollCall::call(std::string verb, std::string argument, std::chrono::milliseconds patience,
                             Call::Silence silence, TimePoint now) {
    Pending& pending = begin(std::move(verb), std::move(argument), patience, now);
    pending.call.patience = share_for_below(patience / 2);
    pending.call.silence = silence;
    Own& own = *pending.own();
    own.next_round = now + patience / 2;
    own.between_rounds = std::max(patience / 8, std::chrono::milliseconds(1));
    own.missing.insert(membership_.alive().begin(), membership_.alive().end());
    ask_below(pending);
    own.asked = pending.below;
    own.asked.insert(membership_.self());
    own.asked_max = own.asked.size() + asked_around_max;
    // Suspects may be alive. If their answers arrive in time, they count.
    effects_.send(membership_.suspects(), direct(pending.call));
    answer(pending);
    if (own.missing.empty()) {
        pending.deadline = now;  // finished() comes with the next tick, never from within call()
    }
    return pending.call.id;
}

std::uint64_t RollCall::ask(const std::vector<Rank>& whom, std::string verb, std::string argument,
                            std::chrono::milliseconds patience, TimePoint now) {
    Pending& pending = begin(std::move(verb), std::move(argument), patience, now);
    Own& own = *pending.own();
    own.missing.insert(whom.begin(), whom.end());
    std::erase_if(own.missing, [this](Rank rank) { return !membership_.is_alive(rank); });
    pending.below = own.missing;
    pending.below.erase(membership_.self());
    effects_.send(std::vector<Rank>(pending.below.begin(), pending.below.end()), direct(pending.call));
    if (own.missing.contains(membership_.self())) {
        answer(pending);
    }
    if (own.missing.empty()) {
        pending.deadline = now;  // finished() comes with the next tick, never from within this call
    }
    return pending.call.id;
}

void RollCall::receive(Rank from, const Call& call, TimePoint now) {
    if (call.patience.count() == 0) {  // the origin asks only this node
        if (auto text = effects_.answer(call)) {
            answered(call, std::move(*text));
        }
        return;
    }
    if (!membership_.is_alive(call.origin) || pending_.size() >= calls_max) {
        return;  // the origin asks again, directly
    }
    const auto [entry, is_new] = pending_.try_emplace({call.origin, call.id});
    Pending& pending = entry->second;
    if (!is_new) {
        if (from == call.origin) {
            pending.answer_to = from;  // which went around the node above
        }
        return;
    }
    pending.answer_to = from;
    pending.call = call;
    pending.call.patience = share_for_below(call.patience);
    pending.deadline = now + call.patience;
    ask_below(pending);
    answer(pending);
    go_on(entry);
}

void RollCall::receive(Rank from, const Answer& answer) {
    const auto entry = pending_.find({answer.origin, answer.id});
    if (entry == pending_.end()) {
        // Too late for this node's own answer, perhaps not for the origin.
        if (answer.origin != membership_.self() && membership_.is_alive(answer.origin)) {
            effects_.send({&answer.origin, 1}, answer);
        }
        return;
    }
    Pending& pending = entry->second;
    for (const Answer::Part& part : answer.parts) {
        add(pending, part);
    }
    if (++pending.answers[from] >= answer.answers) {
        pending.below.erase(from);
    }
    go_on(entry);
}

void RollCall::ask_below(Pending& pending) {
    const std::vector<Rank> below = membership_.children({.reader = pending.call.origin});
    pending.below.insert(below.begin(), below.end());
    effects_.send(below, pending.call);
}

void RollCall::answer(Pending& pending) {
    if (auto text = effects_.answer(pending.call)) {
        add(pending, {.rank = membership_.self(), .text = std::move(*text)});
    } else {
        pending.below.insert(membership_.self());
    }
}

void RollCall::answered(const Call& call, std::string text) {
    receive(membership_.self(), Answer{.id = call.id,
                                       .origin = call.origin,
                                       .parts = {{.rank = membership_.self(), .text = std::move(text)}}});
}

void RollCall::peer_lost(Rank rank) {
    for (auto entry = pending_.begin(); entry != pending_.end();) {
        const auto current = entry++;
        current->second.below.erase(rank);
        if (Own* own = current->second.own()) {
            own->missing.erase(rank);
        }
        go_on(current);
    }
}

// Each node counts once. A node can answer twice: directly, and in a part that it shares with others. Then
// the second part is left out, and the others in it stay missing.
void RollCall::add(Pending& pending, const Answer::Part& part) {
    std::vector<Rank> ranks = part.with;
    ranks.push_back(part.rank);
    const auto is_heard = [&pending](Rank rank) { return pending.heard.contains(rank); };
    if (std::any_of(ranks.begin(), ranks.end(), is_heard)) {
        return;
    }
    for (const Rank rank : ranks) {
        pending.heard.insert(rank);
        if (Own* own = pending.own()) {
            own->missing.erase(rank);
        }
    }
    pending.parts[part.rank] = part;
}

// Finishes, or asks in another way, if this way has nothing more to wait for.
void RollCall::go_on(std::map<CallName, Pending>::iterator entry) {
    Pending& pending = entry->second;
    Own* own = pending.own();
    if (own != nullptr ? own->missing.empty() : pending.below.empty()) {
        finish(entry);
    } else if (own != nullptr && pending.below.empty()) {
        go_around(pending, *own);
    }
}

std::set<Rank> RollCall::awaited() const {
    std::set<Rank> ranks;
    for (const auto& [name, pending] : pending_) {
        if (pending.call.silence == Call::Silence::is_suspicious) {
            ranks.insert(pending.below.begin(), pending.below.end());
        }
    }
    ranks.erase(membership_.self());
    return ranks;
}

// One part for all of `parts`, if the verb wants only a sum.
std::optional<Answer::Part> RollCall::join(const Call& call, const std::vector<Answer::Part>& parts) {
    auto text = effects_.joined(call.verb, call.argument, parts);
    if (!text) {
        return std::nullopt;
    }
    Answer::Part sum{.rank = membership_.self(), .text = std::move(*text)};
    for (const Answer::Part& part : parts) {
        sum.with.insert(sum.with.end(), part.with.begin(), part.with.end());
        if (part.rank != sum.rank) {
            sum.with.push_back(part.rank);
        }
    }
    return sum;
}

void RollCall::tick(TimePoint now) {
    for (auto entry = pending_.begin(); entry != pending_.end();) {
        const auto current = entry++;
        Pending& pending = current->second;
        if (now >= pending.deadline) {
            finish(current);
        } else if (Own* own = pending.own(); own != nullptr && own->next_round && now >= *own->next_round) {
            *own->next_round += own->between_rounds;
            go_around(pending, *own);
        }
    }
}

// Asks those of the missing nodes that nobody asks any more: a node whose parent has answered, or owes this
// node an answer. They pass the call on. One whose answer came and could not count is asked for it alone.
void RollCall::go_around(Pending& pending, Own& own) {
    const Route route{.reader = membership_.self()};
    std::vector<Rank> again;
    std::vector<Rank> around;
    for (const Rank rank : own.missing) {
        if (own.asked.contains(rank)) {
            if (!pending.below.contains(rank)) {
                again.push_back(rank);
            }
            continue;
        }
        const auto above = membership_.parent_of(rank, route);
        const bool is_left_alone = !above || !own.missing.contains(*above) || pending.below.contains(*above);
        if (is_left_alone && own.asked.size() + around.size() < own.asked_max) {
            around.push_back(rank);
        }
    }
    own.asked.insert(around.begin(), around.end());
    pending.below.insert(around.begin(), around.end());
    pending.below.insert(again.begin(), again.end());
    Call call = pending.call;
    call.patience = share_for_below(2 * own.between_rounds);
    effects_.send(around, call);
    effects_.send(again, direct(call));
}

void RollCall::finish(std::map<CallName, Pending>::iterator entry) {
    Pending pending = std::move(entry->second);
    pending_.erase(entry);
    std::vector<Answer::Part> parts;
    for (auto& [rank, part] : pending.parts) {
        parts.push_back(std::move(part));
    }
    const Rank* above = std::get_if<Rank>(&pending.answer_to);
    if (above == nullptr) {
        effects_.finished(pending.call.id, std::move(parts));
        return;
    }
    if (auto one = join(pending.call, parts)) {
        parts = {std::move(*one)};
    }
    std::vector<Answer> answers = as_answers(pending.call, std::move(parts));
    for (Answer& answer : answers) {
        answer.answers = static_cast<std::uint32_t>(answers.size());
        effects_.send({above, 1}, answer);
    }
}

std::optional<TimePoint> RollCall::next_deadline() const {
    std::optional<TimePoint> next;
    for (const auto& [name, pending] : pending_) {
        const Own* own = pending.own();
        next = earlier(next, earlier(own != nullptr ? own->next_round : std::nullopt, pending.deadline));
    }
    return next;
}

}  // namespace copper
