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

// A value. Never to be logged, nor to stand in a command line. What the bytes are used for is derived from
// them (crypto_kdf of libsodium, that is BLAKE2b), so that one use tells nothing of another one's key.
class JobKey {
  public:
    static constexpr std::size_t bytes = 32;

    static JobKey random();
    // Nothing unless it is what text() makes.
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

// Makes checksum_of() depend on the key, in this process; nothing: as it is without. REQUIRES: no other
// thread runs yet, and nothing has been checksummed that is still there.
//
// The one global state of Copper, and constant once the daemon has threads: whoever reads, codes, sends or
// checks bytes must mean the same checksum.
void key_checksums(const std::optional<JobKey>& key);

}  // namespace copper
