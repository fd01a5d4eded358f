#include "base/checksum.hpp"

#include <new>

// Calls the library instead of inlining it: the library picks the widest vectors of the processor, which is
// three times as fast as code that runs on every processor.
#ifdef COPPER_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "base/job_key.hpp"

namespace copper {
namespace {

constexpr std::size_t secret_bytes = 192;  // the size of the library's own secret

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

RunningChecksum::RunningChecksum() : state_(XXH3_createState()) {
    if (state_ == nullptr) {
        throw std::bad_alloc();
    }
    if (secret.is_set) {
        XXH3_64bits_reset_withSecret(state_.get(), secret.value.data(), secret.value.size());
    } else {
        XXH3_64bits_reset(state_.get());
    }
}

void RunningChecksum::add(std::span<const std::byte> bytes) {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t RunningChecksum::value() const {
    return XXH3_64bits_digest(state_.get());
}

void RunningChecksum::Deleter::operator()(XXH3_state_s* state) const {
    XXH3_freeState(state);
}

}  // namespace copper
