// How many receives are posted for messages that come unannounced. Without MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace copper {

// MPI gives each message to the receive that was posted first of those that have none (MPI 4.0, 3.5). So once
// a receive is complete, all that were posted before it have a message: one that is still on its way, or one
// of which the rest never comes, because its sender died half-way. A few receives must have none at any time,
// or this node would hear nobody.
//
// What a dead node holds shows only later. So for each lost link so many receives are added as it could hold
// at most; once a receive is complete that was posted after the loss, it is known how many it really holds,
// and the others are not posted again.
class ReceiveWindow {
  public:
    struct Options {
        std::size_t posted = 32;
        std::size_t free = 16;  // that have no message; for them others are posted besides
        std::size_t most = 512;
    };
    explicit ReceiveWindow(Options options) : options_(options) {}

    // How many more are to be posted now.
    std::size_t missing() const;
    // Of all that are posted, the one that was posted first. REQUIRES: there is one.
    std::size_t first() const { return posted_.front().slot; }
    std::size_t size() const { return posted_.size(); }

    // `slot` is the caller's name for a receive.
    void post(std::size_t slot);
    void complete(std::size_t slot);
    void lose_link(std::size_t messages_under_way_max);

  private:
    struct Posted {
        std::size_t slot = 0;
        std::uint64_t number = 0;
    };

    const Options options_;
    std::deque<Posted> posted_;  // in this order
    std::uint64_t next_number_ = 0;
    std::size_t with_message_ = 0;  // so many in front have a message for sure
    std::size_t perhaps_held_ = 0;  // so many behind them may have one of a dead node
    std::uint64_t known_from_ = 0;  // once this number is complete, perhaps_held_ are known
};

}  // namespace copper
