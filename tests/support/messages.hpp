// Messages of every kind, for the tests of the wire format and as the first inputs of its fuzzer.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cache/codec.hpp"
#include "wire/message.hpp"

namespace copper::test {

using namespace std::chrono_literals;

inline Attributes attributes(std::uint32_t mode) {
    return {.inode = 7,
            .size = 1234,
            .blocks = 8,
            .device = 0,
            .mode = mode,
            .links = 1,
            .user = 1000,
            .group = 100,
            .block_bytes = 4096,
            .accessed = {1, 2},
            .modified = {-3, 999999999},
            .changed = {1700000000, 5}};
}

inline std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::byte>(i / 5000 * 7 + i % 3);
    }
    return bytes;
}

inline Extent coded_extent(std::size_t size) {
    return {.attributes = attributes(0100644),
            .blob = lz4_coded(pattern(size)).value(),
            .coding = Coding::lz4,
            .plain_bytes = size};
}

inline Publication publication_of(ObjectKey key, ObjectPtr object) {
    return {.key = std::move(key),
            .root = Rank{3},
            .serial = 17,
            .sequence = 18,
            .lane = Lane::eager,
            .object = std::move(object)};
}

inline std::vector<News> most_news() {
    std::vector<News> news;
    for (std::uint32_t i = 0; i < news_told_max; ++i) {
        news.push_back({.rank = Rank{0xffffffff - i},
                        .incarnation = i == 0 ? incarnation_max : i,
                        .state = static_cast<NodeState>(i % 4)});
    }
    return news;
}

inline const std::string any_bytes("caf\xc3\xa9 \xff\xfe\n\t\x01 %s");

inline Listing some_listing(Listing::Detail detail) {
    return Listing(
        {{.name = "__init__.py", .target = "", .attributes = attributes(0100644)},
         {.name = any_bytes,
          .target = "/" + any_bytes,
          .attributes = attributes(0120777),
          .leads_into_trees = true},
         {.name = "lib", .target = "", .attributes = attributes(040755), .begins_filesystem = true}},
        detail);
}

// Small ones, with the least and the most that their fields can hold.
inline std::vector<Message> messages() {
    const auto names = make_object(some_listing(Listing::Detail::names_only));
    const auto entries = make_object(some_listing(Listing::Detail::attributes));
    Directory directory;
    directory.version = 1ULL << 63U;
    directory.names = *names->listing();
    directory.entries = directory.names.size();
    directory.first_names.emplace_back(directory.names.at(0).name);
    directory.operation_time = 1500us;
    directory.is_serial = true;
    Directory huge;
    huge.version = 7;
    huge.entries = 3000;
    huge.first_names = {"a", std::string(255, 'b')};
    huge.is_proven = false;
    huge.operation_time = std::chrono::microseconds(std::numeric_limits<std::uint32_t>::max());
    const XattrBatch xattr_batch{.entries = {{"a.so", Xattrs{{"user.a", "1"}, {"user.b", any_bytes}}},
                                             {"b.so", std::nullopt},
                                             {"c.so", Xattrs{}}}};
    const auto extent = [](std::string path, Extent content) {
        return publication_of({ObjectKind::extent, std::move(path), 1, 2}, make_object(std::move(content)));
    };
    Publication extreme = publication_of({ObjectKind::directory, "/"}, make_object(Directory(), 0ms));
    extreme.root = Rank{0xffffffff};
    extreme.spread = Publication::Spread::asked;
    extreme.lane = Lane::bulk;
    extreme.tree = 0xffffffff;
    extreme.serial = std::numeric_limits<std::uint64_t>::max();
    extreme.sequence = 1ULL << 63U;
    extreme.news = most_news();
    return {
        Interest{.key = {ObjectKind::directory, "/lus/sw"}},
        Interest{.key = {ObjectKind::extent, "/lus/" + any_bytes, 0xffffffff, 1ULL << 63U, ~0ULL},
                 .seen = {1ULL << 63U, 42},
                 .attempt = 3,
                 .hops = 0xfffffffe,
                 .origin = Rank{0xfffffffd},
                 .wanted = Interest::Wanted::by_several,
                 .why = FetchFor::everyone,
                 .findings = {{Rank{0xfffffffc}, EIO}, {Rank{0}, Finding::empty}, {Rank{1}, 511}},
                 .spent = 24h,
                 .is_urging = true,
                 .news = most_news()},
        Interest{.key = {ObjectKind::acl, "/lus/sw", 1}, .news = {{Rank{1}, 7, NodeState::resigned}}},
        Decline{.key = {ObjectKind::extent, "/lus/" + any_bytes, 3, 4}, .found = Finding{Rank{2}, EIO}},
        Working{
            .key = {ObjectKind::directory, "/lus/sw"}, .spent = 24h, .still = 1h, .place_in_queue = ~0ULL},
        publication_of({ObjectKind::directory, "/lus/sw"}, make_object(directory)),
        publication_of({ObjectKind::names, "/lus/huge", 2, 8}, make_object(directory, 1000ms)),
        publication_of({ObjectKind::names, "/lus/huge", 2, 7}, names),
        publication_of({ObjectKind::batch, "/lus/huge", 2, 7}, entries),
        publication_of({ObjectKind::directory, "/lus/huge"}, make_object(huge, error_lifetime)),
        publication_of({ObjectKind::entry, "/lus/absent"},
                       make_object(Listing({}, Listing::Detail::attributes))),
        extent("/lus/sw/a.so", {.attributes = attributes(0100644), .blob = copy_to_blob(pattern(100))}),
        extent("/lus/sw/empty", {.attributes = {}, .blob = {}}),
        extent("/lus/sw/b.so", coded_extent(1000)),
        extent("/lus/sw/c.so", coded_extent(2 * coded_block_bytes + 5)),
        extent("/lus/sw/zeros", {.attributes = attributes(0100644),
                                 .blob = {},
                                 .coding = Coding::zeros,
                                 .plain_bytes = extent_bytes}),
        publication_of(
            {ObjectKind::data_map, "/lus/sw/a.so", 0, 1},
            make_object(DataMap{.attributes = attributes(0100644), .segments = {{0, 10}, {20, 99}}})),
        publication_of(
            {ObjectKind::space, "/lus/sw"},
            make_object(FilesystemSpace{.block_bytes = 1, .blocks = ~0ULL, .name_bytes_max = 255}, 2s)),
        publication_of({ObjectKind::xattrs, "/lus/sw"},
                       make_object(Xattrs{{"user.a", ""}, {"security.capability", std::string(20, '\0')}})),
        publication_of({ObjectKind::xattrs, "/lus/sw/a.so"}, make_object(Xattrs())),
        publication_of({ObjectKind::acl, "/lus/sw", 1},
                       make_object(Xattrs{{"system.posix_acl_default", std::string("\2\0", 2)}})),
        publication_of({ObjectKind::xattr_batch, "/lus/sw", 3, 17}, make_object(xattr_batch)),
        publication_of({ObjectKind::acl_batch, "/lus/sw", 3, 17}, make_object(xattr_batch)),
        publication_of({ObjectKind::xattr_batch, "/lus/huge", 2, 7}, make_object(XattrBatch())),
        publication_of({ObjectKind::directory, "/lus/secret"}, make_error(EACCES)),
        extreme,
        Call{.id = ~0ULL, .origin = Rank{7}, .verb = "stats", .argument = any_bytes, .patience = 5s},
        Call{.origin = {}, .verb = "", .argument = "", .silence = Call::Silence::is_expected},
        Answer{.id = 8, .origin = Rank{1}, .parts = {}},
        Answer{.id = 8,
               .origin = Rank{1},
               .parts = {{Rank{0}, any_bytes, {Rank{3}, Rank{4}}}, {Rank{2}, ""}},
               .answers = 2},
        Ping{},
        Pong{.news = most_news()}};
}

// ---- all that they hold

inline bool equal(const Listing& a, const Listing& b) {
    bool equal = a.size() == b.size() && a.has_attributes() == b.has_attributes();
    for (std::size_t i = 0; equal && i < a.size(); ++i) {
        const auto x = a.at(i);
        const auto y = b.at(i);
        equal = x.name == y.name && x.target == y.target && x.attributes == y.attributes &&
                x.leads_into_trees == y.leads_into_trees && x.begins_filesystem == y.begins_filesystem;
    }
    return equal;
}

inline bool equal(const Extent& a, const Extent& b) {
    return a.attributes == b.attributes && a.coding == b.coding && a.plain_bytes == b.plain_bytes &&
           checksum_of(a.blob) == checksum_of(b.blob) && std::ranges::equal(a.blob.span(), b.blob.span());
}

inline bool equal(const DataMap& a, const DataMap& b) {
    return a == b;
}

inline bool equal(const FilesystemSpace& a, const FilesystemSpace& b) {
    return a == b;
}

inline bool equal(const std::error_code& a, const std::error_code& b) {
    return a == b;
}

inline bool equal(const Xattrs& a, const Xattrs& b) {
    return a == b;
}

inline bool equal(const Directory& a, const Directory& b) {
    return a.version == b.version && a.entries == b.entries && a.first_names == b.first_names &&
           a.operation_time == b.operation_time && a.is_proven == b.is_proven && a.is_serial == b.is_serial &&
           equal(a.names, b.names);
}

inline bool equal(const XattrBatch& a, const XattrBatch& b) {
    return a == b;
}

inline bool equal(const Publication& a, const Publication& b) {
    const auto contents_equal = [](const auto& x, const auto& y) {
        if constexpr (std::is_same_v<decltype(x), decltype(y)>) {
            return equal(x, y);
        } else {
            return false;
        }
    };
    return a.key == b.key && a.root == b.root && a.tree == b.tree && a.spread == b.spread &&
           a.serial == b.serial && a.sequence == b.sequence && a.lane == b.lane && a.news == b.news &&
           a.object->lifetime == b.object->lifetime &&
           std::visit(contents_equal, a.object->content, b.object->content);
}

template <typename T>
bool equal(const T& a, const T& b) {
    return a == b;
}

inline bool equal(const Message& a, const Message& b) {
    return a.index() == b.index() &&
           std::visit([&b](const auto& x) { return equal(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
}

}  // namespace copper::test
