#include "base/job_key.hpp"

#include <sodium.h>

#include <algorithm>

namespace copper {
namespace {

constexpr const char context[] = "copperjk";  // crypto_kdf_CONTEXTBYTES: eight
constexpr std::uint64_t parts_of_use_max = 1U << 16;
static_assert(JobKey::bytes == crypto_kdf_KEYBYTES && sizeof(context) - 1 == crypto_kdf_CONTEXTBYTES);

}  // namespace

JobKey JobKey::random() {
    std::array<unsigned char, bytes> secret;
    randombytes_buf(secret.data(), secret.size());  // getrandom(2)
    return JobKey(secret);
}

std::optional<JobKey> JobKey::from_text(std::string_view text) {
    std::array<unsigned char, bytes> secret;
    std::size_t size = 0;
    const char* end = nullptr;
    if (sodium_hex2bin(secret.data(), secret.size(), text.data(), text.size(), nullptr, &size, &end) != 0 ||
        size != secret.size() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return JobKey(secret);
}

std::string JobKey::text() const {
    std::string text(2 * bytes + 1, '\0');  // sodium_bin2hex also writes a NUL
    sodium_bin2hex(text.data(), text.size(), secret_.data(), secret_.size());
    text.pop_back();
    return text;
}

void JobKey::derive(Use use, std::span<std::byte> derived) const {
    for (std::uint64_t part = 0; !derived.empty(); ++part) {
        const auto size = std::min<std::size_t>(derived.size(), crypto_kdf_BYTES_MAX);
        crypto_kdf_derive_from_key(reinterpret_cast<unsigned char*>(derived.data()), size,
                                   static_cast<std::uint64_t>(use) * parts_of_use_max + part, context,
                                   secret_.data());
        derived = derived.subspan(size);
    }
}

}  // namespace copper
