#include "collectives/read_queue.hpp"

#include <algorithm>

namespace copper {

void ReadQueue::add(const ObjectKey& key, ReadFor whom) {
    of(whom).waiting.emplace(next_number_, key);
    places_.emplace(key, Place{.whom = whom, .number = next_number_});
    ++next_number_;
}

void ReadQueue::drop(const ObjectKey& key) {
    const auto place = places_.find(key);
    of(place->second.whom).waiting.erase(place->second.number);
    places_.erase(place);
}

void ReadQueue::promote(const ObjectKey& key) {
    if (places_.at(key).whom == ReadFor::the_job_ahead) {
        drop(key);
        add(key, ReadFor::the_job);
    }
}

std::uint64_t ReadQueue::before(const ObjectKey& key) const {
    const Place& place = places_.at(key);
    const std::uint64_t ahead_of_it = place.number - of(place.whom).waiting.begin()->first;
    const auto waiting = [this](ReadFor whom) { return std::uint64_t{of(whom).waiting.size()}; };
    const std::uint64_t same = std::min(ahead_of_it, waiting(place.whom));
    switch (place.whom) {
        case ReadFor::this_node:
            return same + std::min(same + 1, waiting(ReadFor::the_job));
        case ReadFor::the_job:
            return same + std::min(same + 1, waiting(ReadFor::this_node));
        case ReadFor::the_job_ahead:
            break;
    }
    return same + waiting(ReadFor::this_node) + waiting(ReadFor::the_job);
}

bool ReadQueue::may_begin(ReadFor whom, std::uint64_t backlog_bytes) const {
    if (of(whom).waiting.empty() || in_flight() >= options_.reads_max) {
        return false;
    }
    if (whom == ReadFor::this_node) {
        return of(whom).in_flight < options_.this_node_max;
    }
    const std::uint64_t ahead = of(ReadFor::the_job_ahead).in_flight;
    const std::uint64_t bytes = (of(ReadFor::the_job).in_flight + ahead) * extent_bytes;
    return (whom == ReadFor::the_job || ahead < options_.ahead_max) &&
           bytes + backlog_bytes < options_.bytes_for_others_max;
}

std::optional<ReadQueue::ReadFor> ReadQueue::next(std::uint64_t backlog_bytes) const {
    std::array order = {ReadFor::this_node, ReadFor::the_job, ReadFor::the_job_ahead};
    if (last_begun_ == ReadFor::this_node) {
        std::swap(order[0], order[1]);
    }
    const auto* found = std::ranges::find_if(
        order, [this, backlog_bytes](ReadFor whom) { return may_begin(whom, backlog_bytes); });
    return found != order.end() ? std::optional(*found) : std::nullopt;
}

void ReadQueue::begin_reads(std::uint64_t backlog_bytes, std::uint64_t reads_max, const Begin& begin) {
    for (std::uint64_t begun = 0; begun < reads_max; ++begun) {
        const auto whom = next(backlog_bytes);
        if (!whom) {
            return;
        }
        Reads& reads = of(*whom);
        const ObjectKey key = std::move(reads.waiting.begin()->second);
        reads.waiting.erase(reads.waiting.begin());
        places_.erase(key);
        ++reads.in_flight;
        last_begun_ = *whom;
        begin(key, *whom);
    }
}

std::uint64_t ReadQueue::in_flight() const {
    return reads_[0].in_flight + reads_[1].in_flight + reads_[2].in_flight;
}

}  // namespace copper
