#include "base/job_key.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/checksum.hpp"
#include "cache/object.hpp"

namespace copper {
namespace {

constexpr std::string_view some_text = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

JobKey key_of(std::string_view text) {
    return JobKey::from_text(text).value();
}

TEST(JobKey, IsItsText) {
    EXPECT_EQ(key_of(some_text).text(), some_text);
    const JobKey random = JobKey::random();
    EXPECT_EQ(key_of(random.text()).text(), random.text());
    EXPECT_NE(JobKey::random().text(), random.text());
}

TEST(JobKey, OtherTextsAreRefused) {
    const std::string text(some_text);
    for (const std::string& wrong :
         {std::string(), text.substr(1), text.substr(2), text + "0", text + "00", text + " ",
          "g" + text.substr(1), text.substr(0, 63) + '\0', " " + text.substr(1)}) {
        EXPECT_FALSE(JobKey::from_text(wrong)) << wrong;
    }
}

TEST(JobKey, UsesHaveKeysOfTheirOwn) {
    const auto derived = [](const JobKey& key, JobKey::Use use) {
        std::array<std::byte, 192> bytes = {};
        key.derive(use, bytes);
        return bytes;
    };
    const JobKey key = key_of(some_text);
    const auto messages = derived(key, JobKey::Use::messages);
    EXPECT_EQ(messages, derived(key_of(some_text), JobKey::Use::messages));
    EXPECT_NE(messages, derived(key, JobKey::Use::checksums));
    EXPECT_NE(messages, derived(JobKey::random(), JobKey::Use::messages));
    // All of it is filled, and no part like another.
    for (std::size_t at = 0; at < messages.size(); at += 16) {
        for (std::size_t other = 0; other < at; other += 16) {
            EXPECT_FALSE(std::equal(&messages[at], &messages[at] + 16, &messages[other]));
        }
    }
}

std::uint64_t running_checksum_of(std::span<const std::byte> bytes) {
    RunningChecksum sum;
    for (const std::size_t part : {1U, 250U, 256U << 10}) {
        sum.add(bytes.first(std::min(part, bytes.size())));
        bytes = bytes.subspan(std::min(part, bytes.size()));
    }
    sum.add(bytes);
    return sum.value();
}

TEST(JobKey, ChecksumsDependOnIt) {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{200}, std::size_t{300}, std::size_t{extent_bytes}}) {
        const std::vector<std::byte> bytes(size, std::byte{7});
        const auto plain = checksum_of(bytes);
        key_checksums(key_of(some_text));
        const auto keyed = checksum_of(bytes);
        EXPECT_NE(keyed, plain) << size;
        EXPECT_EQ(keyed, checksum_of(bytes)) << size;
        EXPECT_EQ(keyed, running_checksum_of(bytes)) << size;
        key_checksums(JobKey::random());
        EXPECT_NE(keyed, checksum_of(bytes)) << size;
        key_checksums(std::nullopt);
        EXPECT_EQ(plain, checksum_of(bytes)) << size;
        EXPECT_EQ(plain, running_checksum_of(bytes)) << size;
    }
}

}  // namespace
}  // namespace copper
