#include "collectives/waiting.hpp"

#include <algorithm>
#include <utility>

namespace copper {
namespace {

constexpr int ways = 3;
// Its filesystem may stand still for so many.
constexpr int deadlines_with_a_finding = 2;

bool is_urged_by(const Wait& wait, FetchFor why) {
    return why == FetchFor::demand && wait.why != FetchFor::demand;
}

void try_another_way(Asked& asked) {
    ++asked.ways_tried;
    asked.spent = std::chrono::milliseconds(0);
}

}  // namespace

Wait* Waiting::find(const ObjectKey& key) {
    const auto entry = waits_.find(key);
    return entry != waits_.end() ? &entry->second : nullptr;
}

void Waiting::begin_deadline(Wait& wait, TimePoint now) const {
    wait.deadline = now + options_.deadline;
    wait.deadline_max = now + options_.deadline * options_.deadlines_max;
}

std::optional<Waiting::Joined> Waiting::add_local(const ObjectKey& key, FetchFor why, Rank self,
                                                  std::chrono::microseconds early, TimePoint now) {
    const auto [entry, is_new] = waits_.try_emplace(key);
    Wait& wait = entry->second;
    const bool urges = !is_new && is_urged_by(wait, why);
    if (wait.is_local && !urges) {
        return std::nullopt;
    }
    wait.is_local = true;
    wait.early = early;
    begin_deadline(wait, now);
    if (is_new) {
        wait.origin = self;
        wait.why = why;
        return Joined::first;
    }
    if (Asked* asked = std::get_if<Asked>(&wait.state)) {
        asked->ways_tried = 0;
        set_timer(key, wait, now);
    }
    if (urges) {
        wait.why = why;
    }
    return urges ? Joined::urges : Joined::later;
}

Waiting::Joined Waiting::add_asker(const ObjectKey& key, Rank from, const Interest& interest, TimePoint now) {
    const auto [entry, is_new] = waits_.try_emplace(key);
    Wait& wait = entry->second;
    if (std::find(wait.askers.begin(), wait.askers.end(), from) == wait.askers.end()) {
        wait.askers.push_back(from);
    }
    if (!is_new) {
        const bool urges = is_urged_by(wait, interest.why);
        wait.why = urges ? interest.why : wait.why;
        if (Asked* asked = std::get_if<Asked>(&wait.state);
            asked != nullptr && interest.attempt > wait.attempt) {
            wait.attempt = interest.attempt;
            try_another_way(*asked);
            return Joined::again;
        }
        return urges ? Joined::urges : Joined::later;
    }
    wait.attempt = interest.attempt;
    wait.origin = interest.origin;
    wait.wanted = interest.wanted;
    wait.why = interest.why;
    wait.hops = interest.hops + 1;
    begin_deadline(wait, now);
    return Joined::first;
}

void Waiting::ask(const ObjectKey& key, Rank whom, Rank reader, TimePoint now) {
    Wait& wait = waits_.at(key);
    const Asked* before = std::get_if<Asked>(&wait.state);
    set_state(
        wait,
        Asked{.whom = whom, .reader = reader, .ways_tried = before != nullptr ? before->ways_tried : 0});
    ++asked_[whom];
    set_timer(key, wait, now);
}

void Waiting::set_state(Wait& wait, decltype(Wait::state) state) {
    forget_asked(wait);
    wait.state = state;
}

void Waiting::forget_asked(const Wait& wait) {
    const auto whom = wait.asked();
    if (whom && --asked_.at(*whom) == 0) {
        asked_.erase(*whom);
    }
}

void Waiting::set_timer(const ObjectKey& key, const Wait& wait, TimePoint now) {
    const TimePoint end = wait.deadline - wait.early;
    timers_.set(key, wait.is_local ? std::min(now + options_.deadline / ways, end) : end);
}

void Waiting::read_here(const ObjectKey& key) {
    set_state(waits_.at(key), ReadHere{});
    timers_.cancel(key);
}

void Waiting::wait_for_turn(const ObjectKey& key, TimePoint latest) {
    set_state(waits_.at(key), InTurn{});
    timers_.set(key, latest);
}

bool Waiting::note_work(const Working& working, Trust trust, TimePoint now) {
    const ObjectKey& key = working.key;
    Wait* wait = find(key);
    Asked* asked = wait != nullptr ? std::get_if<Asked>(&wait->state) : nullptr;
    if (asked == nullptr || working.spent <= asked->spent) {
        return false;  // also if it went in a circle, between nodes that disagree on the tree
    }
    asked->spent = working.spent;
    asked->ways_tried = 0;
    const auto most =
        options_.deadline * (trust == Trust::full ? options_.deadlines_max : deadlines_with_a_finding);
    const TimePoint latest = now + most - std::min(working.still, most);
    if (trust == Trust::full) {
        wait->deadline_max = std::max(wait->deadline_max, latest);
    }
    const TimePoint end = trust == Trust::full ? wait->deadline_max : latest;
    wait->deadline = std::max(wait->deadline, std::min(now + options_.deadline, end));
    set_timer(key, *wait, now);
    return true;
}

std::vector<Rank> Waiting::settle(const ObjectKey& key) {
    const auto entry = waits_.find(key);
    if (entry == waits_.end()) {
        return {};
    }
    std::vector<Rank> askers = std::move(entry->second.askers);
    timers_.cancel(key);
    forget_asked(entry->second);
    waits_.erase(entry);
    return askers;
}

void Waiting::forget_askers(const std::function<bool(Rank)>& is_gone) {
    for (auto& [key, wait] : waits_) {
        std::erase_if(wait.askers, is_gone);
    }
}

std::optional<Waiting::Due> Waiting::take_due(TimePoint now) {
    auto key = timers_.take_due(now);
    if (!key) {
        return std::nullopt;
    }
    Wait& wait = waits_.at(*key);
    Due::Next next = wait.is_local ? Due::Next::read_directly : Due::Next::give_up;
    if (Asked* asked = std::get_if<Asked>(&wait.state);
        asked != nullptr && now < wait.deadline - wait.early) {
        ++wait.attempt;
        try_another_way(*asked);
        next = Due::Next::ask_another_way;
    }
    return Due{std::move(*key), next};
}

std::set<Rank> Waiting::awaited() const {
    std::set<Rank> ranks;
    for (const auto& [rank, objects] : asked_) {
        ranks.insert(ranks.end(), rank);
    }
    return ranks;
}

}  // namespace copper
