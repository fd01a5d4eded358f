// Calls functions at their times, in a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace copper::bench {

class Timetable {
  public:
    using Clock = std::chrono::steady_clock;

    Timetable();
    Timetable(const Timetable&) = delete;
    Timetable& operator=(const Timetable&) = delete;
    // Calls at once whatever still waits.
    ~Timetable();

    // Any thread. Those of one time are called in the order in which they came.
    void call_at(Clock::time_point time, std::function<void()> call);

  private:
    struct Entry {
        Clock::time_point time;
        std::uint64_t number;
        std::function<void()> call;
    };
    static bool is_later(const Entry& one, const Entry& other);

    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Entry> heap_;   // guarded by mutex_
    std::uint64_t number_ = 0;  // guarded by mutex_
    bool ending_ = false;       // guarded by mutex_
    std::thread thread_;        // the last member: it uses the others
};

}  // namespace copper::bench
