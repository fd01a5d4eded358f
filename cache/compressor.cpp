#include "cache/compressor.hpp"

#include <algorithm>
#include <utility>

#include "cache/codec.hpp"

namespace copper {
namespace {

// Codes the first block and decodes it again.
CodingChoice::Sample take_sample(const Extent& extent, ExtentMemory& memory) {
    const auto plain = extent.blob.span().first(std::min(extent.blob.size, coded_block_bytes));
    const auto begin = std::chrono::steady_clock::now();
    const auto coded = lz4_coded(plain);
    if (!coded) {
        return {.plain_bytes = plain.size(), .coded_bytes = std::nullopt};
    }
    read_plain({.attributes = {}, .blob = *coded, .coding = Coding::lz4, .plain_bytes = plain.size()}, 0,
               plain.size(), memory);
    return {.plain_bytes = plain.size(),
            .coded_bytes = coded->size,
            .time = std::chrono::steady_clock::now() - begin};
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

bool CodingChoice::pays(const Sample& sample, double link_bytes_per_second) {
    if (!sample.coded_bytes || link_bytes_per_second <= 0) {
        return false;
    }
    auto codec = codec_.lock();
    codec->add(sample.plain_bytes, sample.time);
    const auto plain = static_cast<double>(sample.plain_bytes);
    const double saved = plain - static_cast<double>(*sample.coded_bytes);
    return saved / link_bytes_per_second > plain / codec->bytes_per_second();
}

bool Compressor::should_code(const ObjectKey& key, const Extent& extent, double link_bytes_per_second) {
    if (compression_ != Compression::automatic) {
        return compression_ == Compression::lz4;
    }
    if (link_bytes_per_second <= 0 || choice_.is_refused(key)) {
        return false;
    }
    const auto sample = take_sample(extent, *memory_);
    if (!sample.coded_bytes) {
        choice_.refuse(key);
    }
    return choice_.pays(sample, link_bytes_per_second);
}

ObjectPtr Compressor::compress(const ObjectKey& key, ObjectPtr object, double link_bytes_per_second) {
    const Extent* extent = object->extent();
    if (extent == nullptr || !should_code(key, *extent, link_bytes_per_second)) {
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
