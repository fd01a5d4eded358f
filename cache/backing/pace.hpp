// How fast a filesystem answers. Internal to cache/backing/.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/guarded.hpp"
#include "cache/backing/time_waited.hpp"

namespace copper {

// Of one filesystem, from the operations that went to it. Thread-safe.
class Pace {
  public:
    // A client answers operations of some kinds itself: it has leases, opens a directory only when it is
    // read, or got attributes with the names. Which kinds differs from client to client.
    enum class Kind : std::uint8_t { list, look_up, open, read };
    static constexpr std::size_t kinds = 4;
    static constexpr std::size_t latest_max = 16;             // operations of each kind that count
    static constexpr std::size_t read_bytes_max = 64U << 10;  // a read of more takes bandwidth

    // Make an operation and note it.
    template <typename Call>
    auto timed(Kind kind, const Call& call) {
        const TimeWaited time;
        auto result = call();
        note(kind, time.elapsed());
        return result;
    }
    // `directory`: any number for the one in which a name is looked up.
    template <typename Call>
    auto look_up(std::uint64_t directory, const Call& call) {
        auto& under_way = under_way_[directory % under_way_.size()];
        const std::uint32_t others = under_way++;
        const TimeWaited time;
        auto result = call();
        --under_way;
        note_look_up(others, time.elapsed());
        return result;
    }

    // `waited`: as TimeWaited has it.
    void note(Kind kind, std::chrono::nanoseconds waited);
    // `others`: how many lookups in the same directory were under way when this one began.
    void note_look_up(std::uint32_t others, std::chrono::nanoseconds waited);

    // What the next operation will probably wait, if it is of the kind that waits longest.
    std::chrono::microseconds operation_time() const;
    // Names of one directory are looked up one after the other, however many are asked for. So does the
    // kernel for FUSE filesystems without FUSE_PARALLEL_DIROPS, which libfuse before 3.16 does not ask for.
    bool is_serial() const { return is_serial_; }

  private:
    // To tell whether lookups are serial: those with others, and how many others.
    static constexpr std::size_t shared_min = 8;
    static constexpr std::uint32_t others_min = 4;

    // The latest ones.
    struct Times {
        std::array<std::chrono::nanoseconds, latest_max> times{};
        std::size_t noted = 0;  // ever

        void add(std::chrono::nanoseconds time) { times[noted++ % latest_max] = time; }
        std::chrono::nanoseconds usual() const;
    };
    struct Latest {
        std::array<Times, kinds> waited;
        Times shared;  // of lookups with others: what they waited, divided by their number
    };

    mutable Guarded<Latest> latest_;
    // Lookups, by the directory. Two that share a number seem to be one, where more is under way.
    std::array<std::atomic<std::uint32_t>, 256> under_way_{};
    std::atomic<bool> is_serial_ = false;
};

// Thread-safe. A filesystem is named by the directory where it begins.
class Paces {
  public:
    // Valid as long as this is.
    Pace& of(const std::string& filesystem) { return (*paces_.lock())[filesystem]; }
    void for_each(const std::function<void(const std::string& filesystem, const Pace&)>& f) const {
        for (const auto& [filesystem, pace] : *paces_.lock()) {
            f(filesystem, pace);
        }
    }

  private:
    mutable Guarded<std::map<std::string, Pace>> paces_;  // as many as there are mounts
};

}  // namespace copper
