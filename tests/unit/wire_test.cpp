#include "wire/wire.hpp"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.hpp"
#include "cache/codec.hpp"
#include "tests/support/directory_object.hpp"
#include "tests/support/messages.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t checksum_bytes = 8;

// ---- what to send

using test::any_bytes;

Attributes attributes(std::uint64_t seed) {
    return {.inode = seed,
            .size = seed << 40U,
            .blocks = seed + 1,
            .device = ~seed,
            .mode = 0100644,
            .links = 3,
            .user = 0xffffffff,
            .group = 7,
            .block_bytes = 4096,
            .accessed = {-5, 999999999},
            .modified = {std::numeric_limits<std::int64_t>::max(), 1},
            .changed = {1, 2}};
}

ObjectPtr listing_of(std::vector<Listing::NewEntry> entries,
                     Listing::Detail detail = Listing::Detail::attributes) {
    return make_object(Listing(std::move(entries), detail));
}

ObjectPtr some_listing() {
    return make_object(test::some_listing(Listing::Detail::attributes));
}

// With all its names.
ObjectPtr some_directory() {
    return make_object(test::directory_of(
        {{.name = "alpha", .target = "", .attributes = {.inode = 1, .mode = 0100000}},
         {.name = any_bytes, .target = "", .attributes = {.inode = ~0ULL, .mode = 0120000}},
         {.name = "omega", .target = "", .attributes = {.inode = 3, .mode = 0040000}}},
        1ULL << 63U, 1500us));
}

// With the first names of its pieces alone.
ObjectPtr huge_directory() {
    Directory directory;
    directory.version = 1ULL << 63U;
    directory.entries = 12345678;
    directory.operation_time = std::chrono::microseconds(std::numeric_limits<std::uint32_t>::max());
    for (int i = 0; i < 4000; ++i) {
        const std::string number = std::to_string(10000 + i);
        directory.first_names.push_back(number + std::string(i % 2 == 0 ? 250 : 0, '\xff'));
    }
    return make_object(directory);
}

ObjectPtr extent_of(std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = static_cast<std::byte>(i * 31 + i / 251);
    }
    return make_object(Extent{.attributes = attributes(9), .blob = copy_to_blob(data)});
}

ObjectPtr coded_extent_of(std::size_t bytes) {
    return make_object(Extent{.attributes = attributes(9),
                              .blob = lz4_coded(std::vector<std::byte>(bytes)).value(),
                              .coding = Coding::lz4,
                              .plain_bytes = bytes});
}

Publication publication_of(ObjectKey key, ObjectPtr object) {
    return {.key = std::move(key),
            .root = Rank{4000000000},
            .tree = 0xffffffff,
            .spread = Publication::Spread::asked,
            .serial = std::numeric_limits<std::uint64_t>::max(),
            .sequence = 1ULL << 63U,
            .lane = object->bytes() > eager_body_bytes_max ? Lane::bulk : Lane::eager,
            .object = object};
}

Publication small_publication() {
    return publication_of({ObjectKind::batch, "/app/lib", 3, 7}, some_listing());
}

// The lane and the sequence, too: whoever sent it must not believe that it is still in flight.
void expect_damaged(const WireError& error, const Publication& publication) {
    ASSERT_TRUE(error.damaged);
    EXPECT_EQ(error.damaged->key, publication.key);
    EXPECT_EQ(error.damaged->lane, publication.lane);
    EXPECT_EQ(error.damaged->sequence, publication.sequence);
}

// ---- damage

std::vector<std::byte> copy_of(const Blob& blob) {
    return {blob.span().begin(), blob.span().end()};
}

Frame with_header(const Frame& frame, const std::vector<std::byte>& header) {
    return {copy_to_blob(header), frame.body, frame.lane};
}

Frame with_body(const Frame& frame, const std::vector<std::byte>& body) {
    return {frame.header, copy_to_blob(body), frame.lane};
}

// Makes the header's checksum right again, so that what lies behind the checksum is reached.
void sign(std::vector<std::byte>& header) {
    const std::uint64_t sum = XXH3_64bits(header.data() + checksum_bytes, header.size() - checksum_bytes);
    std::memcpy(header.data(), &sum, checksum_bytes);
}

// The frame with another body, and a header that vouches for it. REQUIRES: a body of the same size.
Frame vouch_for(const Frame& frame, const std::vector<std::byte>& body) {
    std::vector<std::byte> header = copy_of(frame.header);
    const std::uint64_t old_sum = XXH3_64bits(frame.body.data.get(), frame.body.size);
    const std::uint64_t new_sum = XXH3_64bits(body.data(), body.size());
    std::size_t places = 0;
    for (std::size_t i = checksum_bytes; i + sizeof(old_sum) <= header.size(); ++i) {
        if (std::memcmp(header.data() + i, &old_sum, sizeof(old_sum)) == 0) {
            std::memcpy(header.data() + i, &new_sum, sizeof(new_sum));
            ++places;
        }
    }
    EXPECT_EQ(places, 1U);
    sign(header);
    return {copy_to_blob(header), copy_to_blob(body), frame.lane};
}

// ---- round trips

Publication round_trip(const Publication& publication) {
    const Frame frame = encode(publication);
    EXPECT_LE(frame.header.size, header_bytes_max);
    EXPECT_TRUE(frame.lane == Lane::bulk || frame.body.size <= eager_body_bytes_max);
    const auto message = decode(frame);
    EXPECT_TRUE(message) << (message ? "" : message.error().reason);
    EXPECT_TRUE(message && test::equal(*message, publication)) << to_string(publication.key);
    return std::get<Publication>(message.value());
}

TEST(WireRoundTrip, EveryMessage) {
    for (const Message& message : test::messages()) {
        const auto decoded = decode(encode(message));
        ASSERT_TRUE(decoded) << decoded.error().reason;
        EXPECT_TRUE(test::equal(*decoded, message)) << message.index();
        if (const auto* publication = std::get_if<Publication>(&message)) {
            round_trip(*publication);
        }
    }
}

TEST(WireRoundTrip, TheLongestPathFitsIntoAHeader) {
    std::string path;
    while (path.size() + 256 < path_bytes_max) {
        path += '/' + std::string(255, 'x');
    }
    path += '/' + std::string(path_bytes_max - path.size() - 2, 'y');
    ASSERT_EQ(path.size(), path_bytes_max - 1);
    const Frame frame = encode(publication_of({ObjectKind::directory, path}, some_directory()));
    EXPECT_LE(frame.header.size, header_bytes_max);
    EXPECT_TRUE(decode(frame));
}

TEST(WireRoundTrip, AnswersOfManyNodes) {
    for (const std::uint32_t parts : {0U, 1U, 10000U}) {
        Answer answer{.id = 8, .origin = Rank{9}, .parts = {}};
        for (std::uint32_t i = 0; i < parts; ++i) {
            answer.parts.push_back(
                {Rank{i}, std::string(i % 40, '\0') + any_bytes, std::vector<Rank>(i % 3, Rank{7})});
        }
        const Frame frame = encode(answer);
        EXPECT_EQ(frame.lane, frame.body.size > eager_body_bytes_max ? Lane::bulk : Lane::eager);
        const auto message = decode(frame);
        ASSERT_TRUE(message) << message.error().reason;
        EXPECT_EQ(std::get<Answer>(*message), answer);
    }
}

TEST(WireRoundTrip, Listings) {
    std::vector<Listing::NewEntry> many;
    for (int i = 0; i < 9000; ++i) {
        many.push_back({.name = "name" + std::to_string(i),
                        .target = i % 7 == 0 ? std::string(4095, 't') : "",
                        .attributes = attributes(static_cast<std::uint64_t>(i))});
    }
    const std::vector<ObjectPtr> objects = {
        listing_of({}),
        listing_of({}, Listing::Detail::names_only),
        some_listing(),
        listing_of(many),
        listing_of(many, Listing::Detail::names_only),
        listing_of({{.name = std::string(255, '\xff'), .target = "", .attributes = {}}})};
    for (const ObjectPtr& object : objects) {
        for (const ObjectKind kind : {ObjectKind::names, ObjectKind::batch, ObjectKind::entry}) {
            const std::uint32_t index = kind == ObjectKind::entry ? 0 : 3;
            round_trip(publication_of({kind, "/", index}, object));
        }
    }
}

TEST(WireRoundTrip, Directories) {
    std::vector<Listing::NewEntry> many;
    for (std::size_t i = 0; i < piece_entries; ++i) {
        many.push_back({.name = "name" + std::to_string(i), .target = "", .attributes = {.inode = i}});
    }
    for (const ObjectPtr& object : {make_object(Directory()), some_directory(),
                                    make_object(test::directory_of(many)), huge_directory()}) {
        EXPECT_LE(encode(publication_of({ObjectKind::directory, "/"}, object)).body.size, object->bytes());
        for (const ObjectKey& key : {ObjectKey{ObjectKind::directory, "/app"},
                                     ObjectKey{ObjectKind::names, "/app", 0xffffffff, 1ULL << 63U}}) {
            round_trip(publication_of(key, object));
        }
    }
}

// What is longer than any operation takes is told as the longest.
TEST(WireRoundTrip, TheTimeOfAnOperation) {
    constexpr std::int64_t longest = std::numeric_limits<std::uint32_t>::max();
    for (const auto& [time, told] : {std::pair{-1us, 0us},
                                     {std::chrono::microseconds::min(), 0us},
                                     {longest * 1us, longest * 1us},
                                     {(longest + 1) * 1us, longest * 1us},
                                     {std::chrono::microseconds::max(), longest * 1us}}) {
        const auto result = decode(encode(
            publication_of({ObjectKind::directory, "/"}, make_object(test::directory_of({}, 1, time)))));
        ASSERT_TRUE(result) << result.error().reason;
        EXPECT_EQ(std::get<Publication>(*result).object->directory()->operation_time, told);
    }
}

TEST(WireRoundTrip, ExtentsShareMemoryInBothDirections) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65536}, std::size_t{65537},
                                    std::size_t{extent_bytes}}) {
        const Publication publication =
            publication_of({ObjectKind::extent, "/app/x.so", 0xffffffff}, extent_of(bytes));
        const Blob& sent = publication.object->extent()->blob;
        const Frame frame = encode(publication);
        EXPECT_EQ(frame.body.data, sent.data) << "copied";
        const auto message = decode(frame);
        ASSERT_TRUE(message) << message.error().reason;
        const Extent* extent = std::get<Publication>(*message).object->extent();
        ASSERT_NE(extent, nullptr);
        EXPECT_EQ(extent->blob.data, frame.body.data) << "copied";
        EXPECT_EQ(extent->blob.size, bytes);
        EXPECT_EQ(extent->attributes, attributes(9));
        round_trip(publication);
    }
}

TEST(WireRoundTrip, CodedExtentsStayCoded) {
    for (const std::size_t bytes : {std::size_t{1000}, std::size_t{extent_bytes}}) {
        const Publication publication =
            publication_of({ObjectKind::extent, "/app/x.so"}, coded_extent_of(bytes));
        EXPECT_EQ(encode(publication).saved_bytes, bytes - publication.object->extent()->blob.size);
        const Publication result = round_trip(publication);
        const Extent* extent = result.object->extent();
        ASSERT_NE(extent, nullptr);
        EXPECT_EQ(extent->coding, Coding::lz4);
        EXPECT_EQ(extent->plain_bytes, bytes);
        EXPECT_EQ(copy_of(extent->blob), copy_of(publication.object->extent()->blob));
    }
}

TEST(WireRoundTrip, ExtentsOfZerosHaveNoBody) {
    const Publication publication = publication_of(
        {ObjectKind::extent, "/app/x.so"},
        make_object(Extent{
            .attributes = attributes(9), .blob = {}, .coding = Coding::zeros, .plain_bytes = extent_bytes}));
    EXPECT_EQ(encode(publication).body.size, 0U);
    EXPECT_EQ(encode(publication).saved_bytes, 0U) << "not by compression";
    const Publication result = round_trip(publication);
    const Extent* extent = result.object->extent();
    ASSERT_NE(extent, nullptr);
    EXPECT_EQ(extent->coding, Coding::zeros);
    EXPECT_EQ(extent->plain_bytes, extent_bytes);
    EXPECT_EQ(extent->blob.size, 0U);
}

ObjectPtr some_data_map(std::size_t segments = 2) {
    DataMap map{.attributes = attributes(9), .segments = {}};
    for (std::uint64_t i = 0; i < segments; ++i) {
        map.segments.push_back({.begin = 10 * i, .end = 10 * i + 5});
    }
    return make_object(map);
}

TEST(WireRoundTrip, DataMaps) {
    for (const std::size_t segments : {std::size_t{0}, std::size_t{2}, DataMap::segments_max}) {
        round_trip(publication_of({ObjectKind::data_map, "/app/x.so", 0, 7}, some_data_map(segments)));
    }
    EXPECT_FALSE(decode(encode(
        publication_of({ObjectKind::data_map, "/app/x.so"}, some_data_map(DataMap::segments_max + 1)))));
    EXPECT_FALSE(decode(encode(publication_of({ObjectKind::data_map, "/app/x.so", 1}, some_data_map()))))
        << "there is one map only";
    EXPECT_FALSE(decode(encode(publication_of({ObjectKind::extent, "/app/x.so"}, some_data_map()))));
}

TEST(WireRoundTrip, TheLargestXattr) {
    round_trip(publication_of({ObjectKind::xattrs, "/app"},
                              make_object(Xattrs{{"user.a", std::string(65536, '\0')}, {"b", any_bytes}})));
}

TEST(WireRoundTrip, ErrorsAnswerEveryKindAndKeepTheirLifetime) {
    for (const ObjectKind kind :
         {ObjectKind::directory, ObjectKind::batch, ObjectKind::entry, ObjectKind::extent, ObjectKind::xattrs,
          ObjectKind::names, ObjectKind::xattr_batch, ObjectKind::acl, ObjectKind::acl_batch,
          ObjectKind::data_map}) {
        for (const std::optional<std::chrono::milliseconds> lifetime :
             {std::optional<std::chrono::milliseconds>(), std::optional(0ms), std::optional(1000ms)}) {
            const auto error = make_object(std::error_code(EACCES, std::generic_category()), lifetime);
            const Publication result = round_trip(publication_of({kind, "/app"}, error));
            EXPECT_EQ(result.object->error(), std::errc::permission_denied);
        }
    }
    round_trip(publication_of({ObjectKind::directory, "/app"}, make_object(Directory(), 0ms)));
}

// The lane follows from the size in memory: nothing may be larger on the wire, or the fabric would not take
// it.
TEST(WireRoundTrip, NothingIsLargerOnTheWireThanInMemory) {
    std::vector<Listing::NewEntry> entries;
    Xattrs xattrs;
    XattrBatch marks;
    XattrBatch batch;
    for (int i = 0; i < 700; ++i) {
        const ObjectPtr listing = listing_of(entries);
        EXPECT_LE(encode(publication_of({ObjectKind::batch, "/"}, listing)).body.size, listing->bytes());
        const ObjectPtr names = listing_of(entries, Listing::Detail::names_only);
        EXPECT_LE(encode(publication_of({ObjectKind::names, "/"}, names)).body.size, names->bytes());
        const ObjectPtr directory = make_object(test::directory_of(entries));
        EXPECT_LE(encode(publication_of({ObjectKind::directory, "/"}, directory)).body.size,
                  directory->bytes());
        Directory huge;
        huge.entries = piece_entries * entries.size();
        while (huge.first_names.size() < entries.size()) {
            huge.first_names.push_back(std::to_string(1000 + huge.first_names.size()));
        }
        const ObjectPtr pieces = make_object(huge);
        EXPECT_LE(encode(publication_of({ObjectKind::directory, "/"}, pieces)).body.size, pieces->bytes());
        const ObjectPtr pairs = make_object(xattrs);
        EXPECT_LE(encode(publication_of({ObjectKind::xattrs, "/"}, pairs)).body.size, pairs->bytes());
        const ObjectPtr batch_of_marks = make_object(marks);
        const ObjectPtr batch_of_pairs = make_object(batch);
        for (const ObjectPtr& one : {batch_of_marks, batch_of_pairs}) {
            EXPECT_LE(encode(publication_of({ObjectKind::xattr_batch, "/"}, one)).body.size, one->bytes());
        }
        marks.entries.push_back({std::to_string(i), std::nullopt});
        batch.entries.push_back({std::to_string(i), xattrs.size() < 50 ? xattrs : Xattrs{{"user.a", "v"}}});
        entries.push_back({.name = std::to_string(i), .target = "", .attributes = {}});
        xattrs.emplace_back(std::to_string(i), std::string(static_cast<std::size_t>(i % 5), 'v'));
    }
}

// ---- rejection of accidents

TEST(WireDamage, EveryTruncationOfAHeaderIsRefused) {
    for (const Message& message : test::messages()) {
        const Frame frame = encode(message);
        const auto header = copy_of(frame.header);
        for (std::size_t bytes = 0; bytes < header.size(); ++bytes) {
            std::vector<std::byte> cut(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(bytes));
            const auto refused = decode(with_header(frame, cut));
            ASSERT_FALSE(refused) << bytes;
            ASSERT_FALSE(refused.error().damaged);
            ASSERT_FALSE(refused.error().reason.empty());
            if (bytes > checksum_bytes) {
                sign(cut);
                if (const auto accepted = decode(with_header(frame, cut))) {
                    EXPECT_TRUE(test::equal(*accepted, *accepted)) << "all of it can be looked at";
                }
            }
        }
    }
    EXPECT_FALSE(decode(Frame{}));
}

TEST(WireDamage, EveryFlippedBitOfAHeaderIsRefused) {
    const Frame frame = encode(small_publication());
    auto header = copy_of(frame.header);
    for (std::size_t bit = 0; bit < header.size() * 8; ++bit) {
        const auto mask = static_cast<std::byte>(1U << (bit % 8));
        header[bit / 8] ^= mask;
        ASSERT_FALSE(decode(with_header(frame, header))) << bit;
        header[bit / 8] ^= mask;
    }
    EXPECT_TRUE(decode(with_header(frame, header)));
}

TEST(WireDamage, ABodyThatTheFabricHasGoneThroughIsNotGoneThroughAgain) {
    const Publication publication = publication_of({ObjectKind::extent, "/app/x.so", 3}, extent_of(300));
    Frame frame = encode(publication);
    frame.body = copy_to_blob(frame.body.span());
    frame.body.checksum = checksum_of(frame.body);
    EXPECT_TRUE(decode(frame));
    ++frame.body.checksum;
    const auto refused = decode(frame);
    ASSERT_FALSE(refused);
    expect_damaged(refused.error(), publication);
}

TEST(WireDamage, EveryFlippedBitAndTruncationOfABodyNamesTheObject) {
    const ObjectKey extent_key{ObjectKind::extent, "/app/x.so", 3};
    const ObjectKey xattrs_key{ObjectKind::xattrs, "/app/x.so"};
    for (const Publication& publication :
         {small_publication(), publication_of(extent_key, extent_of(300)),
          publication_of(extent_key, coded_extent_of(300)),
          publication_of(xattrs_key, make_object(Xattrs{{"user.a", "b"}}))}) {
        const Frame frame = encode(publication);
        auto body = copy_of(frame.body);
        for (std::size_t bit = 0; bit < body.size() * 8; ++bit) {
            const auto mask = static_cast<std::byte>(1U << (bit % 8));
            body[bit / 8] ^= mask;
            const auto refused = decode(with_body(frame, body));
            ASSERT_FALSE(refused) << bit;
            ASSERT_NO_FATAL_FAILURE(expect_damaged(refused.error(), publication));
            body[bit / 8] ^= mask;
        }
        while (!body.empty()) {
            body.pop_back();
            const auto refused = decode(with_body(frame, body));
            ASSERT_FALSE(refused);
            ASSERT_NO_FATAL_FAILURE(expect_damaged(refused.error(), publication));
        }
    }
    const Frame answer = encode(Answer{.id = 1, .origin = {}, .parts = {{Rank{1}, "text"}}});
    auto body = copy_of(answer.body);
    for (std::byte& b : body) {
        b ^= std::byte{1};
        ASSERT_FALSE(decode(with_body(answer, body)));
        b ^= std::byte{1};
    }
}

TEST(WireDamage, RandomBytesAreRefused) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    RecordProperty("seed", std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::byte> header(random() % 400);
        for (std::byte& b : header) {
            // Small numbers make plausible lengths.
            b = static_cast<std::byte>(random() % (round % 2 == 0 ? 256 : 24));
        }
        ASSERT_FALSE(decode(Frame{copy_to_blob(header), {}, Lane::eager}));
        if (header.size() > checksum_bytes) {
            sign(header);
            if (const auto accepted = decode(Frame{copy_to_blob(header), {}, Lane::eager})) {
                EXPECT_TRUE(test::equal(*accepted, *accepted));
            }
        }
    }
}

TEST(WireDamage, AHeaderThatIsTooLongIsRefused) {
    std::vector<std::byte> header(header_bytes_max + 1);
    sign(header);
    EXPECT_FALSE(decode(Frame{copy_to_blob(header), {}, Lane::eager}));
}

// ---- rejection of nonsense with a good checksum

void expect_sound(const std::vector<News>& news) {
    ASSERT_LE(news.size(), news_told_max);
    for (const News& each : news) {
        ASSERT_LE(each.incarnation, incarnation_max);
        ASSERT_LE(each.state, NodeState::dead);
    }
}

// A version and an index are for what has them.
bool has_parts(ObjectKind kind) {
    return kind == ObjectKind::extent || kind == ObjectKind::names || kind == ObjectKind::batch ||
           kind == ObjectKind::xattr_batch || kind == ObjectKind::acl || kind == ObjectKind::acl_batch ||
           kind == ObjectKind::data_map;
}

// Every value in every byte of the header, vouched for: nothing crashes, and what is accepted is usable.
TEST(WireNonsense, EveryByteOfAHeader) {
    for (const Message& message : test::messages()) {
        const Frame frame = encode(message);
        auto header = copy_of(frame.header);
        for (std::size_t i = checksum_bytes; i < header.size(); ++i) {
            const std::byte before = header[i];
            for (unsigned value = 0; value < 256; ++value) {
                header[i] = static_cast<std::byte>(value);
                sign(header);
                const auto decoded = decode(with_header(frame, header));
                if (!decoded) {
                    continue;
                }
                ASSERT_TRUE(test::equal(*decoded, *decoded));
                if (const auto* interest = std::get_if<Interest>(&*decoded)) {
                    ASSERT_NO_FATAL_FAILURE(expect_sound(interest->news));
                    ASSERT_LE(interest->findings.size(), findings_max);
                    ASSERT_GE(interest->spent, 0ms);
                }
                if (const auto* pong = std::get_if<Pong>(&*decoded)) {
                    ASSERT_NO_FATAL_FAILURE(expect_sound(pong->news));
                }
                if (const auto* publication = std::get_if<Publication>(&*decoded)) {
                    ASSERT_TRUE(is_normalised_path(publication->key.path));
                    ASSERT_LE(publication->key.kind, last_shared_object_kind);
                    ASSERT_TRUE(publication->key.version == 0 || has_parts(publication->key.kind));
                    ASSERT_LE(publication->spread, Publication::Spread::asked);
                }
            }
            header[i] = before;
        }
    }
}

TEST(WireNonsense, EveryByteOfABody) {
    for (const Message& message : test::messages()) {
        const Frame frame = encode(message);
        auto body = copy_of(frame.body);
        for (std::byte& b : body) {
            const std::byte before = b;
            for (const unsigned value :
                 {0U, 1U, 2U, 3U, 4U, 5U, 8U, 16U, 47U, 127U, 128U, 252U, 254U, 255U}) {
                b = static_cast<std::byte>(value);
                if (b == before) {
                    continue;
                }
                if (const auto decoded = decode(vouch_for(frame, body))) {
                    ASSERT_TRUE(test::equal(*decoded, *decoded));
                }
            }
            b = before;
        }
    }
}

void expect_refused(const Message& message, std::string_view what) {
    EXPECT_FALSE(decode(encode(message))) << what;
}

TEST(WireNonsense, Paths) {
    for (const char* path : {"", "relative", "app/lib", "/app/", "//app", "/app//lib", "/..", "/app/..",
                             "/app/../etc", "/./app", "/app/."}) {
        expect_refused(Interest{.key = {ObjectKind::directory, path}}, path);
        expect_refused(publication_of({ObjectKind::directory, path}, some_directory()), path);
    }
    expect_refused(Interest{.key = {ObjectKind::directory, std::string("/a\0b", 4)}}, "a NUL");
    expect_refused(Interest{.key = {ObjectKind::directory, '/' + std::string(256, 'x')}}, "a name too long");
    std::string path;
    while (path.size() < path_bytes_max) {
        path += "/x";
    }
    expect_refused(Interest{.key = {ObjectKind::directory, path}}, "a path too long");
}

TEST(WireNonsense, Names) {
    for (const std::string& name : {std::string(""), std::string("."), std::string(".."), std::string("a/b"),
                                    std::string("/"), std::string("a\0b", 3), std::string(256, 'x')}) {
        const std::vector<Listing::NewEntry> odd = {{.name = name, .target = "", .attributes = {}}};
        expect_refused(publication_of({ObjectKind::batch, "/app"}, listing_of(odd)), name);
        expect_refused(
            publication_of({ObjectKind::names, "/app"}, listing_of(odd, Listing::Detail::names_only)), name);
        expect_refused(publication_of({ObjectKind::directory, "/app"}, make_object(test::directory_of(odd))),
                       name);
    }
    const std::vector<Listing::NewEntry> twice = {{.name = "a", .target = "", .attributes = {}},
                                                  {.name = "a", .target = "", .attributes = {}}};
    expect_refused(publication_of({ObjectKind::batch, "/app"}, listing_of(twice)), "a name twice");
    expect_refused(publication_of({ObjectKind::directory, "/app"}, make_object(test::directory_of(twice))),
                   "a name twice");
}

// A text stands in the body as it is, behind its length.
std::size_t place_of(const std::vector<std::byte>& body, std::string_view text) {
    const std::string_view all(reinterpret_cast<const char*>(body.data()), body.size());
    const auto place = all.find(text);
    EXPECT_NE(place, std::string_view::npos);
    EXPECT_EQ(all.find(text, place + 1), std::string_view::npos);
    return place;
}

TEST(WireNonsense, NamesOutOfOrder) {
    const std::vector<Listing::NewEntry> two = {{.name = "aaaa", .target = "", .attributes = {}},
                                                {.name = "bbbb", .target = "", .attributes = {}}};
    Directory of_pieces;
    of_pieces.entries = 2 * piece_entries;
    of_pieces.first_names = {"aaaa", "bbbb"};
    for (const Publication& publication :
         {publication_of({ObjectKind::batch, "/app"}, listing_of(two)),
          publication_of({ObjectKind::names, "/app"}, make_object(of_pieces)),
          publication_of({ObjectKind::names, "/app"}, make_object(test::directory_of(two))),
          publication_of({ObjectKind::names, "/app"}, listing_of(two, Listing::Detail::names_only)),
          publication_of({ObjectKind::xattr_batch, "/app"},
                         make_object(XattrBatch{.entries = {{"aaaa", Xattrs{}}, {"bbbb", Xattrs{}}}}))}) {
        const Frame frame = encode(publication);
        auto body = copy_of(frame.body);
        const std::size_t first = place_of(body, "aaaa");
        const std::size_t second = place_of(body, "bbbb");
        const auto with_names = [&](const char* one, const char* other) {
            std::memcpy(body.data() + first, one, 4);
            std::memcpy(body.data() + second, other, 4);
            return decode(vouch_for(frame, body));
        };
        EXPECT_TRUE(with_names("aaaa", "cccc")) << "the helper is right";
        for (const auto& [one, other] :
             {std::pair("bbbb", "aaaa"), {"aaaa", "aaaa"}, {"a/aa", "bbbb"}, {"aaaa", "b\0bb"}}) {
            const auto refused = with_names(one, other);
            ASSERT_FALSE(refused) << one << other;
            expect_damaged(refused.error(), publication);
        }
    }
}

// Whoever has a directory's object takes it to have all its names, or to have pieces.
TEST(WireNonsense, DirectoriesThatDoNotCountTheirNames) {
    const Publication publication = publication_of({ObjectKind::directory, "/app"}, some_directory());
    const Frame frame = encode(publication);
    const auto body = copy_of(frame.body);
    const std::uint64_t entries = publication.object->directory()->entries;
    std::size_t places = 0;
    for (std::size_t i = 0; i + sizeof entries <= body.size(); ++i) {
        if (std::memcmp(body.data() + i, &entries, sizeof entries) != 0) {
            continue;
        }
        for (const std::uint64_t claimed : {entries - 1, entries + 1, 3 * std::uint64_t{piece_entries}}) {
            auto damaged = body;
            std::memcpy(damaged.data() + i, &claimed, sizeof claimed);
            const auto decoded = decode(vouch_for(frame, damaged));
            places += decoded ? 0U : 1U;
        }
    }
    EXPECT_GE(places, 3U);
    Directory nothing;
    nothing.version = 5;
    nothing.entries = 1;  // so that it is written as one of pieces
    nothing.first_names = {"a"};
    const Frame pieces = encode(publication_of({ObjectKind::directory, "/app"}, make_object(nothing)));
    EXPECT_TRUE(decode(pieces));
    auto damaged = copy_of(pieces.body);
    std::size_t emptied = 0;
    const std::uint64_t one = 1;
    for (std::size_t i = 0; i + sizeof one <= damaged.size(); ++i) {
        if (std::memcmp(damaged.data() + i, &one, sizeof one) == 0) {
            auto empty = damaged;
            std::memset(empty.data() + i, 0, sizeof one);
            emptied += decode(vouch_for(pieces, empty)) ? 0U : 1U;
        }
    }
    EXPECT_GE(emptied, 1U) << "first names of nothing";
}

TEST(WireNonsense, TextsThatClaimMoreBytesThanThereAre) {
    const std::string large(3000, 'x');
    for (const Message& message :
         {Message(Answer{.id = 1, .origin = Rank{1}, .parts = {{Rank{1}, large}, {Rank{2}, "small"}}}),
          Message(
              publication_of({ObjectKind::entry, "/app"},
                             listing_of({{.name = "app", .target = large, .attributes = attributes(1)}}))),
          Message(publication_of({ObjectKind::xattrs, "/app"},
                                 make_object(Xattrs{{"user.a", large}, {"user.b", "small"}}))),
          Message(
              publication_of({ObjectKind::xattr_batch, "/app"},
                             make_object(XattrBatch{.entries = {{"a", Xattrs{{"user.a", large}}},
                                                                {"b", Xattrs{{"user.b", "small"}}}}})))}) {
        const Frame frame = encode(message);
        auto body = copy_of(frame.body);
        ASSERT_TRUE(decode(vouch_for(frame, body)));
        const std::size_t text = place_of(body, large);
        for (const unsigned claimed : {3001U, 4000U, 16383U}) {  // 3,000 as LEB128: 0xb8 0x17
            body[text - 2] = static_cast<std::byte>(claimed | 0x80U);
            body[text - 1] = static_cast<std::byte>(claimed >> 7U);
            EXPECT_FALSE(decode(vouch_for(frame, body))) << claimed;
        }
    }
}

TEST(WireNonsense, AnExtentThatIsTooLarge) {
    expect_refused(publication_of({ObjectKind::extent, "/app/x"}, extent_of(extent_bytes + 1)),
                   "extent_bytes + 1");
}

TEST(WireNonsense, CodedExtents) {
    const auto refuse = [](Extent extent, std::string_view what) {
        expect_refused(publication_of({ObjectKind::extent, "/app/x"}, make_object(std::move(extent))), what);
    };
    const Extent sound = *coded_extent_of(1000)->extent();
    for (const std::size_t plain_bytes : {std::size_t{0}, sound.blob.size, std::size_t{extent_bytes},
                                          std::size_t{extent_bytes + 1}, SIZE_MAX}) {
        Extent extent = sound;
        extent.plain_bytes = plain_bytes;
        refuse(extent, "plain_bytes");
        extent.coding = Coding::plain;
        extent.plain_bytes += plain_bytes == extent.blob.size ? 1 : 0;
        refuse(extent, "plain_bytes of plain bytes");
    }
    for (std::size_t cut = 0; cut < sound.blob.size; ++cut) {
        Extent extent = sound;
        extent.blob = copy_to_blob(sound.blob.span().first(cut));
        refuse(extent, "a blob cut short");
    }
    Extent extent = sound;
    extent.coding = static_cast<Coding>(2);
    refuse(extent, "a coding");
}

// With a checksum that vouches for it: a table that does not match is refused, damaged blocks are found out
// when they are decoded.
TEST(WireNonsense, EveryByteOfACodedExtent) {
    const auto memory = ExtentMemory::make();
    const Frame frame = encode(publication_of({ObjectKind::extent, "/app/x"}, coded_extent_of(1000)));
    const auto body = copy_of(frame.body);
    for (std::size_t i = 0; i < body.size(); ++i) {
        for (unsigned flip = 1; flip < 256; ++flip) {
            auto damaged = body;
            damaged[i] ^= static_cast<std::byte>(flip);
            const auto accepted = decode(vouch_for(frame, damaged));
            ASSERT_EQ(accepted.has_value(), i >= sizeof(std::uint32_t)) << i;
            if (accepted) {
                const auto plain =
                    read_plain(*std::get<Publication>(*accepted).object->extent(), 0, 1000, *memory);
                ASSERT_TRUE(!plain || plain->bytes.size() == 1000);
            }
        }
    }
}

TEST(WireNonsense, ContentOfTheWrongKind) {
    const ObjectPtr listing = some_listing();
    const ObjectPtr extent = extent_of(10);
    const ObjectPtr xattrs = make_object(Xattrs{});
    const ObjectPtr batch = make_object(XattrBatch{});
    expect_refused(publication_of({ObjectKind::xattrs, "/a"}, batch), "a batch");
    expect_refused(publication_of({ObjectKind::xattr_batch, "/a"}, xattrs), "xattrs");
    for (const ObjectKind kind : {ObjectKind::batch, ObjectKind::entry, ObjectKind::extent,
                                  ObjectKind::xattrs, ObjectKind::xattr_batch}) {
        expect_refused(publication_of({kind, "/a"}, some_directory()), "a directory");
        expect_refused(publication_of({kind, "/a"}, huge_directory()), "a directory");
    }
    expect_refused(publication_of({ObjectKind::directory, "/a"}, listing), "a listing");
    for (const ObjectKind kind :
         {ObjectKind::directory, ObjectKind::names, ObjectKind::batch, ObjectKind::entry}) {
        expect_refused(publication_of({kind, "/a"}, extent), "an extent");
        expect_refused(publication_of({kind, "/a"}, xattrs), "xattrs");
    }
    expect_refused(publication_of({ObjectKind::extent, "/a"}, listing), "a listing");
    expect_refused(publication_of({ObjectKind::extent, "/a"}, xattrs), "xattrs");
    expect_refused(publication_of({ObjectKind::xattrs, "/a"}, listing), "a listing");
    expect_refused(publication_of({ObjectKind::xattrs, "/a"}, extent), "an extent");
}

TEST(WireNonsense, UnknownEnumerators) {
    for (const int value : {11, 12, 77, 255}) {
        expect_refused(Interest{.key = {static_cast<ObjectKind>(value), "/a"}}, "a kind");
        expect_refused(publication_of({static_cast<ObjectKind>(value), "/a"}, some_listing()), "a kind");
    }
    const Extent extent{.attributes = {}, .blob = {}, .coding = static_cast<Coding>(3)};
    expect_refused(publication_of({ObjectKind::extent, "/a"}, make_object(extent)), "a coding");
    expect_refused(Interest{.key = {ObjectKind::acl, "/a", 2}}, "an access control list of another type");
    expect_refused(Interest{.key = {ObjectKind::extent, "/a"}, .why = static_cast<FetchFor>(3)}, "a reason");
}

TEST(WireNonsense, NewsThatCannotBe) {
    const auto refuse = [](const std::vector<News>& news, std::string_view what) {
        expect_refused(Interest{.key = {ObjectKind::directory, "/a"}, .news = news}, what);
        expect_refused(Ping{.news = news}, what);
        expect_refused(Pong{.news = news}, what);
        Publication publication = small_publication();
        publication.news = news;
        expect_refused(publication, what);
    };
    refuse({{Rank{1}, incarnation_max + 1, NodeState::serving}}, "an incarnation after which there is none");
    refuse({{Rank{1}, 0, static_cast<NodeState>(4)}}, "a state");
    refuse(std::vector<News>(news_told_max + 1), "too much");
}

TEST(WireNonsense, FindingsThatCannotBe) {
    const auto refuse = [](const std::vector<Finding>& findings, std::string_view what) {
        expect_refused(Interest{.key = {ObjectKind::directory, "/a"}, .findings = findings}, what);
    };
    refuse({{Rank{1}, -1}}, "a negative error");
    refuse({{Rank{1}, EIO}, {Rank{2}, 512}}, "an error that the kernel does not know");
    refuse(std::vector<Finding>(findings_max + 1), "too many");
}

TEST(WireNonsense, XattrBatchesThatNoDirectoryHas) {
    const auto refuse = [](std::vector<XattrBatch::Entry> entries, std::string_view what) {
        expect_refused(publication_of({ObjectKind::xattr_batch, "/a"},
                                      make_object(XattrBatch{.entries = std::move(entries)})),
                       what);
    };
    refuse({{"b", Xattrs{}}, {"a", Xattrs{}}}, "names out of order");
    refuse({{"a", Xattrs{}}, {"a", Xattrs{}}}, "a name twice");
    refuse({{"", Xattrs{}}}, "an empty name");
    refuse({{"a/b", std::nullopt}}, "a path");
    refuse(std::vector<XattrBatch::Entry>(batch_entries + 1), "too many names");
}

// Only names, batches and extents have an index and a version: another one would be a second name for the
// same object.
TEST(WireNonsense, AnIndexWhereThereIsNone) {
    for (const ObjectKind kind : {ObjectKind::directory, ObjectKind::entry, ObjectKind::xattrs}) {
        expect_refused(Interest{.key = {kind, "/a", 1}}, "an index");
        expect_refused(Interest{.key = {kind, "/a", 0, 1}}, "a version");
    }
}

// The kernel does not take an error beyond 511 for an answer: who asked would wait for ever.
TEST(WireNonsense, ErrorNumbers) {
    for (const int number : {0, -1, -EIO, 512, 100000, std::numeric_limits<int>::max()}) {
        expect_refused(publication_of({ObjectKind::directory, "/a"},
                                      make_object(std::error_code(number, std::generic_category()))),
                       std::to_string(number));
    }
}

// What is added to a clock must not overflow it.
TEST(WireNonsense, Durations) {
    constexpr auto longest = std::chrono::milliseconds::max();
    expect_refused(publication_of({ObjectKind::directory, "/a"}, make_object(Directory(), longest)),
                   "a lifetime");
    for (const auto spent : {longest, std::chrono::milliseconds(-1)}) {
        expect_refused(Working{.key = {ObjectKind::directory, "/a"}, .spent = spent}, "time spent");
        expect_refused(Working{.key = {ObjectKind::directory, "/a"}, .still = spent},
                       "time without progress");
        expect_refused(Interest{.key = {ObjectKind::directory, "/a"}, .spent = spent},
                       "time spent by others");
    }
    expect_refused(Working{.key = {ObjectKind::directory, "relative"}}, "work on no object");
    expect_refused(Call{.id = 1, .origin = {}, .verb = "v", .argument = "", .patience = longest}, "patience");
    expect_refused(Call{.id = 1, .origin = {}, .verb = "v", .argument = "", .patience = -1ms},
                   "negative patience");
}

}  // namespace
}  // namespace copper
