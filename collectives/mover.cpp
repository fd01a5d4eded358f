#include "collectives/mover.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "wire/verify.hpp"

namespace copper {
namespace {

// In the last quarter of the deadline, nodes turn to the filesystem level by level.
constexpr int last_part = 4;
constexpr std::size_t levels_max = 16;

// Other nodes wait for answers during a tick. The next tick does the rest.
constexpr std::size_t due_of_a_tick_max = 1024;

template <typename Options>
Options with_deadline(Options options, std::chrono::milliseconds deadline) {
    options.deadline = deadline;
    return options;
}

}  // namespace

Mover::Mover(Options options, const Trees& trees, Membership& membership, Effects& effects)
    : options_(options),
      trees_(trees),
      membership_(membership),
      effects_(effects),
      waiting_(with_deadline(options.waiting, options.deadline)),
      reading_(
          with_deadline(options.reading, options.deadline),
          [this](const ObjectKey& key) { return effects_.latest_call(key); },
          [this](const std::string& filesystem) { return effects_.is_serial(filesystem); }),
      spreading_(options.spreading, membership, effects) {}

MoverCounters Mover::counters() const {
    MoverCounters counters = counters_;
    counters.publications_sent = spreading_.counters().publications_sent;
    counters.passed_over = spreading_.counters().passed_over;
    return counters;
}

bool Mover::is_cooperative(const ObjectKey& key) const {
    return is_shared(key, trees_);
}

bool Mover::is_held_for_others(const ObjectKey& key) {
    const ObjectPtr object = effects_.find(key);
    return object != nullptr && object->is_for_others;
}

Route Mover::route(const ObjectKey& key) const {
    return membership_.route(key);
}

// The node to ask. Nothing if this node must read the object.
std::optional<Rank> Mover::next_hop(const ObjectKey& key, const Wait& wait) const {
    if (own_finding(wait) == nullptr) {
        return membership_.parent(route(key));
    }
    const std::vector<Rank> tried = wait.opinions.readers();
    const auto next = tried.size() < findings_max ? membership_.next_reader(key, tried) : std::nullopt;
    if (next) {
        return next;
    }
    const std::vector<Rank> slow = wait.opinions.slow_besides(membership_.self());
    const auto reads = std::ranges::find_if(slow, [this](Rank rank) { return membership_.is_alive(rank); });
    return reads != slow.end() ? std::optional(*reads) : std::nullopt;
}

// The node to ask after waiting for the parent in vain.
std::optional<Rank> Mover::other_way(const ObjectKey& key, const Wait& wait) const {
    const Asked* asked = std::get_if<Asked>(&wait.state);
    const bool is_turn = asked != nullptr && asked->ways_tried % 2 == 1 && own_finding(wait) == nullptr;
    return is_turn ? membership_.grandparent(route(key)) : std::nullopt;
}

// How long before the deadline this node reads directly: level by level, and within a level in the order of a
// hash of rank and object.
std::chrono::microseconds Mover::early_by(const ObjectKey& key) const {
    if (!is_cooperative(key)) {
        return {};
    }
    const std::size_t level = std::min(membership_.depth(route(key)), levels_max - 1);
    constexpr std::uint64_t fractions = 1024;
    const std::uint64_t mix = (hash_of(key) + membership_.self().value) * 0x9e3779b97f4a7c15U;
    const std::uint64_t position = level * fractions + (mix >> 32U) % fractions;
    const std::chrono::microseconds part = options_.deadline / last_part;
    return part - part * position / (levels_max * fractions);
}

void Mover::want(const ObjectKey& key, FetchFor why, TimePoint now) {
    now_ = now;
    if (effects_.find(key) != nullptr) {
        return;  // the object arrived between the miss and this call, which woke the waiters
    }
    const Wait* known = waiting_.find(key);
    const bool was_wanted_here = known != nullptr && known->is_local;
    const auto joined = waiting_.add_local(key, why, membership_.self(), early_by(key), now);
    if (!joined) {
        return;
    }
    if (!was_wanted_here && is_cooperative(key)) {
        spreading_.note_use(key, membership_.self(), Interest::Wanted::by_one_perhaps, why);
    }
    if (*joined == Waiting::Joined::urges) {
        urge(key, *waiting_.find(key));
    }
    if (*joined == Waiting::Joined::first) {
        fetch(key, *waiting_.find(key));
    }
}

void Mover::receive(Rank from, const Interest& interest, TimePoint now) {
    now_ = now;
    const ObjectKey& key = interest.key;
    if (!is_cooperative(key) || interest.hops > options_.hops_max) {
        ++counters_.interests_refused;
        return;
    }
    if (interest.is_urging && is_urged(from, interest)) {
        return;
    }
    const bool is_passed_on = !interest.findings.empty();
    if (interest.attempt == 0 && !is_passed_on && spreading_.is_in_flight(key, from, interest.seen)) {
        return;
    }
    spreading_.note_use(key, interest.origin, interest.wanted, interest.why);
    const Wait* known = waiting_.find(key);
    const bool is_reader = membership_.reads(key);
    if (const ObjectPtr object = effects_.find(key); object != nullptr && object->is_for_others) {
        spreading_.answer(key, object, {from});
        return;
    } else if (object != nullptr && is_reader && !is_passed_on) {
        decline({&from, 1}, key, *object);
        return;
    }
    if (known == nullptr && is_reader && interest.wanted == Interest::Wanted::by_one_perhaps &&
        spreading_.is_own(key)) {
        effects_.send({&from, 1}, Decline{.key = key});
        return;
    }
    if (known == nullptr && !waiting_.has_room()) {
        // A full table is a queue, too: the asker waits, and asks again.
        ++counters_.interests_refused;
        effects_.send({&from, 1},
                      Working{.key = key,
                              .spent = std::chrono::milliseconds(1),
                              .still = std::chrono::floor<std::chrono::milliseconds>(now - moved_),
                              .place_in_queue = waiting_.size()});
        return;
    }
    const auto joined = waiting_.add_asker(key, from, interest, now);
    Wait& wait = *waiting_.find(key);
    counters_.interests_merged += joined != Waiting::Joined::first ? 1 : 0;
    if (joined == Waiting::Joined::urges) {
        urge(key, wait);
    }
    if (reading_.has(key)) {
        if (is_passed_on) {  // by a node that waits for the end of this slow read
            wait.opinions = Opinions(interest.findings);
            waiting_.read_here(key);
        }
        if (interest.attempt > 0 || is_passed_on) {
            tell_working({&from, 1}, key);
        }
    } else if (is_passed_on) {
        wait.opinions = Opinions(interest.findings);
        read(key, wait, Reading::Purpose::in_office, interest.spent);
        tell_working(wait.askers, key);
    } else if (joined == Waiting::Joined::first) {
        fetch(key, wait);
    } else if (joined == Waiting::Joined::again) {
        ++counters_.retries;
        fetch(key, wait);
    }
}

void Mover::fetch(const ObjectKey& key, Wait& wait) {
    if (!is_cooperative(key)) {
        read(key, wait, Reading::Purpose::unshared);
    } else if (const auto next = next_hop(key, wait)) {
        ask(other_way(key, wait).value_or(*next), key, wait);
    } else if (const Finding* finding = own_finding(wait); finding != nullptr && !reading_.has(key)) {
        keep_in_doubt(key, object_of(*finding, key.kind));
    } else {
        read(key, wait, Reading::Purpose::in_office);
    }
}

// Demand joins what this node was going to get as a guess: it becomes demand at every place that it has come
// to.
void Mover::urge(const ObjectKey& key, const Wait& wait) {
    if (reading_.has(key)) {
        reading_.promote(key);
        begin_reads();
    }
    if (const auto whom = wait.asked()) {
        ask(*whom, key, wait, Asks::for_haste);
    } else if (std::holds_alternative<InTurn>(wait.state)) {
        leave_turn(key, FetchFor::guess);
        leave_turn(key, FetchFor::everyone);
        in_turn_[effects_.filesystem_of(key.path)].emplace(wait.why, key);
    }
}

// False if this node has not got the asker's first interest.
bool Mover::is_urged(Rank from, const Interest& interest) {
    const ObjectKey& key = interest.key;
    Wait* wait = waiting_.find(key);
    if (wait == nullptr) {
        return is_held_for_others(key);  // it is on its way to the asker
    }
    const bool is_asker = std::ranges::find(wait->askers, from) != wait->askers.end();
    if (is_asker && waiting_.add_asker(key, from, interest, now_) == Waiting::Joined::urges) {
        urge(key, *wait);
    }
    return is_asker;
}

void Mover::ask(Rank whom, const ObjectKey& key, const Wait& wait, Asks what) {
    if (what == Asks::for_the_object) {
        waiting_.ask(key, whom, route(key).reader, now_);
    }
    const bool by_several =
        wait.wanted == Interest::Wanted::by_several ||
        (what == Asks::for_the_object && spreading_.wanted(key) == Interest::Wanted::by_several);
    ++counters_.interests_sent;
    effects_.send(
        {&whom, 1},
        Interest{.key = key,
                 .seen = spreading_.received_from(whom),
                 .attempt = wait.attempt,
                 .hops = wait.hops,
                 .origin = wait.origin,
                 .wanted = by_several ? Interest::Wanted::by_several : Interest::Wanted::by_one_perhaps,
                 .why = wait.why,
                 .findings = own_finding(wait) != nullptr ? wait.opinions.findings() : std::vector<Finding>(),
                 .spent = reading_.has(key) ? reading_.spent(key, now_) : std::chrono::milliseconds(0),
                 .is_urging = what == Asks::for_haste,
                 .news = membership_.news()});
}

void Mover::ask_again(const ObjectKey& key, Wait& wait) {
    ++counters_.retries;
    ++wait.attempt;
    fetch(key, wait);
}

void Mover::receive(Rank from, const Decline& decline, TimePoint now) {
    now_ = now;
    const ObjectKey& key = decline.key;
    Wait* wait = waiting_.find(key);
    if (wait == nullptr || !wait->asked()) {
        return;
    }
    if (decline.found) {
        note_finding(key, *wait, *decline.found);
    } else if (wait->asked() != from) {
        return;
    } else if (wait->nodes() > 1) {
        wait->wanted = Interest::Wanted::by_several;
        fetch(key, *wait);
    } else if (wait->is_local) {
        ++counters_.unshared_reads;
        read(key, *wait, Reading::Purpose::unshared);
    } else {
        effects_.send(settle(key), decline);
    }
}

// Who has read the object and cannot be believed alone says so.
void Mover::note_finding(const ObjectKey& key, Wait& wait, const Finding& found) {
    wait.opinions.set(found);
    if (reading_.has(key)) {
        waiting_.read_here(key);
    } else if (const Finding* own = own_finding(wait)) {
        const ObjectPtr object = object_of(*own, key.kind);
        if (wait.opinions.on(*object, membership_.self()) == Opinions::Verdict::believe_longer) {
            publish(key, confirmed(object));
        } else {
            fetch(key, wait);
        }
    } else if (wait.is_local) {
        read_directly(key, wait);
    } else {
        effects_.send(settle(key), Decline{.key = key, .found = found});
    }
}

// `spent`: by other readers.
void Mover::read(const ObjectKey& key, Wait& wait, Reading::Purpose purpose,
                 std::chrono::milliseconds spent) {
    // Askers ignore a Working that is not larger than the last one, so start above what was relayed.
    if (const Asked* asked = std::get_if<Asked>(&wait.state)) {
        spent = std::max(spent, asked->spent);
    }
    waiting_.read_here(key);
    if (!reading_.has(key)) {
        reading_.add(key, effects_.filesystem_of(key.path), purpose, wait.why,
                     spent + std::chrono::milliseconds(1), now_);
        begin_reads();
    }
}

void Mover::begin_reads() {
    if (reading_.queued() > 0) {
        reading_.begin_reads(effects_.backlog_bytes(), now_,
                             [this](const ObjectKey& key) { effects_.read(key); });
    }
}

void Mover::backlog_shrank(TimePoint now) {
    now_ = now;
    begin_reads();
}

// The object is here, or is not wanted any more: then nobody needs to read it.
std::vector<Rank> Mover::settle(const ObjectKey& key) {
    if (reading_.drop(key)) {
        read_next_directly();
    }
    return waiting_.settle(key);
}

void Mover::read_directly(const ObjectKey& key, Wait& wait) {
    const std::string filesystem = effects_.filesystem_of(key.path);
    if (!reading_.has_room_for_direct(filesystem) && now_ < wait.deadline + options_.deadline) {
        in_turn_[filesystem].emplace(wait.why, key);
        waiting_.wait_for_turn(key, wait.deadline + options_.deadline);
        return;
    }
    ++counters_.direct_reads;
    read(key, wait, Reading::Purpose::direct);
    tell_working(wait.askers, key);
}

void Mover::read_next_directly() {
    for (auto& [filesystem, turns] : in_turn_) {
        while (reading_.has_room_for_direct(filesystem) && !turns.empty()) {
            const ObjectKey key = turns.begin()->second;
            turns.erase(turns.begin());
            Wait* wait = waiting_.find(key);
            if (wait != nullptr && std::holds_alternative<InTurn>(wait->state)) {
                read_directly(key, *wait);
            }
        }
    }
    std::erase_if(in_turn_, [](const auto& entry) { return entry.second.empty(); });
}

void Mover::leave_turn(const ObjectKey& key, FetchFor why) {
    if (const auto turns = in_turn_.find(effects_.filesystem_of(key.path)); turns != in_turn_.end()) {
        turns->second.erase({why, key});
    }
}

void Mover::tell_working(std::span<const Rank> to, const ObjectKey& key) {
    if (!to.empty()) {
        effects_.send(to, reading_.working(key, now_));
    }
}

void Mover::receive(Rank from, const Working& working, TimePoint now) {
    now_ = now;
    const Wait* wait = waiting_.find(working.key);
    const bool has_finding = wait != nullptr && own_finding(*wait) != nullptr;
    if (!waiting_.note_work(working, has_finding ? Waiting::Trust::little : Waiting::Trust::full, now)) {
        return;
    }
    std::vector<Rank> askers = waiting_.find(working.key)->askers;
    std::erase(askers, from);
    if (!askers.empty()) {
        effects_.send(askers, working);
    }
}

void Mover::receive(Rank from, const Publication& publication, TimePoint now) {
    now_ = now;
    const ObjectKey& key = publication.key;
    spreading_.note_received(from, publication.lane, publication.sequence);
    const bool is_held = is_held_for_others(key);
    counters_.duplicates += is_held ? 1 : 0;
    if (const Wait* wait = waiting_.find(key)) {
        moved_ = now;
        judge_own_finding(key, *wait, *publication.object);
    }
    std::vector<Rank> askers = settle(key);
    std::erase(askers, from);  // it has the object now, whatever it asked
    // Forward before using the object: the nodes below are waiting.
    spreading_.forward(from, publication, askers);
    if (!is_held) {
        deliver(key, publication.object);
        if (publication.spread == Publication::Spread::everyone) {
            effects_.is_for_all(key, publication.object);
        }
    }
}

// Another reader could read what this one could not. (If it was as slow, the filesystem is slow for all.)
void Mover::judge_own_finding(const ObjectKey& key, const Wait& wait, const Object& object) {
    const Finding* finding = own_finding(wait);
    if (finding == nullptr || doubt_of(object) ||
        (finding->error == ETIMEDOUT && reading_.is_slow_elsewhere(key, now_))) {
        return;
    }
    back_in_office_ = now_ + options_.resigned_for;
    if (membership_.state(membership_.self()) == NodeState::serving) {
        ++counters_.resignations;
        membership_.resign();
        reading_.resign(now_);
    }
}

void Mover::deliver(const ObjectKey& key, const ObjectPtr& object) {
    effects_.deliver(key, object);
    for (const auto& [other, proven] : proven_by(key, *object, current_objects())) {
        effects_.deliver(effects_.current(other), proven);
    }
}

FindObject Mover::current_objects() const {
    return [this](const ObjectKey& key) { return effects_.find(effects_.current(key)); };
}

void Mover::read_done(const ObjectKey& key, const ObjectPtr& read, TimePoint now) {
    now_ = now;
    moved_ = now;
    const auto purpose = reading_.end(key, now);
    begin_reads();
    read_next_directly();
    Wait* wait = waiting_.find(key);
    if (!purpose || wait == nullptr) {
        return;  // it came another way, and the first version stays
    }
    const ObjectPtr known = effects_.find(key);
    const bool is_known = known != nullptr && known->is_for_others;
    // Before this node knows of a refresh, or later than others, its first versions are not the askers'.
    const bool is_current = effects_.current(key) == key;
    const ObjectPtr object = is_known     ? known
                             : is_current ? with_first_versions(key, read, current_objects())
                                          : read;
    if (purpose == Reading::Purpose::in_office) {
        finish_in_office(key, *wait, object);
        return;
    }
    const auto verdict = is_known || !is_cooperative(key) ? Opinions::Verdict::believe
                                                          : wait->opinions.on(*object, membership_.self());
    if (verdict == Opinions::Verdict::ask_another) {
        keep_in_doubt(key, object);
        return;
    }
    const ObjectPtr answer = verdict == Opinions::Verdict::believe ? object : confirmed(object);
    spreading_.answer(key, answer, waiting_.settle(key));
    deliver(key, answer);
}

void Mover::finish_in_office(const ObjectKey& key, Wait& wait, const ObjectPtr& object) {
    switch (wait.opinions.on(*object, membership_.self())) {
        case Opinions::Verdict::believe:
            publish(key, object);
            break;
        case Opinions::Verdict::believe_longer:
            publish(key, confirmed(object));
            break;
        case Opinions::Verdict::ask_another:
            if (membership_.size() == 1) {
                publish(key, object);
            } else if (!pass_on(key, wait, *doubt_of(*object))) {
                keep_in_doubt(key, object);
            }
            break;
    }
}

// It may be the fault of this node's mount. The others have their own.
void Mover::keep_in_doubt(const ObjectKey& key, const ObjectPtr& object) {
    decline(settle(key), key, *object);
    deliver(key, for_this_node(object));
}

void Mover::decline(std::span<const Rank> to, const ObjectKey& key, const Object& doubtful) {
    const Finding found{.reader = membership_.self(), .error = doubt_of(doubtful).value()};
    effects_.send(to, Decline{.key = key, .found = found});
}

// False if there is no node to pass the read on to.
bool Mover::pass_on(const ObjectKey& key, Wait& wait, int error) {
    const bool is_passed_on = own_finding(wait) != nullptr;
    wait.opinions.set({.reader = membership_.self(), .error = error});
    if (is_passed_on) {
        return wait.asked().has_value();  // the read was slow; another node is already reading
    }
    const auto next = next_hop(key, wait);
    if (!next) {
        wait.opinions.forget(membership_.self());
        return false;
    }
    ++counters_.passed_on;
    waiting_.begin_again(key, now_);
    ask(*next, key, wait);
    return true;
}

void Mover::publish(const ObjectKey& key, const ObjectPtr& object) {
    const std::vector<Rank> askers = settle(key);
    const bool is_for_all = spreading_.publish(key, object, askers);
    deliver(key, object);
    if (is_for_all) {
        effects_.is_for_all(key, object);
    }
}

void Mover::receive_damaged(Rank from, const ObjectKey& key, Lane lane, std::uint64_t sequence,
                            TimePoint now) {
    now_ = now;
    ++counters_.corrupt;
    spreading_.note_received(from, lane, sequence);
    Wait* wait = waiting_.find(key);
    if (wait != nullptr && wait->asked() == from) {
        ask_again(key, *wait);
    }
}

void Mover::membership_changed(TimePoint now) {
    now_ = now;
    has_membership_changed_ = true;
}

void Mover::review_ways() {
    if (std::exchange(has_membership_changed_, false)) {
        waiting_.forget_askers([this](Rank rank) { return membership_.state(rank) == NodeState::dead; });
        next_to_review_ = waiting_.first();
    }
    for (std::size_t reviewed = 0; next_to_review_ && reviewed < due_of_a_tick_max; ++reviewed) {
        const ObjectKey key = *next_to_review_;
        next_to_review_ = waiting_.next(key);
        if (Wait* wait = waiting_.find(key); wait != nullptr) {
            review_way(key, *wait);
        }
    }
}

void Mover::review_way(const ObjectKey& key, Wait& wait) {
    const auto queued_for = reading_.queued_for(key);
    if (queued_for && wait.nodes() == 0) {
        settle(key);
        return;
    }
    if (!wait.asked()) {
        if (queued_for == Reading::Purpose::in_office && wait.opinions.empty() && next_hop(key, wait)) {
            // Another node holds the office now, and reads what is still in the queue.
            reading_.drop(key);
            waiting_.begin_again(key, now_);
            fetch(key, wait);
        }
        return;
    }
    const Asked& asked = std::get<Asked>(wait.state);
    const bool is_on_the_way = asked.whom == next_hop(key, wait) || asked.whom == other_way(key, wait);
    if (!is_on_the_way || !membership_.is_alive(asked.whom)) {
        ask_again(key, wait);
    } else if (asked.reader != route(key).reader) {
        // The way stays, but the node there may not know of the new reader. The attempt stays, too: the
        // object may be on its way.
        ask(asked.whom, key, wait);
    }
}

void Mover::tick(TimePoint now) {
    now_ = now;
    review_ways();
    if (back_in_office_ && *back_in_office_ <= now) {
        back_in_office_.reset();
        membership_.resume();
        reading_.resume();
    }
    const auto handle_due = [this, now](auto& part) {
        for (std::size_t handled = 0; handled < due_of_a_tick_max; ++handled) {
            const auto due = part.take_due(now);
            if (!due) {
                return;
            }
            on_due(*due);
        }
    };
    handle_due(waiting_);
    handle_due(reading_);
}

void Mover::on_due(const Waiting::Due& due) {
    Wait& wait = *waiting_.find(due.key);
    if (reading_.has(due.key)) {
        waiting_.read_here(due.key);  // the read was slow; this node asked another reader, which is silent
        return;
    }
    switch (due.next) {
        case Waiting::Due::Next::ask_another_way:
            ++counters_.retries;
            fetch(due.key, wait);
            break;
        case Waiting::Due::Next::read_directly:
            leave_turn(due.key, wait.why);
            read_directly(due.key, wait);
            break;
        case Waiting::Due::Next::give_up:
            if (const Finding* finding = own_finding(wait)) {
                keep_in_doubt(due.key, object_of(*finding, due.key.kind));
            } else {
                settle(due.key);  // the askers have deadlines of their own
            }
            break;
    }
}

void Mover::on_due(const Reading::Due& due) {
    Wait* wait = waiting_.find(due.key);
    if (wait == nullptr) {
        return;  // the object came another way, and the read has not ended yet
    }
    if (due.next == Reading::Due::Next::tell_working) {
        tell_working(wait->askers, due.key);
        return;
    }
    const bool is_slow_for_all = !wait->opinions.slow_besides(membership_.self()).empty();
    if (!is_slow_for_all) {
        pass_on(due.key, *wait, ETIMEDOUT);
    }
}

std::optional<TimePoint> Mover::next_deadline() const {
    if (has_membership_changed_ || next_to_review_) {
        return now_;
    }
    return earlier(back_in_office_, earlier(waiting_.next_deadline(), reading_.next_deadline()));
}

}  // namespace copper
