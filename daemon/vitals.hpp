// What a daemon lets its supervisor know without a message, in memory that both share: what its progress loop
// does, and how the process ended. It can still be read when the daemon hangs or has crashed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace copper {

enum class Activity : std::uint8_t {
    starting,
    waiting,
    own_requests,  // what other threads of the daemon asked for
    fabric,        // in MPI
    message,       // of another node
    what_was_due,
    starting_reads,
    ending,
};
const char* to_string(Activity activity);

struct Vitals {
    std::atomic<Activity> activity = Activity::starting;
    std::atomic<int> signal = 0;        // that ends the process
    std::atomic<int> exit_status = -1;  // what it gave to exit(3)

    // Shared with the processes that are forked from this one later. Nothing if there is no memory; it lasts
    // as long as the process.
    static Vitals* make();
    // From now on this process writes down there how it ends. What cannot be written down: SIGKILL, and
    // _exit(2). MPI's own handlers of signals run as well, if they are there already.
    void note_end_of_this_process();
    // To be called before the next process is forked.
    void reset();
};

// "crashed: signal 11 (Segmentation fault)", "ended by itself: exit status 1". From a process's last words.
std::string describe_end(const Vitals& vitals);
// The same, from what waitpid(2) says of it.
std::string describe_end(int wait_status);

}  // namespace copper
