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
#include <vector>

#include "base/guarded.hpp"

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

    // `waited`: as TimeWaited has it.
    void note(Kind kind, std::chrono::nanoseconds waited);
    // What the next operation will probably wait, if it is of the kind that waits longest.
    std::chrono::microseconds operation_time() const;

    // Lookups in one directory: how long each took that was made alone, and when each of those ended, from
    // their beginning, that five threads made at once. False: these waited for each other. REQUIRES:
    // both have some
    bool note_lookups(std::vector<std::chrono::nanoseconds> alone,
                      std::vector<std::chrono::nanoseconds> together);
    enum class Lookups : std::uint8_t { unknown, at_once, serial };
    // `serial`: those in one directory are made one after the other, however many are asked for. So does the
    // kernel for FUSE filesystems without FUSE_PARALLEL_DIROPS, which libfuse before 3.16 does not ask for.
    Lookups lookups() const;

  private:
    static constexpr int told_serial_min = 2;

    struct Latest {
        std::array<std::chrono::nanoseconds, latest_max> waited{};
        std::size_t noted = 0;  // ever
    };
    static std::chrono::nanoseconds expected(const Latest& latest);

    mutable Guarded<std::array<Latest, kinds>> latest_;
    std::atomic<bool> is_at_once_ = false;
    std::atomic<int> told_serial_ = 0;
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
