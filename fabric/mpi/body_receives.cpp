#include "fabric/mpi/body_receives.hpp"

#include "fabric/mpi/pieces.hpp"

namespace copper {

bool BodyReceives::Body::is_complete() const {
    return is_posted() && taken == pieces_of(frame.body.size);
}

void BodyReceives::announce(Rank from, Blob header, std::size_t bytes) {
    Body body;
    body.from = from;
    body.frame = {std::move(header), {}, Lane::bulk};
    body.frame.body.size = bytes;
    bodies_.push_back(std::move(body));
}

void BodyReceives::post(Body& body, TimePoint now) {
    body.memory = options_.memory->allocate(body.frame.body.size);
    body.frame.body.data = body.memory;
    body.pieces.reserve(pieces_of(body.frame.body.size));
    body.since = now;
    ++posted_;
}

// Posts its pieces, and takes those that have arrived. False on an error.
bool BodyReceives::take_pieces(Body& body) {
    const std::span bytes(body.memory.get(), body.frame.body.size);
    for (std::size_t i = body.taken; i < pieces_of(bytes.size()); ++i) {
        const auto piece = piece_of(bytes, i);
        int result = MPI_SUCCESS;
        if (i == body.pieces.size()) {
            result = MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE,
                               static_cast<int>(body.from.value), body_tag, MPI_COMM_WORLD,
                               &body.pieces.emplace_back(MPI_REQUEST_NULL));
        }
        if (result == MPI_SUCCESS && i == body.taken) {
            int done = 0;
            int size = 0;
            MPI_Status status;
            result = MPI_Test(&body.pieces[i], &done, &status);
            if (result == MPI_SUCCESS && done != 0) {
                MPI_Get_count(&status, MPI_BYTE, &size);
                if (static_cast<std::size_t>(size) != piece.size()) {
                    return false;
                }
                body.checksum.add(piece);
                ++body.taken;
            }
        }
        if (result != MPI_SUCCESS) {
            return false;
        }
    }
    return true;
}

bool BodyReceives::take(const Fabric::Receive& receive, std::set<Rank>& lost) {
    bool moved = false;
    std::set<Rank> waiting;  // nodes with an earlier incomplete body: their bodies stay in order
    const auto now = bodies_.empty() ? TimePoint() : std::chrono::steady_clock::now();
    for (auto body = bodies_.begin(); body != bodies_.end();) {
        if (!body->is_posted() && posted_ < options_.in_flight_max) {
            post(*body, now);
        }
        if (body->is_posted() && !body->is_complete()) {
            const std::size_t taken = body->taken;
            const bool intact = take_pieces(*body);
            moved = moved || body->taken != taken;
            const bool late = !body->is_complete() && now - body->since > options_.deadline;
            if (!intact || late) {
                lost.insert(body->from);
            }
        }
        if (!body->is_complete() || waiting.contains(body->from)) {
            waiting.insert(body->from);
            ++body;
            continue;
        }
        moved = true;
        --posted_;
        counters_.bytes_received += body->frame.body.size;
        Body arrived = std::move(*body);
        body = bodies_.erase(body);
        arrived.frame.body.checksum = arrived.checksum.value();
        receive(arrived.from, std::move(arrived.frame));
    }
    return moved;
}

void BodyReceives::lose(Rank rank) {
    for (auto body = bodies_.begin(); body != bodies_.end();) {
        const auto current = body++;
        if (current->from != rank) {
            continue;
        }
        posted_ -= current->is_posted() ? 1 : 0;
        for (MPI_Request& piece : current->pieces) {
            if (piece != MPI_REQUEST_NULL) {
                MPI_Cancel(&piece);
            }
        }
        abandoned_.splice(abandoned_.end(), bodies_, current);
    }
}

}  // namespace copper
