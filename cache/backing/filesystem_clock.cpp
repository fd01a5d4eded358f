#include "cache/backing/filesystem_clock.hpp"

#include <algorithm>

namespace copper {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

nanoseconds time_of(const Timestamp& stamp) {
    return std::chrono::seconds(stamp.seconds) + nanoseconds(stamp.nanoseconds);
}

// Longer than a tick of the clock that made this stamp, and longer than the time from stamping a change to
// the last byte of it. A stamp of a whole second means that the clock ticks once a second. (A finer clock
// makes such a stamp once in millions.)
milliseconds settling_time(const Timestamp& stamp, milliseconds copying) {
    return stamp.nanoseconds == 0 ? std::chrono::seconds(1) + copying : copying;
}

// A server, or the lock that a client holds, lets nobody read in the middle of a write. A local filesystem
// does (ext4_buffered_write_iter), and a writer on a busy node may have to wait for a core in the middle.
constexpr milliseconds copying_here{200};
constexpr milliseconds copying_elsewhere{20};

bool is_of_now(nanoseconds stamp, nanoseconds wall) {
    return std::chrono::abs(wall - stamp) <= FilesystemClocks::skew_max;
}

}  // namespace

FilesystemClocks::Now FilesystemClocks::now() {
    return {.wall = std::chrono::system_clock::now().time_since_epoch(),
            .monotonic = std::chrono::steady_clock::now().time_since_epoch()};
}

nanoseconds FilesystemClocks::least(const Known& known, const Now& now) {
    // NTP may slow a clock down by a thousandth.
    return known.newest + (now.monotonic - known.seen_at) / 1000 * 999;
}

FilesystemClocks::Known FilesystemClocks::noted(std::uint64_t filesystem, nanoseconds stamp, const Now& now) {
    auto table = table_.lock();
    if (table->size() >= filesystems_max && table->count(filesystem) == 0) {
        table->clear();
    }
    const auto [known, is_new] = table->try_emplace(filesystem);
    if (is_new || stamp > least(known->second, now)) {
        known->second.newest = stamp;
        known->second.seen_at = now.monotonic;
    }
    return known->second;
}

void FilesystemClocks::note(std::uint64_t filesystem, const Timestamp& changed) {
    const Now now = clock_();
    if (is_of_now(time_of(changed), now.wall)) {
        noted(filesystem, time_of(changed), now);
    }
}

bool FilesystemClocks::may_be_stale(std::uint64_t filesystem, const Timestamp& changed) {
    if (!is_of_now(time_of(changed), clock_().wall)) {
        return false;
    }
    auto table = table_.lock();
    const auto known = table->find(filesystem);
    return known == table->end() || known->second.kind != Kind::local;
}

milliseconds FilesystemClocks::time_to_settle(std::uint64_t filesystem, const Timestamp& changed,
                                              const std::function<bool()>& is_local) {
    const Now now = clock_();
    const nanoseconds stamp = time_of(changed);
    if (!is_of_now(stamp, now.wall)) {
        return milliseconds(0);
    }
    Known known = noted(filesystem, stamp, now);
    if (known.kind == Kind::unknown) {
        known.kind = is_local() ? Kind::local : Kind::remote;
        (*table_.lock())[filesystem].kind = known.kind;
    }
    nanoseconds age = least(known, now) - stamp;
    const bool is_here = known.kind == Kind::local;
    if (is_here) {
        age = std::max(age, now.wall - stamp);
    }
    const nanoseconds left = settling_time(changed, is_here ? copying_here : copying_elsewhere) - age;
    constexpr milliseconds rounding{2};
    return left.count() <= 0 ? milliseconds(0) : std::chrono::ceil<milliseconds>(left) + rounding;
}

}  // namespace copper
