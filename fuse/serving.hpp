// The threads that take requests from the kernel.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/guarded.hpp"
#include "fuse/connection.hpp"
#include "fuse/counters.hpp"
#include "fuse/interrupts.hpp"
#include "fuse/lasting_memory.hpp"
#include "fuse/request_slots.hpp"

namespace copper {

// These threads replace fuse_session_loop_mt, which ends only when the kernel ends the connection. The kernel
// does not do that while a detached mount is in use. The threads wait in read(2), which wakes one thread per
// request at half the latency of poll and read. To end, they are cancelled there, as in fuse_session_loop_mt.
class Serving {
  public:
    // All of these must outlive this object.
    Serving(Connection& connection, LastingMemory& memory, FuseCounters& counters, Interrupts& interrupts);

    // Goes on with the memory and the `device` of another process. Call it before run().
    std::optional<std::string> resume(const UniqueFd& device);

    // Returns after end(), or when the mount has ended. Calls begun() when the connection has begun, before
    // it serves any request but the first.
    void run(std::size_t threads, const std::function<void()>& begun);

    // From any thread.
    void end();

  private:
    bool take_request(std::span<std::byte> rest);
    void process(RequestSlots::Lease slot, std::span<std::byte> request);
    void process_unanswered(RequestSlots::Lease slot);
    void take_requests();
    void wait_for_end();

    Connection& connection_;
    LastingMemory& memory_;
    FuseCounters& counters_;
    Interrupts& interrupts_;
    RequestSlots slots_;
    std::vector<RequestSlots::Lease> unanswered_;  // left by the previous process, until run()
    Guarded<bool> ended_{false};
    std::condition_variable end_;
};

}  // namespace copper
