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

#include "base/clock.hpp"
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
        const bool is_alone = look_up_begins(directory);
        const TimeWaited time;
        auto result = call();
        const auto waited = time.elapsed();
        look_up_ended(directory, std::chrono::steady_clock::now());
        if (is_alone) {
            note(Kind::look_up, waited);
        }
        return result;
    }

    // `waited`: as TimeWaited has it.
    void note(Kind kind, std::chrono::nanoseconds waited);
    // Whether no other lookup is under way in the directory.
    bool look_up_begins(std::uint64_t directory);
    void look_up_ended(std::uint64_t directory, TimePoint now);

    // What the next operation will probably wait, if it is of the kind that waits longest.
    std::chrono::microseconds operation_time() const;
    // Names of one directory are looked up one after the other, however many are asked for. So does the
    // kernel for FUSE filesystems without FUSE_PARALLEL_DIROPS, which libfuse before 3.16 does not ask for.
    bool is_serial() const { return is_serial_; }

  private:
    static constexpr std::uint32_t together_min =
        4;                                          // lookups under way: so many tell whether they are serial
    static constexpr std::uint32_t ended_min = 16;  // of them

    // The latest ones.
    struct Times {
        std::array<std::chrono::nanoseconds, latest_max> times{};
        std::size_t noted = 0;  // ever

        void add(std::chrono::nanoseconds time) { times[noted++ % latest_max] = time; }
        std::chrono::nanoseconds usual() const;
    };
    // In one directory; two that share a number seem to be one, in which more is under way.
    struct Lookups {
        std::uint32_t under_way = 0;
        TimePoint together_since;
        std::uint32_t ended = 0;  // since then
    };
    struct State {
        std::array<Times, kinds> waited;
        std::array<Lookups, 64> lookups;  // by directory
    };

    mutable Guarded<State> state_;
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
