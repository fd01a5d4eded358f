// Replies to the kernel through libfuse.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/guarded.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/reply.hpp"
#include "fuse/request_slots.hpp"

namespace copper {

class KernelReply;

// The slot of the request that this thread hands to libfuse. A reply that is entered meanwhile takes the slot
// over. Otherwise the slot is free at the end, because the request was answered, or needs no answer.
class SlotInHand {
  public:
    explicit SlotInHand(RequestSlots::Lease lease);
    SlotInHand(const SlotInHand&) = delete;
    SlotInHand& operator=(const SlotInHand&) = delete;
    ~SlotInHand();

    static RequestSlots::Lease take_over();

  private:
    RequestSlots::Lease lease_;
};

// The requests of one session that wait for their answer. Thread-safe.
//
// A gate, as in seastar's gate.hh: requests enter. close() answers the waiting ones, and returns when no
// thread is in the middle of answering. Later continuations find the gate closed and touch nothing.
class PendingReplies : public std::enable_shared_from_this<PendingReplies> {
  public:
    ReplyPtr enter(fuse_req_t request);
    void close();

    // The thread that waits for the answer to this request (Asker); nothing if none does.
    std::optional<pid_t> waiter(std::uint64_t request);
    // Answers the request with EINTR, if it still waits.
    void interrupt(std::uint64_t request);

  private:
    friend class KernelReply;
    bool begin();
    void end();
    void leave(KernelReply* reply);
    std::shared_ptr<KernelReply> find(std::uint64_t request);

    struct State {
        std::unordered_multimap<std::uint64_t, KernelReply*> waiting;  // by Asker::request
        std::size_t answering = 0;
        bool closed = false;
    };
    Guarded<State> state_;
    std::condition_variable idle_;
};

}  // namespace copper
