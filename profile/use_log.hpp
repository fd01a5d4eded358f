// What programs of this node use for the first time, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/clock.hpp"
#include "base/guarded.hpp"
#include "cache/object.hpp"
#include "profile/profile.hpp"

namespace copper {

// Thread-safe. Bounded: what comes after the first `uses_max` objects is not noted.
class UseLog {
  public:
    static constexpr std::size_t uses_max = 1U << 16;

    explicit UseLog(Clock clock = std::chrono::steady_clock::now)
        : clock_(std::move(clock)), began_(clock_()) {}

    // A program asks for the object. What each node reads for itself is not noted.
    void note(const ObjectKey& key);

    std::size_t size() const { return log_.lock()->uses.size(); }
    // What was used from the `first`th use on, as much as takes about `bytes_max` in a file.
    std::vector<Profile::Use> since(std::size_t first, std::size_t bytes_max = SIZE_MAX) const;
    // The hashes of the keys of all these.
    std::vector<std::uint64_t> hashes_since(std::size_t first) const;

  private:
    struct Log {
        std::unordered_set<std::uint64_t> known;  // hashes of keys
        std::vector<Profile::Use> uses;
        std::vector<std::uint64_t> hashes;  // of their keys
    };
    const Clock clock_;
    const TimePoint began_;
    mutable Guarded<Log> log_;
};

}  // namespace copper
