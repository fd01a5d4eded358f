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
#include "fuse/lasting_memory.hpp"
#include "fuse/request_slots.hpp"

namespace copper {

// Requests are taken by threads of our own rather than by fuse_session_loop_mt: that one ends only when the
// kernel ends the connection, which it does not as long as a detached mount is in use. The threads wait in
// read(2), which wakes one of them for one request at half the latency of poll and read; to end, they are
// cancelled there, as fuse_session_loop_mt does it.
class Serving {
  public:
    // All must outlive it.
    Serving(Connection& connection, LastingMemory& memory, FuseCounters& counters);

    // Goes on with what another process has left in the memory, and with its `device`. Before run().
    std::optional<std::string> resume(const UniqueFd& device);

    // Returns after end(), or when the mount has ended. begun() runs when the connection has begun, before
    // any other request than the first is served.
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
    RequestSlots slots_;
    std::vector<RequestSlots::Lease> unanswered_;  // by the process before, until run()
    Guarded<bool> ended_{false};
    std::condition_variable end_;
};

}  // namespace copper
