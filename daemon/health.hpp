// What a node notices about itself, and says in its log.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace copper {

// Not thread-safe.
class Health {
  public:
    // A look costs more than a turn of the progress loop should.
    bool is_due(TimePoint now) const { return now >= next_look_; }
    // `direct_reads`, `strangers`: direct reads, and refused messages of strangers, so far.
    void look(std::uint64_t direct_reads, std::uint64_t strangers, TimePoint now);

    // There was a direct read within the last minute.
    bool is_degraded() const { return last_direct_read_.has_value(); }

  private:
    TimePoint next_look_;
    std::uint64_t direct_reads_seen_ = 0;
    std::optional<TimePoint> last_direct_read_;
    bool warned_of_strangers_ = false;  // once, or they could fill the log
};

}  // namespace copper
