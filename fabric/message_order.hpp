// Puts the messages of each node into the order in which they were sent. Without MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "fabric/envelope.hpp"

namespace copper {

// The MPI tag of a message is its number on the link modulo this.
inline constexpr std::uint64_t message_tags = 32768;  // MPI allows no fewer

// MPI matches messages in order, but they can complete in any order. A message that overtook an earlier one
// waits here for it.
class MessageOrder {
  public:
    using Message = std::span<const std::byte>;
    using Take = std::function<void(Message)>;
    // A sender has only a few messages in flight (MpiFabric::Options::bulk_sends_in_flight_per_peer_max).
    static constexpr std::uint64_t early_messages_max = 256;

    // `sealer` must outlive this.
    MessageOrder(Rank self, std::uint32_t nodes, const Sealer& sealer)
        : self_(self), sealer_(sealer), peers_(nodes) {}

    // Calls `take` for this message, if it is the next one of its sender, and for all messages that have
    // waited for it. False if the message is refused. A refused message has no effect, because the genuine
    // one may still arrive.
    [[nodiscard]] bool add(Rank from, std::uint64_t tag, Message message, TimePoint now, const Take& take);

    // The senders of messages that have waited since before then. The earlier message that they wait for will
    // not come: its sender died while sending it.
    std::vector<Rank> waiting_since(TimePoint then) const;

    void forget(Rank rank);

  private:
    struct Early {
        std::vector<std::byte> message;
        TimePoint since;
    };
    struct Peer {
        std::uint64_t next = 0;
        std::map<std::uint64_t, Early> early;
    };

    const Rank self_;
    const Sealer& sealer_;
    std::vector<Peer> peers_;
    std::set<Rank> with_early_;
};

}  // namespace copper
