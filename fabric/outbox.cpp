#include "fabric/outbox.hpp"

#include <utility>

namespace copper {
namespace {

// What a frame adds to a message.
std::size_t bytes_in_message(const Frame& frame) {
    return frame_overhead_bytes + frame.header.size + (frame.lane == Lane::eager ? frame.body.size : 0);
}

bool is_too_large(const Frame& frame) {
    return frame.header.size > header_bytes_max || frame.body.size > body_bytes_max ||
           (frame.lane == Lane::eager && frame.body.size > eager_body_bytes_max);
}

}  // namespace

std::size_t bytes_of(const Frame& frame) {
    return frame.header.size + frame.body.size;
}

bool Outbox::push(Rank to, const Frame& frame) {
    Peer& peer = peers_[to.value];
    Queue& lane = queue(to, frame.lane);
    if (peer.lost || is_too_large(frame) || lane.waiting.size() >= options_.frames_max ||
        peer.backlog_bytes + frame.body.size > options_.bytes_max) {
        return false;
    }
    peer.backlog_bytes += bytes_of(frame);
    backlog_bytes_ += bytes_of(frame);
    lane.waiting.push_back(frame);
    return true;
}

std::vector<Frame> Outbox::next(Rank to, Lane lane) {
    Queue& queue = this->queue(to, lane);
    const std::size_t in_flight_max = lane == Lane::eager ? 1 : options_.bulk_in_flight_max;
    std::vector<Frame> frames;
    if (queue.waiting.empty() || queue.in_flight >= in_flight_max) {
        return frames;
    }
    std::size_t bytes = envelope_bytes;
    do {
        bytes += bytes_in_message(queue.waiting.front());
        frames.push_back(std::move(queue.waiting.front()));
        queue.waiting.pop_front();
    } while (lane == Lane::eager && !queue.waiting.empty() &&
             bytes + bytes_in_message(queue.waiting.front()) <= message_bytes_max);
    ++queue.in_flight;
    return frames;
}

void Outbox::sent(Rank to, Lane lane, std::size_t bytes) {
    --queue(to, lane).in_flight;
    peers_[to.value].backlog_bytes -= bytes;
    backlog_bytes_ -= bytes;
}

void Outbox::lose(Rank rank) {
    Peer& peer = peers_[rank.value];
    peer.lost = true;
    backlog_bytes_ -= std::exchange(peer.backlog_bytes, 0);
    for (Queue& queue : peer.queues) {
        queue.waiting.clear();
    }
}

}  // namespace copper
