// Shares memory between daemon and supervisor: it holds what the daemon's progress loop is doing, and how the
// process ended. The supervisor can read it when the daemon hangs or has crashed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace copper {

enum class Activity : std::uint8_t {
    starting,
    waiting,
    own_requests,  // handling requests of other threads of the daemon
    fabric,        // in MPI
    message,       // handling a message of another node
    what_was_due,
    starting_reads,
    ending,
};
const char* to_string(Activity activity);

struct Vitals {
    std::atomic<Activity> activity = Activity::starting;
    std::atomic<int> signal = 0;        // that ended the process
    std::atomic<int> exit_status = -1;  // passed to exit(3)

    // Processes forked from this one later share this memory. Nothing if there is no memory. It lasts as long
    // as the process.
    static Vitals* make();
    // From now on this process records its own end there, except by SIGKILL and _exit(2). MPI's signal
    // handlers run as well if they are installed already.
    void note_end_of_this_process();
    // Call this before forking the next process.
    void reset();
};

// "crashed: signal 11 (Segmentation fault)", "exited with status 1". From the record of the
// process.
std::string describe_end(const Vitals& vitals);
// The same, from a status of waitpid(2).
std::string describe_end(int wait_status);

}  // namespace copper
