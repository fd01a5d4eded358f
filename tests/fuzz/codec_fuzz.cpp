// Coded extents: a damaged one gives nothing or the right length, and coding loses nothing.
#include "cache/codec.hpp"

#include <vector>

#include "tests/fuzz/fuzz.hpp"

namespace copper::fuzz {
namespace {

std::optional<PlainBytes> read(const Extent& extent, std::size_t offset, std::size_t size) {
    static const auto memory = ExtentMemory::make();
    return read_plain(extent, offset, size, *memory);
}

void decode_any(const Extent& extent, std::size_t offset, std::size_t size) {
    const auto all = read(extent, 0, extent.plain_bytes);
    const auto part = read(extent, offset, size);
    if (!is_sound(extent)) {
        must(!all && !part, "what is not sound is not decoded");
        return;
    }
    must(!all || all->bytes.size() == extent.plain_bytes, "an extent has the bytes that it claims");
    if (all) {
        const std::size_t begin = std::min(offset, extent.plain_bytes);
        const auto expected = all->bytes.subspan(begin, std::min(size, extent.plain_bytes - begin));
        must(part && std::ranges::equal(part->bytes, expected), "a part of an extent is that part of it");
    }
}

void code_and_decode(Bytes unit, std::size_t times) {
    std::vector<std::byte> plain;
    for (std::size_t i = 0; i < times && plain.size() + unit.size() <= extent_bytes; ++i) {
        plain.insert(plain.end(), unit.begin(), unit.end());
    }
    const auto coded = lz4_coded(plain);
    if (!coded) {
        return;
    }
    const Extent extent{.attributes = {}, .blob = *coded, .coding = Coding::lz4, .plain_bytes = plain.size()};
    must(is_sound(extent), "what was coded is sound");
    const auto back = read(extent, 0, plain.size());
    must(back && std::ranges::equal(back->bytes, plain), "coding loses nothing");
}

}  // namespace
}  // namespace copper::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    constexpr std::size_t times_max = 16;
    fuzz::Input input(data, size);
    const auto plain_bytes = input.take_number<std::uint32_t>();
    const auto offset = input.take_number<std::uint32_t>();
    const auto bytes = input.take_number<std::uint32_t>();
    const std::size_t times = input.take_number<std::uint8_t>() % times_max;
    fuzz::decode_any(Extent{.attributes = {},
                            .blob = copy_to_blob(input.rest()),
                            .coding = Coding::lz4,
                            .plain_bytes = plain_bytes},
                     offset, bytes);
    fuzz::code_and_decode(input.rest(), times);
    return 0;
}
