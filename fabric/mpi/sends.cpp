#include "fabric/mpi/sends.hpp"

#include <algorithm>
#include <utility>

#include "fabric/message_order.hpp"
#include "fabric/mpi/pieces.hpp"

namespace copper {
namespace {

constexpr std::size_t spare_messages_max = 16;
constexpr std::chrono::seconds stalled_after{1};

}  // namespace

void Sends::send(Rank to, const Frame& frame) {
    if (!outbox_.push(to, frame)) {
        ++counters_.dropped;
        return;
    }
    start_waiting(to, frame.lane);
}

std::uint64_t Sends::backlog_bytes() const {
    std::uint64_t bytes = outbox_.backlog_bytes();
    const auto now = under_way_.empty() ? TimePoint() : std::chrono::steady_clock::now();
    std::set<Rank> stalled;
    for (const Outgoing& outgoing : under_way_) {
        if (now - outgoing.since > stalled_after && stalled.insert(outgoing.to).second) {
            bytes -= outbox_.backlog_bytes(outgoing.to);
        }
    }
    return bytes;
}

void Sends::start_waiting(Rank to, Lane lane) {
    for (auto frames = outbox_.next(to, lane); !frames.empty(); frames = outbox_.next(to, lane)) {
        start(to, lane, frames);
    }
}

Sends::Message Sends::spare_message() {
    if (spare_messages_.empty()) {
        return {};
    }
    Message message = std::move(spare_messages_.back());
    spare_messages_.pop_back();
    return message;
}

void Sends::start(Rank to, Lane lane, std::span<const Frame> frames) {
    Outgoing outgoing{.to = to,
                      .lane = lane,
                      .bytes = 0,
                      .message = spare_message(),
                      .body = {},
                      .pieces = {},
                      .since = std::chrono::steady_clock::now()};
    const std::uint64_t number = next_number_[to.value]++;
    sealer_.seal({.from = options_.self, .to = to, .number = number}, frames, outgoing.message);
    for (const Frame& frame : frames) {
        outgoing.bytes += bytes_of(frame);
        counters_.bytes_saved += frame.saved_bytes;
    }
    const int rank = static_cast<int>(to.value);
    int result = MPI_Isend(outgoing.message.data(), static_cast<int>(outgoing.message.size()), MPI_BYTE, rank,
                           static_cast<int>(number % message_tags), messages_, &outgoing.request);
    if (lane == Lane::bulk) {
        outgoing.body = frames.front().body;
        outgoing.pieces.resize(pieces_of(outgoing.body.size), MPI_REQUEST_NULL);
    }
    for (std::size_t i = 0; result == MPI_SUCCESS && i < outgoing.pieces.size(); ++i) {
        const auto piece = piece_of(outgoing.body.span(), i);
        result = MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, rank, body_tag,
                           MPI_COMM_WORLD, &outgoing.pieces[i]);
    }
    counters_.messages_sent += frames.size();
    counters_.bytes_sent += outgoing.bytes;
    under_way_.push_back(std::move(outgoing));
    ring_(to);
    if (result != MPI_SUCCESS) {
        failed_.insert(to);
    }
}

bool Sends::complete(std::set<Rank>& lost) {
    lost.merge(failed_);
    failed_.clear();
    bool moved = false;
    const auto now = under_way_.empty() ? TimePoint() : std::chrono::steady_clock::now();
    for (auto outgoing = under_way_.begin(); outgoing != under_way_.end();) {
        int done = 0;
        int result = MPI_Test(&outgoing->request, &done, MPI_STATUS_IGNORE);
        if (result == MPI_SUCCESS && done != 0 && !outgoing->pieces.empty()) {
            result = MPI_Testall(static_cast<int>(outgoing->pieces.size()), outgoing->pieces.data(), &done,
                                 MPI_STATUSES_IGNORE);
        }
        ring_(outgoing->to);
        const bool failed = result != MPI_SUCCESS;
        if (failed || (done == 0 && now - outgoing->since > options_.deadline)) {
            lost.insert(outgoing->to);
        }
        if (failed || done == 0) {  // after an error the rest may still be in flight
            ++outgoing;
            continue;
        }
        moved = true;
        outbox_.sent(outgoing->to, outgoing->lane, outgoing->bytes);
        measure(*outgoing);
        if (spare_messages_.size() < spare_messages_max) {
            spare_messages_.push_back(std::move(outgoing->message));
        }
        start_waiting(outgoing->to, outgoing->lane);
        outgoing = under_way_.erase(outgoing);
    }
    return moved;
}

// Several sends overlap, so the time counts in which any of them was under way.
void Sends::measure(const Outgoing& sent) {
    if (sent.lane == Lane::bulk) {
        const auto begin =
            std::max(sent.since, std::exchange(last_bulk_sent_, std::chrono::steady_clock::now()));
        rate_.add(sent.bytes, last_bulk_sent_ - begin);
    }
}

void Sends::lose(Rank rank) {
    outbox_.lose(rank);
    for (auto outgoing = under_way_.begin(); outgoing != under_way_.end();) {
        const auto current = outgoing++;
        if (current->to == rank) {
            abandoned_.splice(abandoned_.end(), under_way_, current);
        }
    }
}

}  // namespace copper
