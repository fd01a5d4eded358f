#include "fabric/envelope.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace copper {
namespace {

using Bytes = std::vector<std::byte>;

constexpr MessageName name{.from = Rank{3}, .to = Rank{5}, .number = 1ULL << 40U};

Blob blob_of(std::string_view text) {
    return copy_to_blob(std::as_bytes(std::span(text)));
}

std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<Frame> some_frames() {
    return {{.header = blob_of("first header"), .body = blob_of("first body"), .lane = Lane::eager},
            {.header = blob_of("2"), .body = {}, .lane = Lane::eager},
            {.header = blob_of("third"), .body = blob_of("a body that comes later"), .lane = Lane::bulk},
            {.header = blob_of("the last header"), .body = blob_of("last"), .lane = Lane::eager}};
}

Bytes sealed(const Sealer& sealer, const MessageName& as = name) {
    Bytes message(3, std::byte{1});  // of before
    sealer.seal(as, some_frames(), message);
    return message;
}

Sealer keyed() {
    return Sealer(JobKey::from_text(std::string(64, '7')));
}

TEST(Envelope, FramesComeOutAsTheyWentIn) {
    for (const Sealer& sealer : {keyed(), Sealer(std::nullopt)}) {
        const Bytes message = sealed(sealer);
        ASSERT_TRUE(sealer.is_sealed(name, message));
        MessageReader reader(message);
        for (const Frame& frame : some_frames()) {
            ASSERT_FALSE(reader.is_done());
            const auto part = reader.next();
            ASSERT_TRUE(part);
            EXPECT_EQ(part->lane, frame.lane);
            EXPECT_EQ(text_of(part->header), text_of(frame.header.span()));
            EXPECT_EQ(part->body_bytes, frame.body.size);
            EXPECT_EQ(text_of(part->body), frame.lane == Lane::eager ? text_of(frame.body.span()) : "");
        }
        EXPECT_TRUE(reader.is_done());
    }
}

TEST(Envelope, AMessageIsGoodForOnePlaceOnly) {
    const Sealer sealer = keyed();
    const Bytes message = sealed(sealer);
    for (const MessageName& other :
         {MessageName{Rank{4}, name.to, name.number}, MessageName{name.from, Rank{6}, name.number},
          MessageName{name.to, name.from, name.number}, MessageName{name.from, name.to, name.number + 1},
          MessageName{name.from, name.to, name.number - 32768}}) {
        EXPECT_FALSE(sealer.is_sealed(other, message));
        // Nor is it, once it says so.
        Bytes forged = sealed(Sealer(std::nullopt), other);
        std::copy_n(message.begin(), 16, forged.begin());
        EXPECT_FALSE(sealer.is_sealed(other, forged));
    }
}

TEST(Envelope, WhoDoesNotKnowTheKeyCannotMakeOne) {
    const Sealer sealer = keyed();
    EXPECT_FALSE(sealer.is_sealed(name, sealed(Sealer(JobKey::random()))));
    EXPECT_FALSE(sealer.is_sealed(name, sealed(Sealer(std::nullopt))));
    EXPECT_FALSE(Sealer(std::nullopt).is_sealed(name, sealed(sealer)));
}

// The bodies come last; their headers vouch for them.
TEST(Envelope, EveryBitBeforeTheBodiesCounts) {
    const Sealer sealer = keyed();
    Bytes message = sealed(sealer);
    const std::size_t bodies_at = message.size() - std::strlen("first bodylast");
    for (std::size_t bit = 0; bit < message.size() * 8; ++bit) {
        const auto mask = static_cast<std::byte>(1U << (bit % 8));
        message[bit / 8] ^= mask;
        ASSERT_EQ(sealer.is_sealed(name, message), bit / 8 >= bodies_at) << bit;
        message[bit / 8] ^= mask;
    }
    while (!message.empty()) {
        message.pop_back();
        ASSERT_EQ(sealer.is_sealed(name, message), message.size() >= bodies_at) << message.size();
    }
}

// Without a key anybody can write anything: no value of any byte leads out of the message.
TEST(Envelope, NonsenseIsFoundOut) {
    const Sealer sealer(std::nullopt);
    const Bytes sound = sealed(sealer);
    std::size_t refused = 0;
    for (std::size_t at = 0; at < sound.size(); ++at) {
        for (unsigned value = 0; value < 256; ++value) {
            Bytes message = sound;
            message[at] = static_cast<std::byte>(value);
            if (!sealer.is_sealed(name, message)) {
                continue;
            }
            const auto within = [&message](std::span<const std::byte> part) {
                return part.empty() || (part.data() >= message.data() &&
                                        part.data() + part.size() <= message.data() + message.size());
            };
            for (MessageReader reader(message); !reader.is_done();) {
                const auto part = reader.next();
                if (!part) {
                    ++refused;
                    break;
                }
                ASSERT_TRUE(within(part->header) && within(part->body));
                ASSERT_LT(static_cast<std::size_t>(part->lane), lane_count);
                ASSERT_LE(part->body_bytes, body_bytes_max);
            }
        }
    }
    EXPECT_GT(refused, 0U);
    for (std::size_t size = 0; size < sound.size(); ++size) {
        const Bytes cut(sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size));
        if (sealer.is_sealed(name, cut)) {
            MessageReader reader(cut);
            while (reader.next()) {
            }
            EXPECT_FALSE(reader.is_done()) << size;
        }
    }
}

}  // namespace
}  // namespace copper
