#include "daemon/health.hpp"

#include <spdlog/spdlog.h>

#include <utility>

namespace copper {
namespace {

constexpr std::chrono::milliseconds between_looks{50};
constexpr std::chrono::seconds degraded_for{60};  // after a direct read

}  // namespace

void Health::look(std::uint64_t direct_reads, std::uint64_t strangers, TimePoint now) {
    next_look_ = now + between_looks;
    if (direct_reads != std::exchange(direct_reads_seen_, direct_reads)) {
        if (!std::exchange(last_direct_read_, now)) {
            spdlog::warn("degraded: objects arrive too late, so this node reads the filesystem itself");
        }
    } else if (last_direct_read_ && now - *last_direct_read_ >= degraded_for) {
        last_direct_read_.reset();
        spdlog::info("no longer degraded: no direct read for a minute");
    }
    if (strangers != 0 && !std::exchange(warned_of_strangers_, true)) {
        spdlog::warn(
            "refused a message without this job's key (or this node has no key); fabric.frames_refused "
            "counts such messages");
    }
}

}  // namespace copper
