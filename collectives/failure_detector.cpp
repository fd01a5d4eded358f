#include "collectives/failure_detector.hpp"

namespace copper {

void FailureDetector::heard(Rank from, TimePoint now) {
    heard_[from] = now;
    if (const auto suspicion = awaited_.find(from); suspicion != awaited_.end()) {
        suspicion->second = {.due = now + options_.patience};
    }
}

bool FailureDetector::was_heard_since(Rank rank, TimePoint since) const {
    const auto last = heard_.find(rank);
    return last != heard_.end() && last->second > since;
}

FailureDetector::Verdict FailureDetector::look(const std::set<Rank>& awaited,
                                               const std::vector<Rank>& suspects, TimePoint now) {
    Verdict verdict;
    std::erase_if(awaited_, [&awaited](const auto& each) { return !awaited.contains(each.first); });
    for (const Rank rank : awaited) {
        Suspicion& suspicion =
            awaited_.try_emplace(rank, Suspicion{.due = now + options_.patience}).first->second;
        if (now < suspicion.due) {
            continue;
        }
        if (suspicion.pings == options_.pings_max) {
            verdict.lost.push_back({.rank = rank, .silent_since = suspicion.first_ping});
            awaited_.erase(rank);
        } else {
            verdict.to_ping.push_back(rank);
            suspicion.first_ping = suspicion.pings == 0 ? now : suspicion.first_ping;
            ++suspicion.pings;
            suspicion.due = now + options_.answer_time;
        }
    }
    if (suspects.empty()) {
        next_retrial_ = now + options_.retrial;
    } else if (now >= next_retrial_) {
        next_retrial_ = now + options_.retrial;
        verdict.to_ping.insert(verdict.to_ping.end(), suspects.begin(), suspects.end());
    }
    return verdict;
}

}  // namespace copper
