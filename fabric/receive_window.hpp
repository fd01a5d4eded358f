// Decides how many receives to post for unannounced messages. Without MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace copper {

// MPI gives each message to the oldest posted receive without one (MPI 4.0, 3.5). So once a receive is
// complete, all older ones have a message: one that is still arriving, or one that never completes because
// its sender died half-way. A few receives must always be free, or this node would hear nobody.
//
// We learn later how many receives a dead node still holds. Until then, we assume the maximum, and post as
// many more. The number is known when a receive completes that was posted after the loss; the surplus is not
// posted again.
class ReceiveWindow {
  public:
    struct Options {
        std::size_t posted = 32;
        std::size_t free = 16;   // receives without a message; more are posted to keep this number
        std::size_t most = 512;  // with those of which a dead node never sent the rest
    };
    explicit ReceiveWindow(Options options) : options_(options) {}

    // How many more to post now.
    std::size_t missing() const;
    // The oldest posted one. REQUIRES: there is one.
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
    std::size_t with_message_ = 0;  // this many in front certainly have a message
    std::size_t perhaps_held_ = 0;  // this many behind them may have one of a dead node
    std::uint64_t known_from_ = 0;  // once this number is complete, perhaps_held_ is known
};

}  // namespace copper
