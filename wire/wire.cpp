#include "wire/wire.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "base/archive.hpp"
#include "base/checksum.hpp"
#include "base/path.hpp"
#include "cache/codec.hpp"

// A header is a checksum (xxh3, 8 bytes) of what follows it, the body's checksum (0 if there is no body), and
// a Message. A Publication and an Answer have a body: an extent's bytes in their coding, or what is described
// below.
namespace copper {
namespace {

// The kernel accepts no larger error number in the answer to a FUSE request (fuse_dev_do_write).
constexpr int error_number_max = 511;

bool is_possible(const ObjectKey& key) {
    const bool is_part = key.kind == ObjectKind::extent || key.kind == ObjectKind::batch ||
                         key.kind == ObjectKind::names || key.kind == ObjectKind::xattr_batch ||
                         key.kind == ObjectKind::acl_batch;
    const bool has_version = is_part || key.kind == ObjectKind::data_map;
    const std::uint32_t index_max = key.kind == ObjectKind::acl ? acl_names.size() - 1 : 0;
    return is_normalised_path(key.path) && (is_part || key.index <= index_max) &&
           (has_version || key.version == 0);
}

// Valid ones, sorted.
template <typename Elements, typename ToName = std::identity>
bool are_names(const Elements& elements, ToName name = {}) {
    return std::ranges::all_of(elements, is_valid_name, name) &&
           std::ranges::adjacent_find(elements, std::ranges::greater_equal(), name) == elements.end();
}

}  // namespace

// ---- values of headers. Archives look for these in this namespace.

void describe(auto& archive, MaybeConst<Rank> auto& rank) {
    archive(rank.value);
}

void describe(auto& archive, MaybeConst<News> auto& news) {
    archive(news.rank, at_most(news.incarnation, incarnation_max), at_most(news.state, NodeState::dead));
}

void describe(auto& archive, MaybeConst<Finding> auto& finding) {
    archive(finding.reader, at_most(finding.error, error_number_max));
    archive.require([&] { return finding.error >= 0; });
}

void describe(auto& archive, MaybeConst<ObjectKey> auto& key) {
    archive(at_most(key.kind, last_shared_object_kind), key.path, key.index, key.version, key.generation);
    archive.require([&] { return is_possible(key); });
}

void describe(auto& archive, MaybeConst<Attributes> auto& of) {
    archive(of.inode, of.size, of.blocks, of.device, of.mode, of.links, of.user, of.group, of.block_bytes,
            of.accessed.seconds, of.accessed.nanoseconds, of.modified.seconds, of.modified.nanoseconds,
            of.changed.seconds, of.changed.nanoseconds);
}

template <typename Archive>
void describe(Archive& archive, MaybeConst<std::error_code> auto& error) {
    int number = error.value();
    archive(at_most(number, error_number_max));
    archive.require([&] { return number > 0; });
    if constexpr (Archive::is_reading) {
        error = std::error_code(number, std::generic_category());
    }
}

// Without what its body has: all but an error, and an extent's size and attributes.
template <typename Archive>
void describe(Archive& archive, MaybeConst<Object> auto& object) {
    archive(object.lifetime);
    describe_alternative(archive, object.content);
    std::visit(
        [&archive]<typename T>(T& content) {
            if constexpr (MaybeConst<T, std::error_code>) {
                archive(content);
            } else if constexpr (MaybeConst<T, Extent>) {
                archive(content.attributes, at_most(content.coding, Coding::zeros), content.plain_bytes);
            }
        },
        object.content);
}

// ---- messages

void describe(auto& archive, MaybeConst<Interest> auto& interest) {
    archive(interest.key, interest.seen[0], interest.seen[1], interest.attempt, interest.hops,
            interest.origin, at_most(interest.wanted, Interest::Wanted::by_several),
            at_most(interest.why, FetchFor::everyone), at_most(interest.findings, findings_max),
            interest.spent, interest.is_urging, at_most(interest.news, news_told_max));
}

void describe(auto& archive, MaybeConst<Decline> auto& decline) {
    archive(decline.key, decline.found);
}

void describe(auto& archive, MaybeConst<Working> auto& working) {
    archive(working.key, working.spent, working.still, working.place_in_queue);
}

template <typename Archive>
void describe(Archive& archive, MaybeConst<Publication> auto& publication) {
    archive(publication.key, publication.root, publication.tree,
            at_most(publication.spread, Publication::Spread::asked), publication.serial, publication.sequence,
            at_most(publication.news, news_told_max));
    if constexpr (Archive::is_reading) {
        Object object;
        archive(object);
        publication.object = make_object(std::move(object.content), object.lifetime);
    } else {
        archive(*publication.object);
    }
}

void describe(auto& archive, MaybeConst<Call> auto& call) {
    archive(call.id, call.origin, call.verb, call.argument, call.patience,
            at_most(call.silence, Call::Silence::is_expected));
}

void describe(auto& archive, MaybeConst<Answer> auto& answer) {
    archive(answer.id, answer.origin, answer.answers);
}

void describe(auto& archive, MaybeConst<Ping> auto& ping) {
    archive(at_most(ping.news, news_told_max));
}

void describe(auto& archive, MaybeConst<Pong> auto& pong) {
    archive(at_most(pong.news, news_told_max));
}

// ---- bodies

// Of a Listing: an Entry, or a NewEntry.
void describe_entry(auto& archive, auto& entry, bool has_attributes) {
    archive(entry.name, entry.target, entry.leads_into_trees, entry.begins_filesystem);
    if (has_attributes) {
        archive(entry.attributes);
    } else {
        archive(entry.attributes.inode, entry.attributes.mode);
    }
}

template <MaybeConst<Listing> T>
void describe(Writer& archive, T& listing) {
    archive(listing.has_attributes());
    archive.length(listing.size());
    for (std::size_t i = 0; i < listing.size(); ++i) {
        const Listing::Entry entry = listing.at(i);
        describe_entry(archive, entry, listing.has_attributes());
    }
}

template <MaybeConst<Listing> T>
void describe(Reader& archive, T& listing) {
    bool has_attributes = false;
    std::size_t size = 0;
    archive(has_attributes);
    archive.length(size);
    std::vector<Listing::NewEntry> entries;
    entries.reserve(std::min(size, piece_entries));
    while (entries.size() < size && archive.is_sound()) {
        auto& entry = entries.emplace_back();
        describe_entry(archive, entry, has_attributes);
        archive.require([&] { return entry.target.size() < path_bytes_max; });
    }
    archive.require([&] { return are_names(entries, &Listing::NewEntry::name); });
    if (archive.is_sound()) {
        listing = Listing(std::move(entries),
                          has_attributes ? Listing::Detail::attributes : Listing::Detail::names_only);
    }
}

template <typename Archive>
void describe(Archive& archive, MaybeConst<Directory> auto& directory) {
    constexpr std::int64_t longest_operation = std::numeric_limits<std::uint32_t>::max();
    auto operation = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(directory.operation_time.count(), 0, longest_operation));
    bool has_all_names = directory.has_all_names();
    archive(directory.version, directory.entries, directory.is_proven, directory.is_serial, operation,
            has_all_names);
    if (has_all_names) {
        archive(directory.names);
    } else {
        archive(directory.first_names);
    }
    if constexpr (Archive::is_reading) {
        directory.operation_time = std::chrono::microseconds(operation);
        if (directory.names.size() != 0) {
            directory.first_names.emplace_back(directory.names.name(0));
        }
        archive.require([&] {
            return !directory.names.has_attributes() && directory.has_all_names() == has_all_names &&
                   are_names(directory.first_names);
        });
    }
}

void describe(auto& archive, MaybeConst<XattrBatch::Entry> auto& entry) {
    archive(entry.name, entry.xattrs);
}

void describe(auto& archive, MaybeConst<XattrBatch> auto& batch) {
    archive(at_most(batch.entries, batch_entries));
    archive.require([&] { return are_names(batch.entries, &XattrBatch::Entry::name); });
}

void describe(auto& archive, MaybeConst<DataMap::Segment> auto& segment) {
    archive(segment.begin, segment.end);
}

void describe(auto& archive, MaybeConst<DataMap> auto& map) {
    archive(map.attributes, at_most(map.segments, DataMap::segments_max));
}

void describe(auto& archive, MaybeConst<FilesystemSpace> auto& space) {
    archive(space.block_bytes, space.fragment_bytes, space.blocks, space.free, space.available, space.files,
            space.free_files, space.name_bytes_max);
}

void describe(auto& archive, MaybeConst<Answer::Part> auto& part) {
    archive(part.rank, part.text, part.with);
}

namespace {

constexpr std::size_t checksum_bytes = sizeof(std::uint64_t);

std::uint64_t sum_of(const Blob& body) {
    return body.size == 0 ? 0 : checksum_of(body);
}

Blob to_blob(Writer& writer) {
    const std::size_t size = writer.written().size();
    return {writer.take(), size};
}

Blob write_body(const auto& value, std::size_t bytes_expected) {
    Writer writer(bytes_expected);
    writer(value);
    return to_blob(writer);
}

bool read_body(const Blob& body, auto& value) {
    Reader reader(body.span());
    reader(value);
    return reader.is_done();
}

Blob body_of(const Object& object) {
    return std::visit(
        [&object]<typename T>(const T& content) -> Blob {
            if constexpr (std::same_as<T, std::error_code>) {
                return {};
            } else if constexpr (std::same_as<T, Extent>) {
                return content.blob;
            } else {
                return write_body(content, object.bytes());
            }
        },
        object.content);
}

bool adopt_body(const Blob& body, Content& content) {
    return std::visit(
        [&body]<typename T>(T& value) {
            if constexpr (std::same_as<T, std::error_code>) {
                return body.size == 0;
            } else if constexpr (std::same_as<T, Extent>) {
                value.blob = body;
                return is_sound(value);
            } else {
                return read_body(body, value);
            }
        },
        content);
}

// A message's frame, without its header.
Frame frame_of(const auto&) {
    return {};
}

Frame frame_of(const Publication& publication) {
    const Extent* extent = publication.object->extent();
    const bool is_compressed = extent != nullptr && extent->coding == Coding::lz4;
    return {.header = {},
            .body = body_of(*publication.object),
            .lane = publication.lane,
            .saved_bytes = is_compressed ? extent->plain_bytes - extent->blob.size : 0};
}

Frame frame_of(const Answer& answer) {
    Blob body = write_body(answer.parts, 0);
    const Lane lane = body.size > eager_body_bytes_max ? Lane::bulk : Lane::eager;
    return {.header = {}, .body = std::move(body), .lane = lane};
}

// An error answers anything, and where a directory has other names by now, the directory answers for them.
bool answers(const Object& object, ObjectKind kind) {
    if (object.error()) {
        return true;
    }
    switch (kind) {
        case ObjectKind::directory:
            return object.directory() != nullptr;
        case ObjectKind::names:
            return object.listing() != nullptr || object.directory() != nullptr;
        case ObjectKind::batch:
        case ObjectKind::entry:
            return object.listing() != nullptr;
        case ObjectKind::extent:
            return object.extent() != nullptr;
        case ObjectKind::xattrs:
        case ObjectKind::acl:
            return object.xattrs() != nullptr;
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return object.xattr_batch() != nullptr;
        case ObjectKind::data_map:
            return object.data_map() != nullptr;
        case ObjectKind::space:
            return object.space() != nullptr;
        case ObjectKind::own_extent:
            break;
    }
    return false;
}

// The rest of a message whose header is sound.

tl::expected<void, WireError> complete(auto&, const Blob&, bool, Lane) {
    return {};
}

tl::expected<void, WireError> complete(Publication& publication, const Blob& body, bool is_intact,
                                       Lane lane) {
    Object object = *publication.object;
    if (!is_intact || !answers(object, publication.key.kind) || !adopt_body(body, object.content)) {
        return refuse((is_intact ? "a malformed " : "a wrong checksum of ") + to_string(publication.key),
                      Damaged{publication.key, lane, publication.sequence});
    }
    publication.lane = lane;
    publication.object = make_object(std::move(object.content), object.lifetime);
    return {};
}

tl::expected<void, WireError> complete(Answer& answer, const Blob& body, bool is_intact, Lane) {
    if (!is_intact || !read_body(body, answer.parts)) {
        return refuse("an answer with a damaged body");
    }
    return {};
}

}  // namespace

Frame encode(const Message& message) {
    Frame frame = std::visit([](const auto& content) { return frame_of(content); }, message);
    constexpr std::size_t bytes_expected = 512;
    Writer writer(bytes_expected);
    writer(std::uint64_t{0}, sum_of(frame.body), message);
    const std::uint64_t sum = checksum_of(writer.written().subspan(checksum_bytes));
    std::memcpy(writer.written().data(), &sum, checksum_bytes);
    frame.header = to_blob(writer);
    return frame;
}

tl::expected<Message, WireError> decode(const Frame& frame) {
    if (frame.header.size <= checksum_bytes || frame.header.size > header_bytes_max) {
        return refuse("a header of " + std::to_string(frame.header.size) + " bytes");
    }
    std::uint64_t sum = 0;
    std::memcpy(&sum, frame.header.data.get(), checksum_bytes);
    const auto rest = frame.header.span().subspan(checksum_bytes);
    if (checksum_of(rest) != sum) {
        return refuse("a wrong checksum of a header");
    }
    Reader reader(rest);
    std::uint64_t body_sum = 0;
    Message message;
    reader(body_sum, message);
    if (!reader.is_done()) {
        return refuse("a malformed header");
    }
    const bool is_intact = sum_of(frame.body) == body_sum;
    const Blob body{frame.body.data, frame.body.size, body_sum};
    return std::visit([&](auto& content) { return complete(content, body, is_intact, frame.lane); }, message)
        .transform([&] { return std::move(message); });
}

}  // namespace copper
