// Decides which extents to compress (codec.hpp) before they are sent.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/guarded.hpp"
#include "base/rate.hpp"
#include "cache/extent_memory.hpp"
#include "cache/object.hpp"

namespace copper {

enum class Compression {
    // If the link saves more time than coding and decoding take: on Ethernet, not on an idle HPC network.
    automatic,
    off,
    lz4,  // everything that shrinks by a 16th
};

// Decides for Compression::automatic. If the bytes of a file did not shrink, its other extents are not tried:
// the class remembers the hash of the file's key until another file needs the slot.
//
// Thread-safe.
class CodingChoice {
  public:
    // A trial: bytes that were coded and decoded again. No `coded_bytes`: they do not shrink.
    struct Sample {
        std::size_t plain_bytes = 0;
        std::optional<std::size_t> coded_bytes;
        std::chrono::nanoseconds time{0};  // for both directions
    };

    bool is_refused(const ObjectKey& key) const;
    void refuse(const ObjectKey& key);
    // Whether to code the sampled extent. Assumes the average time of recent samples or the time of this one,
    // whichever is less, because any sample may have been interrupted.
    bool pays(const Sample& sample, const Link& link);

  private:
    static constexpr std::size_t refused_max = 4096;
    static std::uint64_t file_of(const ObjectKey& key);

    std::array<std::atomic<std::uint64_t>, refused_max> refused_ = {};
    Guarded<Rate> codec_;
};

// Thread-safe.
class Compressor {
  public:
    explicit Compressor(Compression compression) : compression_(compression) {}

    // The object, or its coded form if it is a plain extent worth coding. While the speed of the link is
    // unknown, `automatic` codes nothing.
    ObjectPtr compress(const ObjectKey& key, ObjectPtr object, const Link& link);

  private:
    bool should_code(const ObjectKey& key, const Extent& extent, const Link& link);

    const Compression compression_;
    CodingChoice choice_;
    const std::shared_ptr<ExtentMemory> memory_ = ExtentMemory::make();
};

}  // namespace copper
