// Takes an object out of a cache.
#pragma once

#include <chrono>
#include <system_error>

#include "cache/cache.hpp"

namespace copper::test {

// As if the object had been evicted. REQUIRES: nobody waits for it.
inline void drop(Cache& cache, const ObjectKey& key) {
    const std::error_code expired(EAGAIN, std::generic_category());
    cache.deliver(key, make_object(expired, std::chrono::milliseconds(0)));
}

}  // namespace copper::test
