#include "profile/use_log.hpp"

#include <algorithm>

namespace copper {

void UseLog::note(const ObjectKey& key) {
    if (key.kind > last_shared_object_kind) {
        return;
    }
    ObjectKey any_version = key;
    any_version.version = 0;
    const std::uint64_t hash = hash_of(any_version);
    const TimePoint now = clock_();
    auto log = log_.lock();
    if (log->uses.size() < uses_max && log->known.insert(hash).second) {
        log->hashes.push_back(hash);
        log->uses.push_back(
            {.key = std::move(any_version),
             .first_used = std::chrono::duration_cast<std::chrono::milliseconds>(now - began_)});
    }
}

std::vector<Profile::Use> UseLog::since(std::size_t first, std::size_t bytes_max) const {
    std::vector<Profile::Use> uses;
    auto log = log_.lock();
    std::size_t bytes = 0;
    for (std::size_t i = first; i < log->uses.size() && bytes < bytes_max; ++i) {
        uses.push_back(log->uses[i]);
        bytes += bytes_of(log->uses[i]);
    }
    return uses;
}

std::vector<std::uint64_t> UseLog::hashes_since(std::size_t first) const {
    auto log = log_.lock();
    const std::vector<std::uint64_t>& all = log->hashes;
    return {all.begin() + static_cast<std::ptrdiff_t>(std::min(first, all.size())), all.end()};
}

}  // namespace copper
