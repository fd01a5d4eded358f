// Which extents are coded (codec.hpp) before they are sent: those for which it pays.
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
    automatic,  // where the link takes longer for what coding saves than it takes to code and decode
    off,
    lz4,  // whatever shrinks by a 16th
};

// The decision of Compression::automatic. A file whose bytes did not shrink is remembered by its key's hash,
// until another file needs the slot, so that its other extents are not tried.
//
// Thread-safe.
class CodingChoice {
  public:
    // Bytes that were coded and decoded again to find out. No coded_bytes: they do not shrink.
    struct Sample {
        std::size_t plain_bytes = 0;
        std::optional<std::size_t> coded_bytes;
        std::chrono::nanoseconds time{0};  // both ways
    };

    bool is_refused(const ObjectKey& key) const;
    void refuse(const ObjectKey& key);
    // Whether to code what the sample is of. It takes as long as all of late did, or as this one did,
    // whichever is less: any sample may have been interrupted.
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

    // The object, coded if it is an extent for which that pays. REQUIRES: it is not coded yet.
    // Where the speed of the link is not known, `automatic` codes nothing.
    ObjectPtr compress(const ObjectKey& key, ObjectPtr object, const Link& link);

  private:
    bool should_code(const ObjectKey& key, const Extent& extent, const Link& link);

    const Compression compression_;
    CodingChoice choice_;
    const std::shared_ptr<ExtentMemory> memory_ = ExtentMemory::make();
};

}  // namespace copper
