// The library's function, not an inlined one: it picks the widest vectors that the processor has, which makes
// it three times as fast as what every processor can run.
#ifdef COPPER_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "cache/job_key.hpp"
#include "cache/object.hpp"

namespace copper {
namespace {

constexpr std::size_t secret_bytes = 192;  // as many as the secret that the library brings

struct Secret {
    bool is_set = false;
    std::array<std::byte, secret_bytes> value = {};
};
Secret secret;

}  // namespace

void key_checksums(const std::optional<JobKey>& key) {
    secret.is_set = key.has_value();
    if (key) {
        key->derive(JobKey::Use::checksums, secret.value);
    }
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
    return secret.is_set
               ? XXH3_64bits_withSecret(bytes.data(), bytes.size(), secret.value.data(), secret.value.size())
               : XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace copper
