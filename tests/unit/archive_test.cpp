#include "base/archive.hpp"

#include <gtest/gtest.h>

#include <tuple>

namespace copper {

enum class Colour : std::uint8_t { red, green, blue };
struct Everything {
    bool flag = false;
    std::int16_t number = 0;
    double fraction = 0;
    Colour colour = Colour::red;
    std::string text;
    std::vector<std::pair<std::uint32_t, std::string>> pairs;
    std::vector<std::uint8_t> few;
    std::optional<std::vector<std::string>> perhaps;
    std::chrono::milliseconds time{0};
    std::variant<std::string, std::uint64_t> either;
    bool operator==(const Everything&) const = default;
};

constexpr std::size_t few_max = 3;

void describe(auto& archive, MaybeConst<Everything> auto& all) {
    archive(all.flag, all.number, all.fraction, at_most(all.colour, Colour::blue), all.text, all.pairs,
            at_most(all.few, few_max), all.perhaps, all.time, all.either);
}

namespace {

using namespace std::chrono_literals;

Everything something() {
    return {.flag = true,
            .number = -2,
            .fraction = 0.5,
            .colour = Colour::blue,
            .text = std::string("a\0b", 3),
            .pairs = {{1, ""}, {2, std::string(300, 'x')}},
            .few = {1, 2, 3},
            .perhaps = {{"", "y"}},
            .time = 5s,
            .either = std::uint64_t{7}};
}

std::vector<std::byte> written(const auto&... values) {
    Writer writer(0);
    writer(values...);
    return {writer.written().begin(), writer.written().end()};
}

// Nothing if it is not exactly one.
template <typename Value>
std::optional<Value> read(const std::vector<std::byte>& bytes) {
    Reader reader(bytes);
    Value value{};
    reader(value);
    return reader.is_done() ? std::optional(value) : std::nullopt;
}

TEST(Archive, BringsBackWhatWasWritten) {
    for (const Everything& all : {something(), Everything()}) {
        EXPECT_EQ(read<Everything>(written(all)), all);
    }
}

TEST(Archive, LengthsTakeSevenBitsAByte) {
    for (const auto& [size, bytes] : {std::pair(0, 1), {127, 1}, {128, 2}, {16383, 2}, {16384, 3}}) {
        const std::string text(static_cast<std::size_t>(size), 'x');
        EXPECT_EQ(written(text).size(), text.size() + static_cast<std::size_t>(bytes));
        EXPECT_EQ(read<std::string>(written(text)), text);
    }
}

TEST(Archive, RefusesEveryTruncationAndWhatIsLeftOver) {
    std::vector<std::byte> bytes = written(something());
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(read<Everything>(bytes));
    bytes.pop_back();
    while (!bytes.empty()) {
        bytes.pop_back();
        EXPECT_FALSE(read<Everything>(bytes)) << bytes.size();
    }
}

TEST(Archive, RefusesWhatIsAboveItsLimit) {
    Everything all = something();
    all.colour = static_cast<Colour>(3);
    EXPECT_FALSE(read<Everything>(written(all)));
    all = something();
    all.few.push_back(4);
    EXPECT_FALSE(read<Everything>(written(all)));
    for (const auto time : {std::chrono::milliseconds(-1), std::chrono::milliseconds::max()}) {
        all = something();
        all.time = time;
        EXPECT_FALSE(read<Everything>(written(all)));
    }
    EXPECT_FALSE(read<bool>(written(std::uint8_t{2})));
    EXPECT_FALSE((read<std::variant<bool, std::uint8_t>>(written(std::uint8_t{2}, std::uint8_t{0}))));
}

// A length of as many bytes as one has, or of more than 64 bits, takes no memory.
TEST(Archive, RefusesLengthsBeyondWhatIsThere) {
    constexpr std::uint8_t more = 0xff;
    for (const auto& bytes : {written(std::uint64_t{~0ULL}, std::uint8_t{1}),
                              written(std::uint64_t{~0ULL}, more, std::uint8_t{1}),
                              written(std::uint64_t{~0ULL}, std::uint64_t{~0ULL}, std::uint8_t{1}),
                              written(std::uint64_t{~0ULL}, std::uint64_t{~0ULL}),
                              written(more, std::uint8_t{0x7f}), written(std::uint8_t{1})}) {
        EXPECT_FALSE(read<std::string>(bytes));
        EXPECT_FALSE(read<std::vector<std::string>>(bytes));
    }
}

// What comes after is not taken for a value.
TEST(Archive, StaysUnsound) {
    const auto bytes = written(std::uint8_t{2}, std::uint8_t{1}, std::uint32_t{5});
    Reader reader(bytes);
    bool flag = false;
    std::uint8_t one = 0;
    std::uint32_t number = 0;
    reader(flag, one, number);
    EXPECT_FALSE(reader.is_sound());
    EXPECT_EQ(std::tuple(flag, one, number), std::tuple(false, 0, 0U));
}

}  // namespace
}  // namespace copper
