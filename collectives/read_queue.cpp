#include "collectives/read_queue.hpp"

#include <algorithm>

namespace copper {

bool ReadQueue::may_begin(ReadFor whom, std::uint64_t backlog_bytes) {
    if (whom == ReadFor::this_node) {
        return true;
    }
    const std::uint64_t ahead = of(ReadFor::the_job_ahead).in_flight;
    const std::uint64_t bytes = (of(ReadFor::the_job).in_flight + ahead) * extent_bytes;
    return (whom == ReadFor::the_job || ahead < options_.ahead_max) &&
           bytes + backlog_bytes < options_.bytes_for_others_max;
}

void ReadQueue::begin_reads(std::uint64_t backlog_bytes, const Begin& begin) {
    for (const ReadFor whom : {ReadFor::this_node, ReadFor::the_job, ReadFor::the_job_ahead}) {
        Reads& reads = of(whom);
        while (!reads.waiting.empty() && may_begin(whom, backlog_bytes) &&
               begin(reads.waiting.front(), whom)) {
            reads.waiting.pop_front();
            ++reads.in_flight;
        }
    }
}

bool ReadQueue::is_empty() const {
    return std::ranges::all_of(reads_, [](const Reads& reads) { return reads.waiting.empty(); });
}

std::uint64_t ReadQueue::in_flight() const {
    return reads_[0].in_flight + reads_[1].in_flight + reads_[2].in_flight;
}

}  // namespace copper
