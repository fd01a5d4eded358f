// The secret that the daemons of one job share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace copper {

// A value. Never log it, and never put it on a command line. Each use gets its own key, derived from the
// secret (crypto_kdf of libsodium, which is BLAKE2b): one derived key reveals nothing about another one.
class JobKey {
  public:
    static constexpr std::size_t bytes = 32;

    static JobKey random();
    // Nothing if text() cannot have made this text.
    static std::optional<JobKey> from_text(std::string_view text);
    // Hexadecimal digits.
    std::string text() const;

    enum class Use : std::uint64_t { messages = 1, checksums = 2 };
    // Fills `derived`. REQUIRES: a multiple of 16 bytes.
    void derive(Use use, std::span<std::byte> derived) const;

  private:
    explicit JobKey(const std::array<unsigned char, bytes>& secret) : secret_(secret) {}

    std::array<unsigned char, bytes> secret_;
};

// From now on, checksum_of() in this process depends on the key. Without a key, it does not. REQUIRES: no
// other thread runs yet, and no checksum made earlier is still in use.
//
// This is the only global state that changes what bytes mean. It is constant once the daemon has threads,
// because all code that reads, codes, sends or checks bytes must compute the same checksum.
void key_checksums(const std::optional<JobKey>& key);

}  // namespace copper
