// Checksums that show whether the bytes of an object are right: xxh3, keyed with the job's secret if there is
// one (job_key.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace copper {

std::uint64_t checksum_of(std::span<const std::byte> bytes);

// The same checksum for bytes that arrive in parts. Not thread-safe.
class RunningChecksum {
  public:
    RunningChecksum();
    void add(std::span<const std::byte> bytes);
    std::uint64_t value() const;

  private:
    struct Deleter {
        void operator()(XXH3_state_s* state) const;
    };
    std::unique_ptr<XXH3_state_s, Deleter> state_;
};

}  // namespace copper
