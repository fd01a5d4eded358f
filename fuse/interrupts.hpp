// Lets programs be killed while they wait for an answer.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "base/guarded.hpp"
#include "fuse/kernel_reply.hpp"

namespace copper {

// A program whose request was taken sleeps until the answer comes; not even SIGKILL ends that
// (fs/fuse/dev.c, request_wait_answer). All that a signal does is a request INTERRUPT, one for each request
// that waits (Documentation/filesystems/fuse.rst, "Interrupting filesystem operations"). It comes for signals
// that the program handles, too, and a program does not expect EINTR from a page of a file that it has mapped
// (SIGBUS), nor from a regular file. So the answer is EINTR only when the signal will end the program anyway.
// As the kernel does not tell of a second signal, a thread looks again while an interrupted request waits.
//
// Thread-safe. It is a thread of its own that answers: libfuse holds a lock while it handles INTERRUPT.
class Interrupts {
  public:
    // `pending` must outlive this object.
    explicit Interrupts(PendingReplies& pending);
    ~Interrupts();

    // The kernel has interrupted this request (fuse_in_header::unique).
    void note(std::uint64_t request);

  private:
    struct Interrupted {
        std::uint64_t request = 0;
        int looks = 0;
    };
    struct State {
        std::vector<Interrupted> waiting;
        bool ended = false;
    };
    void run();
    bool wait_for_any();
    bool is_over(Interrupted& interrupted);

    PendingReplies& pending_;
    Guarded<State> state_;
    std::condition_variable changed_;
    std::thread thread_;
};

// Whether a pending signal will end the thread, by its /proc/<tid>/status (proc(5)).
bool will_end(std::string_view status);

}  // namespace copper
