#include "cache/compressor.hpp"

#include <time.h>

#include <algorithm>
#include <utility>

#include "cache/codec.hpp"

namespace copper {
namespace {

// Of this thread only. On shared cores, a sample of 0.2 ms of work may take 30 ms of wall time, but programs
// do not wait for that: read-ahead hides it.
std::chrono::nanoseconds processor_time() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Codes the first block and decodes it.
CodingChoice::Sample take_sample(const Extent& extent, ExtentMemory& memory) {
    const auto plain = extent.blob.span().first(std::min(extent.blob.size, coded_block_bytes));
    const auto begin = processor_time();
    const auto coded = lz4_coded(plain);
    if (!coded) {
        return {.plain_bytes = plain.size(), .coded_bytes = std::nullopt};
    }
    read_plain({.attributes = {}, .blob = *coded, .coding = Coding::lz4, .plain_bytes = plain.size()}, 0,
               plain.size(), memory);
    return {.plain_bytes = plain.size(), .coded_bytes = coded->size, .time = processor_time() - begin};
}

}  // namespace

std::uint64_t CodingChoice::file_of(const ObjectKey& key) {
    ObjectKey file = key;
    file.index = 0;
    return hash_of(file);
}

bool CodingChoice::is_refused(const ObjectKey& key) const {
    const std::uint64_t file = file_of(key);
    return refused_[file % refused_max] == file;
}

void CodingChoice::refuse(const ObjectKey& key) {
    const std::uint64_t file = file_of(key);
    refused_[file % refused_max] = file;
}

bool CodingChoice::pays(const Sample& sample, const Link& link) {
    if (!sample.coded_bytes || link.bytes_per_second <= 0) {
        return false;
    }
    const auto plain = static_cast<double>(sample.plain_bytes);
    const double saved = plain - static_cast<double>(*sample.coded_bytes);
    auto codec = codec_.lock();
    codec->add(sample.plain_bytes, sample.time);
    const double seconds =
        std::min(std::chrono::duration<double>(sample.time).count(), plain / codec->bytes_per_second());
    // If another extent is leaving, this one is coded meanwhile: coding only has to keep up with the link.
    const double spared = link.bytes_under_way >= extent_bytes ? plain : saved;
    return spared / link.bytes_per_second > seconds;
}

bool Compressor::should_code(const ObjectKey& key, const Extent& extent, const Link& link) {
    if (compression_ != Compression::automatic) {
        return compression_ == Compression::lz4;
    }
    if (link.bytes_per_second <= 0 || choice_.is_refused(key)) {
        return false;
    }
    const auto sample = take_sample(extent, *memory_);
    if (!sample.coded_bytes) {
        choice_.refuse(key);
    }
    return choice_.pays(sample, link);
}

ObjectPtr Compressor::compress(const ObjectKey& key, ObjectPtr object, const Link& link) {
    const Extent* extent = object->extent();
    if (extent == nullptr || extent->coding != Coding::plain || !should_code(key, *extent, link)) {
        return object;
    }
    auto coded = lz4_coded(extent->blob.span());
    if (!coded) {
        choice_.refuse(key);
        return object;
    }
    return make_object(Extent{.attributes = extent->attributes,
                              .blob = std::move(*coded),
                              .coding = Coding::lz4,
                              .plain_bytes = extent->plain_bytes},
                       object->lifetime);
}

}  // namespace copper
