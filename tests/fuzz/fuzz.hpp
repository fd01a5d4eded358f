// What the fuzzers here share. Each of them is one function, LLVMFuzzerTestOneInput, which takes any bytes;
// it is linked with libFuzzer, which searches (preset "fuzz"), or with replay.cpp, which feeds it the
// committed corpus.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace copper::fuzz {

using Bytes = std::span<const std::byte>;

// Ends the process if something does not hold: that is what the fuzzer looks for.
inline void must(bool holds, const char* what) {
    if (!holds) {
        std::fprintf(stderr, "must hold: %s\n", what);
        std::abort();
    }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// Takes an input apart. What is missing at its end reads as zero, or as no bytes.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(std::as_bytes(std::span(data, size))) {}

    template <typename Number>
    Number take_number() {
        Number number = 0;
        const Bytes bytes = take(sizeof number);
        std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(&number, 1)).begin());
        return number;
    }
    Bytes take(std::size_t size) {
        const Bytes bytes = rest_.first(std::min(size, rest_.size()));
        rest_ = rest_.subspan(bytes.size());
        return bytes;
    }
    Bytes rest() const { return rest_; }

  private:
    Bytes rest_;
};

}  // namespace copper::fuzz
