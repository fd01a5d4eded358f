// The messages that arrive at this node, without their bodies.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.hpp"
#include "fabric/receive_window.hpp"

namespace copper {

// Matching is in order, completion is not: a node that dies half-way through a message holds the receive that
// its message matched for ever, and nothing tells which one that is. So no receive waits for another.
// Messages travel in a communicator of their own, with the end of their number as the tag by which
// MessageOrder puts them into order.
//
// The fabric's thread makes all calls.
class MessageReceives {
  public:
    // The bytes are gone when it returns.
    using Take = std::function<void(Rank from, std::uint64_t tag, std::span<const std::byte> message)>;

    // `counters` must outlive this.
    MessageReceives(MPI_Comm messages, std::size_t posted, FabricCounters& counters)
        : messages_(messages), counters_(counters), window_({.posted = posted, .free = posted / 2}) {
        post_missing();
    }

    // Those that have arrived. True if there were any.
    bool take(const Take& take);

    // A lost node may hold as many receives for ever.
    void lose_link(std::size_t messages_under_way_max);

    // Gives the receives back to MPI.
    void cancel();

  private:
    void post_missing();
    void post(std::size_t receive);
    void acknowledge_losses();
    bool take_oldest(const Take& take);
    void take_received(std::size_t receive, const MPI_Status& status, int error, const Take& take);

    const MPI_Comm messages_;
    FabricCounters& counters_;
    ReceiveWindow window_;
    // What belongs to one receive has the same index.
    std::vector<std::unique_ptr<std::byte[]>> buffers_;
    std::vector<MPI_Request> receives_;
    std::vector<std::size_t> spare_receives_;  // not posted, and without a buffer
    std::vector<int> arrived_;                 // filled by MPI_Testsome, like statuses_
    std::vector<MPI_Status> statuses_;
};

}  // namespace copper
