#include "collectives/failure_detector.hpp"

#include <algorithm>

namespace copper {

void FailureDetector::heard(Rank from, TimePoint now) {
    heard_[from] = now;
    if (const auto suspicion = watched_.find(from); suspicion != watched_.end()) {
        auto patience = suspicion->second.patience;
        if (suspicion->second.pings > 0) {
            patience = std::min(2 * patience, options_.patience_max);
        }
        suspicion->second = {.due = now + patience, .patience = patience};
    }
}

bool FailureDetector::was_heard_since(Rank rank, TimePoint since) const {
    const auto last = heard_.find(rank);
    return last != heard_.end() && last->second > since;
}

std::vector<LostNode> FailureDetector::lost(const View& view, const Membership& membership,
                                            TimePoint now) const {
    std::vector<LostNode> lost;
    for (const auto& [rank, silence] : view.suspects) {
        const TimePoint since = now - silence;
        const auto last_return = membership.return_of(rank);
        const bool is_stale =
            was_heard_since(rank, since) ||
            (last_return && (last_return->heard > since || last_return->epoch > view.epoch));
        if (rank != membership.self() && membership.is_alive(rank) && !is_stale) {
            lost.push_back({.rank = rank, .silent_since = since});
        }
    }
    return lost;
}

std::vector<Membership::Return> FailureDetector::returned(const View& view, const Membership& membership,
                                                          TimePoint now) {
    std::vector<Membership::Return> returned;
    for (const LostNode& lost : membership.lost()) {
        for (const auto& [rank, ago] : view.returned) {
            if (rank == lost.rank && lost.silent_since && now - ago > *lost.silent_since) {
                returned.push_back({.rank = rank, .heard = now - ago});
            }
        }
    }
    return returned;
}

FailureDetector::Verdict FailureDetector::look(const std::set<Rank>& awaited,
                                               const std::vector<Rank>& suspects, TimePoint now) {
    Verdict verdict;
    std::erase_if(watched_, [&awaited](const auto& each) {
        return each.second.pings == 0 && !awaited.contains(each.first);
    });
    for (const Rank rank : awaited) {
        watched_.try_emplace(rank, Suspicion{.due = now + options_.patience, .patience = options_.patience});
    }
    for (auto watched = watched_.begin(); watched != watched_.end();) {
        const auto current = watched++;
        auto& [rank, suspicion] = *current;
        if (now < suspicion.due) {
            continue;
        }
        if (suspicion.pings == options_.pings_max) {
            verdict.lost.push_back({.rank = rank, .silent_since = suspicion.first_ping});
            watched_.erase(current);
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
        const std::uint32_t turns = (options_.nodes + options_.retrials_max - 1) / options_.retrials_max;
        for (const Rank suspect : suspects) {
            if ((suspect.value + options_.self.value + retrials_) % turns == 0) {
                verdict.to_ping.push_back(suspect);
            }
        }
        ++retrials_;
    }
    return verdict;
}

}  // namespace copper
