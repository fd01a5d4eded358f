#include "collectives/failure_detector.hpp"

#include <algorithm>

namespace copper {

void FailureDetector::heard(Rank from, TimePoint now) {
    if (const auto suspicion = watched_.find(from); suspicion != watched_.end()) {
        auto patience = suspicion->second.patience;
        if (suspicion->second.pings > 0) {
            patience = std::min(2 * patience, options_.patience_max);
        }
        suspicion->second = {.due = now + patience, .patience = patience};
    }
}

bool FailureDetector::may_ping(Rank rank, TimePoint now) {
    TimePoint& answer_due = unanswered_[rank];
    if (now < answer_due) {
        return false;
    }
    answer_due = now + options_.answer_time;
    return true;
}

bool FailureDetector::answered_ping(Rank from) {
    unanswered_.erase(from);
    accused_.erase(from);
    return out_of_reach_.erase(from) > 0;
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
            if (accused_.insert(rank).second) {
                verdict.silent.push_back(rank);
            } else {
                verdict.out_of_reach.push_back(rank);
                out_of_reach_.insert(rank);
            }
            watched_.erase(current);
        } else {
            verdict.to_ping.push_back(rank);
            ++suspicion.pings;
            suspicion.due = now + options_.answer_time;
        }
    }
    if (suspects.empty() && out_of_reach_.empty()) {
        next_retrial_ = now + options_.retrial;
    } else if (now >= next_retrial_) {
        next_retrial_ = now + options_.retrial;
        retry(suspects, verdict.to_ping);
        ++retrials_;
    }
    return verdict;
}

void FailureDetector::retry(const std::vector<Rank>& suspects, std::vector<Rank>& to_ping) {
    const auto turns_of = [this](std::size_t nodes) {
        return (nodes + options_.retrials_max - 1) / options_.retrials_max;
    };
    for (const Rank suspect : suspects) {
        if ((suspect.value + options_.self.value + retrials_) % turns_of(options_.nodes) == 0) {
            to_ping.push_back(suspect);
        }
    }
    std::size_t number = retrials_;
    for (const Rank rank : out_of_reach_) {
        if (number++ % turns_of(out_of_reach_.size()) == 0) {
            to_ping.push_back(rank);
        }
    }
}

}  // namespace copper
