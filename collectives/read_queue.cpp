#include "collectives/read_queue.hpp"

#include <algorithm>

namespace copper {

namespace {

// What metadata takes: more than most, which is attributes of one name, and less than a full batch.
constexpr std::uint64_t metadata_bytes = 4096;

}  // namespace

ReadQueue::Line ReadQueue::line_of(const ObjectKey& key) {
    const bool is_data = key.kind == ObjectKind::extent || key.kind == ObjectKind::own_extent;
    return is_data ? Line::data : Line::metadata;
}

void ReadQueue::add(const ObjectKey& key, ReadFor whom) {
    of(whom, line_of(key)).waiting.emplace(next_number_, key);
    places_.emplace(key, Place{.whom = whom, .number = next_number_});
    ++next_number_;
}

void ReadQueue::drop(const ObjectKey& key) {
    const auto place = places_.find(key);
    of(place->second.whom, line_of(key)).waiting.erase(place->second.number);
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
    const Line line = line_of(key);
    const auto& own = of(place.whom, line).waiting;
    const std::uint64_t in_line = std::min<std::uint64_t>(place.number - own.begin()->first, own.size());
    const std::uint64_t same =
        in_line + std::min<std::uint64_t>(in_line + 1, of(place.whom, other(line)).waiting.size());
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

bool ReadQueue::may_begin(Next read, std::uint64_t backlog_bytes) const {
    if (of(read.whom, read.line).waiting.empty() || in_flight() >= options_.reads_max) {
        return false;
    }
    if (read.whom == ReadFor::this_node) {
        return of(read.whom, Line::metadata).in_flight + of(read.whom, Line::data).in_flight <
               options_.this_node_max;
    }
    const auto for_others = [this](Line line) {
        return of(ReadFor::the_job, line).in_flight + of(ReadFor::the_job_ahead, line).in_flight;
    };
    const std::uint64_t metadata_ahead = of(ReadFor::the_job_ahead, Line::metadata).in_flight;
    const std::uint64_t ahead = metadata_ahead + of(ReadFor::the_job_ahead, Line::data).in_flight;
    const bool has_room_ahead = ahead < options_.ahead_max && (!is_serial_ || read.line == Line::data ||
                                                               metadata_ahead < options_.serial_ahead_max);
    const std::uint64_t bytes =
        for_others(Line::data) * extent_bytes + for_others(Line::metadata) * metadata_bytes + backlog_bytes;
    return (read.whom == ReadFor::the_job || has_room_ahead) &&
           bytes < options_.bytes_for_others_max * (read.line == Line::metadata ? 4 : 1);
}

std::optional<ReadQueue::Next> ReadQueue::next(std::uint64_t backlog_bytes) const {
    std::array order = {ReadFor::this_node, ReadFor::the_job, ReadFor::the_job_ahead};
    if (last_begun_ == ReadFor::this_node) {
        std::swap(order[0], order[1]);
    }
    for (const ReadFor whom : order) {
        const Line last = last_line_[index(whom)];
        for (const Line line : {other(last), last}) {
            if (may_begin({whom, line}, backlog_bytes)) {
                return Next{whom, line};
            }
        }
    }
    return std::nullopt;
}

void ReadQueue::begin_reads(std::uint64_t backlog_bytes, std::uint64_t reads_max, const Begin& begin) {
    for (std::uint64_t begun = 0; begun < reads_max; ++begun) {
        const auto read = next(backlog_bytes);
        if (!read) {
            return;
        }
        Reads& reads = of(read->whom, read->line);
        const ObjectKey key = std::move(reads.waiting.begin()->second);
        reads.waiting.erase(reads.waiting.begin());
        places_.erase(key);
        ++reads.in_flight;
        last_begun_ = read->whom;
        last_line_[index(read->whom)] = read->line;
        begin(key, read->whom);
    }
}

std::uint64_t ReadQueue::in_flight() const {
    std::uint64_t all = 0;
    for (const Reads& reads : reads_) {
        all += reads.in_flight;
    }
    return all;
}

}  // namespace copper
