#include "wire/wire.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/checksum.hpp"
#include "base/path.hpp"
#include "cache/codec.hpp"
#include "wire_generated.h"

namespace copper {
namespace {

namespace fb = flatbuffers;
using Builder = fb::FlatBufferBuilder;
using Bytes = std::span<const std::byte>;
template <typename Struct>
using Structs = fb::Vector<const Struct*>;

constexpr std::size_t checksum_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t verifier_tables_max = 16;
constexpr std::uint64_t verifier_depth_max = 16;
// The kernel accepts no larger error number in the answer to a FUSE request (fuse_dev_do_write).
constexpr int error_number_max = 511;
// The limit for durations that are added to a clock: a year.
constexpr std::int64_t duration_milliseconds_max = 366LL * 24 * 3600 * 1000;

std::string_view text_of(const fb::Vector<std::uint8_t>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

auto bytes_of(Builder& builder, std::string_view text) {
    return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

template <typename Number>
Number size_of(std::string_view text) {
    return static_cast<Number>(text.size());
}

// Nothing if the bytes are not a valid buffer with this root.
template <typename Table>
const Table* verified(Bytes bytes) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    fb::Verifier verifier(data, bytes.size(), verifier_depth_max, verifier_tables_max);
    return verifier.VerifyBuffer<Table>(nullptr) ? fb::GetRoot<Table>(data) : nullptr;
}

// ---- values

wire::Details to_wire(const Attributes& a) {
    return {a.size,
            a.blocks,
            a.device,
            a.accessed.seconds,
            a.modified.seconds,
            a.changed.seconds,
            a.accessed.nanoseconds,
            a.modified.nanoseconds,
            a.changed.nanoseconds,
            a.links,
            a.user,
            a.group,
            a.block_bytes};
}

Attributes from_wire(const wire::Details& a, std::uint64_t inode, std::uint32_t mode) {
    return {.inode = inode,
            .size = a.size(),
            .blocks = a.blocks(),
            .device = a.device(),
            .mode = mode,
            .links = a.links(),
            .user = a.user(),
            .group = a.group(),
            .block_bytes = a.block_bytes(),
            .accessed = {a.accessed_seconds(), a.accessed_nanoseconds()},
            .modified = {a.modified_seconds(), a.modified_nanoseconds()},
            .changed = {a.changed_seconds(), a.changed_nanoseconds()}};
}

wire::News to_wire(const News& news) {
    return {news.rank.value, news.incarnation, static_cast<wire::NodeState>(news.state)};
}

std::optional<News> from_wire(const wire::News& news) {
    if (news.incarnation() > incarnation_max || news.state() > wire::NodeState::MAX) {
        return std::nullopt;
    }
    return News{Rank{news.rank()}, news.incarnation(), static_cast<NodeState>(news.state())};
}

wire::Finding to_wire(const Finding& finding) {
    return {finding.reader.value, finding.error};
}

std::optional<Finding> from_wire(const wire::Finding& finding) {
    if (finding.error() < 0 || finding.error() > error_number_max) {
        return std::nullopt;
    }
    return Finding{Rank{finding.reader()}, finding.error()};
}

// No vector if there are no values, as in most messages.
template <typename Struct, typename Value>
fb::Offset<Structs<Struct>> structs_of(Builder& builder, const std::vector<Value>& values) {
    std::vector<Struct> structs;
    structs.reserve(values.size());
    for (const Value& value : values) {
        structs.push_back(to_wire(value));
    }
    return structs.empty() ? 0 : builder.CreateVectorOfStructs(structs);
}

// Nothing if there are too many values, or one of them is impossible.
template <typename Value, typename Struct>
std::optional<std::vector<Value>> values_of(const Structs<Struct>* structs, std::size_t max) {
    std::vector<Value> values;
    for (fb::uoffset_t i = 0; structs != nullptr && i < structs->size(); ++i) {
        const std::optional<Value> value = from_wire(*structs->Get(i));
        if (!value || i == max) {
            return std::nullopt;
        }
        values.push_back(*value);
    }
    return values;
}

std::optional<std::chrono::milliseconds> duration_of(std::int64_t milliseconds) {
    if (milliseconds < 0 || milliseconds > duration_milliseconds_max) {
        return std::nullopt;
    }
    return std::chrono::milliseconds(milliseconds);
}

std::optional<ObjectKey> key_of(const wire::Header& header) {
    if (header.key() == nullptr || header.path() == nullptr || header.key()->kind() > wire::Kind::MAX) {
        return std::nullopt;
    }
    ObjectKey key{static_cast<ObjectKind>(header.key()->kind()), std::string(text_of(*header.path())),
                  header.key()->index(), header.key()->version(), header.key()->generation()};
    const bool is_part = key.kind == ObjectKind::extent || key.kind == ObjectKind::batch ||
                         key.kind == ObjectKind::names || key.kind == ObjectKind::xattr_batch ||
                         key.kind == ObjectKind::acl_batch;
    const bool has_version = is_part || key.kind == ObjectKind::data_map;
    const std::uint32_t index_max = key.kind == ObjectKind::acl ? acl_names.size() - 1 : 0;
    if (!is_normalised_path(key.path) || (key.index > index_max && !is_part) ||
        (key.version != 0 && !has_version)) {
        return std::nullopt;
    }
    return key;
}

// ---- bodies

// Takes the finished buffer out of the builder: no copy.
template <typename Table>
Blob finish(Builder& builder, fb::Offset<Table> root) {
    builder.Finish(root);
    auto buffer = std::make_shared<fb::DetachedBuffer>(builder.Release());
    const auto* data = reinterpret_cast<const std::byte*>(buffer->data());
    return {std::shared_ptr<const std::byte[]>(buffer, data), buffer->size()};
}

wire::Mark marks_of(const Listing::Entry& entry) {
    const auto none = static_cast<wire::Mark>(0);
    return (entry.leads_into_trees ? wire::Mark::leads_into_trees : none) |
           (entry.begins_filesystem ? wire::Mark::begins_filesystem : none);
}

bool has(const wire::Slot& slot, wire::Mark mark) {
    return (slot.marks() & mark) == mark;
}

auto to_wire(Builder& builder, const Listing& listing) {
    std::vector<wire::Slot> slots;
    slots.reserve(listing.size());
    std::vector<wire::Details> details;
    details.reserve(listing.has_attributes() ? listing.size() : 0);
    std::string text;
    for (std::size_t i = 0; i < listing.size(); ++i) {
        const Listing::Entry entry = listing.at(i);
        slots.emplace_back(entry.attributes.inode, entry.attributes.mode,
                           size_of<std::uint16_t>(entry.target), size_of<std::uint8_t>(entry.name),
                           marks_of(entry));
        if (listing.has_attributes()) {
            details.push_back(to_wire(entry.attributes));
        }
        text.append(entry.name).append(entry.target);
    }
    const auto slots_offset = builder.CreateVectorOfStructs(slots);
    const auto details_offset = listing.has_attributes() ? builder.CreateVectorOfStructs(details) : 0;
    return wire::CreateListingBody(builder, slots_offset, details_offset, bytes_of(builder, text));
}

Blob encode_body(const Listing& listing) {
    Builder builder(listing.bytes() + 256);
    return finish(builder, to_wire(builder, listing));
}

Listing listing_of(const std::vector<std::string>& names) {
    std::vector<Listing::NewEntry> entries;
    entries.reserve(names.size());
    for (const std::string& name : names) {
        entries.push_back({.name = name, .target = {}, .attributes = {}});
    }
    return Listing(std::move(entries), Listing::Detail::names_only);
}

Blob encode_body(const Directory& directory) {
    Builder builder(directory.bytes() + 256);
    const auto operation = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
        directory.operation_time.count(), 0, std::numeric_limits<std::uint32_t>::max()));
    const auto names = directory.has_all_names() ? to_wire(builder, directory.names)
                                                 : to_wire(builder, listing_of(directory.first_names));
    return finish(builder, wire::CreateDirectoryBody(builder, directory.version, directory.entries, operation,
                                                     names, !directory.has_all_names(), !directory.is_proven,
                                                     directory.is_serial));
}

Blob encode_body(const XattrBatch& batch) {
    std::vector<wire::XattrsOfName> names;
    std::vector<wire::Xattr> xattrs;
    std::string text;
    for (const XattrBatch::Entry& entry : batch.entries) {
        const std::size_t before = xattrs.size();
        text.append(entry.name);
        for (const auto& [name, value] : entry.xattrs.value_or(Xattrs())) {
            xattrs.emplace_back(size_of<std::uint32_t>(name), size_of<std::uint32_t>(value));
            text.append(name).append(value);
        }
        names.emplace_back(static_cast<std::uint32_t>(xattrs.size() - before),
                           size_of<std::uint8_t>(entry.name), entry.xattrs.has_value());
    }
    Builder builder(text.size() + 256);
    const auto names_offset = builder.CreateVectorOfStructs(names);
    const auto xattrs_offset = builder.CreateVectorOfStructs(xattrs);
    return finish(builder,
                  wire::CreateXattrsBody(builder, names_offset, xattrs_offset, bytes_of(builder, text)));
}

Blob encode_body(const Xattrs& xattrs) {
    return encode_body(XattrBatch{.entries = {{.name = "", .xattrs = xattrs}}});
}

Blob encode_body(const Extent& extent) {
    return extent.blob;
}

Blob encode_body(const DataMap& map) {
    Builder builder(map.segments.size() * sizeof(wire::Segment) + 256);
    std::vector<wire::Segment> segments;
    segments.reserve(map.segments.size());
    for (const auto& [begin, end] : map.segments) {
        segments.emplace_back(begin, end);
    }
    const auto segments_offset = builder.CreateVectorOfStructs(segments);
    const auto details = to_wire(map.attributes);
    return finish(builder, wire::CreateDataMapBody(builder, &details, map.attributes.inode,
                                                   map.attributes.mode, segments_offset));
}

Blob encode_body(const FilesystemSpace& space) {
    Builder builder;
    return finish(builder, wire::CreateSpaceBody(builder, space.block_bytes, space.fragment_bytes,
                                                 space.blocks, space.free, space.available, space.files,
                                                 space.free_files, space.name_bytes_max));
}

Blob encode_body(const std::error_code&) {
    return {};
}

Blob encode_body(const std::vector<Answer::Part>& answer) {
    std::vector<wire::Part> parts;
    std::vector<std::uint32_t> with;
    std::string text;
    for (const Answer::Part& part : answer) {
        parts.emplace_back(part.rank.value, size_of<std::uint32_t>(part.text),
                           static_cast<std::uint32_t>(part.with.size()));
        for (const Rank rank : part.with) {
            with.push_back(rank.value);
        }
        text.append(part.text);
    }
    Builder builder(text.size() + 256);
    const auto parts_offset = builder.CreateVectorOfStructs(parts);
    const auto with_offset = builder.CreateVector(with);
    return finish(builder,
                  wire::CreateAnswerBody(builder, parts_offset, with_offset, bytes_of(builder, text)));
}

// Takes texts from the front of another one.
class TextReader {
  public:
    explicit TextReader(const fb::Vector<std::uint8_t>& text) : text_(text_of(text)) {}

    // Nothing if there are fewer bytes.
    std::optional<std::string_view> next(std::size_t bytes) {
        if (bytes > text_.size()) {
            return std::nullopt;
        }
        const std::string_view front = text_.substr(0, bytes);
        text_.remove_prefix(bytes);
        return front;
    }

  private:
    std::string_view text_;
};

// All names in bodies are sorted.
bool can_follow(std::string_view name, std::string_view previous) {
    return is_valid_name(name) && name > previous;
}

// The verifier checks the alignment of a vector's length, but not that of its elements.
template <typename Struct>
bool is_aligned(const Structs<Struct>& structs) {
    return structs.size() == 0 || reinterpret_cast<std::uintptr_t>(structs.Data()) % alignof(Struct) == 0;
}

std::optional<Listing> from_wire(const wire::ListingBody& body) {
    const auto& slots = *body.slots();
    const auto* details = body.details();
    if (!is_aligned(slots) ||
        (details != nullptr && (details->size() != slots.size() || !is_aligned(*details)))) {
        return std::nullopt;
    }
    std::vector<Listing::NewEntry> entries;
    entries.reserve(slots.size());
    TextReader text(*body.text());
    std::string_view previous;
    for (fb::uoffset_t i = 0; i < slots.size(); ++i) {
        const wire::Slot& slot = *slots.Get(i);
        const auto name = text.next(slot.name_bytes());
        const auto target = text.next(slot.target_bytes());
        if (!name || !target || !can_follow(*name, previous)) {
            return std::nullopt;
        }
        previous = *name;
        entries.push_back({.name = std::string(*name),
                           .target = std::string(*target),
                           .attributes = details != nullptr
                                             ? from_wire(*details->Get(i), slot.inode(), slot.mode())
                                             : Attributes{.inode = slot.inode(), .mode = slot.mode()},
                           .leads_into_trees = has(slot, wire::Mark::leads_into_trees),
                           .begins_filesystem = has(slot, wire::Mark::begins_filesystem)});
    }
    return Listing(std::move(entries),
                   details != nullptr ? Listing::Detail::attributes : Listing::Detail::names_only);
}

std::optional<Directory> from_wire(const wire::DirectoryBody& body) {
    auto names = from_wire(*body.names());
    if (!names || names->has_attributes() || (!body.is_in_pieces() && body.entries() != names->size())) {
        return std::nullopt;
    }
    Directory directory{.version = body.version(),
                        .entries = body.entries(),
                        .first_names = {},
                        .names = {},
                        .is_proven = !body.is_doubtful(),
                        .operation_time = std::chrono::microseconds(body.operation_microseconds()),
                        .is_serial = body.is_serial()};
    const bool has_all_names = !body.is_in_pieces();
    for (std::size_t i = 0; i < (has_all_names ? std::min(names->size(), 1UL) : names->size()); ++i) {
        directory.first_names.emplace_back(names->name(i));
    }
    if (has_all_names) {
        directory.names = std::move(*names);
    }
    return directory.has_all_names() == has_all_names ? std::optional(std::move(directory)) : std::nullopt;
}

std::optional<XattrBatch> from_wire(const wire::XattrsBody& body) {
    XattrBatch batch;
    TextReader text(*body.text());
    fb::uoffset_t next = 0;
    for (const wire::XattrsOfName* told : *body.names()) {
        const auto name = text.next(told->name_bytes());
        if (!name || told->xattrs() > (told->are_known() ? body.xattrs()->size() - next : 0) ||
            batch.entries.size() == batch_entries) {
            return std::nullopt;
        }
        auto& entry = batch.entries.emplace_back(XattrBatch::Entry{std::string(*name), std::nullopt});
        if (told->are_known()) {
            entry.xattrs.emplace();
        }
        for (const fb::uoffset_t end = next + told->xattrs(); next < end; ++next) {
            const auto attribute = text.next(body.xattrs()->Get(next)->name_bytes());
            const auto value = text.next(body.xattrs()->Get(next)->value_bytes());
            if (!attribute || !value) {
                return std::nullopt;
            }
            entry.xattrs->emplace_back(*attribute, *value);
        }
    }
    return batch;
}

std::optional<DataMap> from_wire(const wire::DataMapBody& body) {
    const auto& segments = *body.segments();
    if (!is_aligned(segments) || segments.size() > DataMap::segments_max) {
        return std::nullopt;
    }
    DataMap map{.attributes = from_wire(*body.details(), body.inode(), body.mode()), .segments = {}};
    map.segments.reserve(segments.size());
    for (const wire::Segment* told : segments) {
        map.segments.push_back({.begin = told->begin(), .end = told->end()});
    }
    return map;
}

std::optional<FilesystemSpace> from_wire(const wire::SpaceBody& body) {
    return FilesystemSpace{.block_bytes = body.block_bytes(),
                           .fragment_bytes = body.fragment_bytes(),
                           .blocks = body.blocks(),
                           .free = body.free(),
                           .available = body.available(),
                           .files = body.files(),
                           .free_files = body.free_files(),
                           .name_bytes_max = body.name_bytes_max()};
}

std::optional<std::vector<Answer::Part>> from_wire(const wire::AnswerBody& body) {
    std::vector<Answer::Part> parts;
    TextReader text(*body.text());
    fb::uoffset_t next = 0;
    for (const wire::Part* told : *body.parts()) {
        const auto own = text.next(told->text_bytes());
        if (!own || told->with() > body.with()->size() - next) {
            return std::nullopt;
        }
        auto& part = parts.emplace_back(Answer::Part{Rank{told->rank()}, std::string(*own)});
        for (const fb::uoffset_t end = next + told->with(); next < end; ++next) {
            part.with.push_back(Rank{body.with()->Get(next)});
        }
    }
    return parts;
}

bool are_sorted_names(const std::vector<XattrBatch::Entry>& entries) {
    std::string_view previous;
    return std::all_of(entries.begin(), entries.end(), [&previous](const XattrBatch::Entry& entry) {
        return can_follow(entry.name, std::exchange(previous, entry.name));
    });
}

template <typename Table>
auto decode_body(const Blob& body) {
    const auto* table = verified<Table>(body.span());
    return table != nullptr ? from_wire(*table) : std::nullopt;
}

std::optional<Content> decode_content(const wire::Publication& publication, const Blob& body) {
    switch (publication.payload()) {
        case wire::Payload::error:
            if (publication.error() <= 0 || publication.error() > error_number_max) {
                return std::nullopt;
            }
            return std::error_code(publication.error(), std::generic_category());
        case wire::Payload::listing:
            return decode_body<wire::ListingBody>(body);
        case wire::Payload::directory:
            return decode_body<wire::DirectoryBody>(body);
        case wire::Payload::xattrs: {
            auto batch = decode_body<wire::XattrsBody>(body);
            const bool is_one = batch && batch->entries.size() == 1 && batch->entries[0].name.empty();
            return is_one ? std::move(batch->entries[0].xattrs) : std::nullopt;
        }
        case wire::Payload::xattr_batch: {
            auto batch = decode_body<wire::XattrsBody>(body);
            return batch && are_sorted_names(batch->entries) ? std::move(batch) : std::nullopt;
        }
        case wire::Payload::extent: {
            const wire::Extent* told = publication.extent();
            if (told == nullptr || publication.coding() > wire::Coding::MAX) {
                return std::nullopt;
            }
            const Extent extent{.attributes = from_wire(told->details(), told->inode(), told->mode()),
                                .blob = body,
                                .coding = static_cast<Coding>(publication.coding()),
                                .plain_bytes = told->plain_bytes()};
            return is_sound(extent) ? std::optional<Content>(extent) : std::nullopt;
        }
        case wire::Payload::data_map:
            return decode_body<wire::DataMapBody>(body);
        case wire::Payload::space:
            return decode_body<wire::SpaceBody>(body);
    }
    return std::nullopt;
}

// An error answers anything, and where a directory has other names by now, the directory answers for them.
bool answers(wire::Payload payload, ObjectKind kind) {
    using wire::Payload;
    constexpr Payload usual[] = {Payload::directory,   Payload::listing, Payload::listing,
                                 Payload::extent,      Payload::xattrs,  Payload::listing,
                                 Payload::xattr_batch, Payload::xattrs,  Payload::xattr_batch,
                                 Payload::data_map,    Payload::space};
    return payload == Payload::error || payload == usual[static_cast<std::size_t>(kind)] ||
           (payload == Payload::directory && kind == ObjectKind::names);
}

// ---- messages, without what the header has of them: key, news, and the body's checksum

auto to_wire(Builder& builder, const Interest& interest) {
    const auto findings = structs_of<wire::Finding>(builder, interest.findings);
    return wire::CreateInterest(builder, interest.seen[0], interest.seen[1], interest.origin.value,
                                interest.hops, static_cast<wire::FetchFor>(interest.why),
                                interest.wanted == Interest::Wanted::by_several, interest.attempt,
                                interest.spent.count(), findings, interest.is_urging);
}

auto to_wire(Builder& builder, const Decline&) {
    return wire::CreateDecline(builder);
}

auto to_wire(Builder& builder, const Working& working) {
    return wire::CreateWorking(builder, working.spent.count(), working.still.count(), working.place_in_queue);
}

auto to_wire(Builder& builder, const Publication& publication) {
    const Object& object = *publication.object;
    const Extent* extent = object.extent();
    wire::Extent told;
    if (extent != nullptr) {
        told = {to_wire(extent->attributes), extent->attributes.inode, extent->attributes.mode,
                static_cast<std::uint32_t>(extent->plain_bytes)};
    }
    return wire::CreatePublication(
        builder, static_cast<wire::Payload>(object.content.index()), publication.sequence,
        publication.root.value, publication.serial, publication.tree, extent != nullptr ? &told : nullptr,
        publication.spread == Publication::Spread::asked,
        extent != nullptr ? static_cast<wire::Coding>(extent->coding) : wire::Coding::plain,
        object.lifetime ? object.lifetime->count() : -1, object.error().value());
}

auto to_wire(Builder& builder, const Call& call) {
    const auto verb = builder.CreateString(call.verb);
    const auto argument = builder.CreateString(call.argument);
    return wire::CreateCall(builder, call.id, call.origin.value, verb, argument, call.patience.count(),
                            call.silence == Call::Silence::is_expected);
}

auto to_wire(Builder& builder, const Answer& answer) {
    return wire::CreateAnswer(builder, answer.id, answer.origin.value, answer.answers);
}

auto to_wire(Builder& builder, const Ping&) {
    return wire::CreatePing(builder);
}

auto to_wire(Builder& builder, const Pong&) {
    return wire::CreatePong(builder);
}

// A message's frame, without its header.
Frame frame_of(const auto&) {
    return {};
}

Frame frame_of(const Publication& publication) {
    const Extent* extent = publication.object->extent();
    const bool is_compressed = extent != nullptr && extent->coding == Coding::lz4;
    return {.header = {},
            .body = std::visit([](const auto& content) { return encode_body(content); },
                               publication.object->content),
            .lane = publication.lane,
            .saved_bytes = is_compressed ? extent->plain_bytes - extent->blob.size : 0};
}

Frame frame_of(const Answer& answer) {
    Blob body = encode_body(answer.parts);
    const Lane lane = body.size > eager_body_bytes_max ? Lane::bulk : Lane::eager;
    return {.header = {}, .body = std::move(body), .lane = lane};
}

std::optional<Interest> from_wire(const wire::Interest& interest) {
    auto findings = values_of<Finding>(interest.findings(), findings_max);
    const auto spent = duration_of(interest.spent_milliseconds());
    if (!findings || !spent || interest.why() > wire::FetchFor::MAX) {
        return std::nullopt;
    }
    return Interest{
        .key = {},
        .seen = {interest.seen_eager(), interest.seen_bulk()},
        .attempt = interest.attempt(),
        .hops = interest.hops(),
        .origin = Rank{interest.origin()},
        .wanted = interest.by_several() ? Interest::Wanted::by_several : Interest::Wanted::by_one_perhaps,
        .why = static_cast<FetchFor>(interest.why()),
        .findings = std::move(*findings),
        .spent = *spent,
        .is_urging = interest.is_urging()};
}

std::optional<Decline> from_wire(const wire::Decline&) {
    return Decline{.key = {}};
}

std::optional<Working> from_wire(const wire::Working& working) {
    const auto spent = duration_of(working.spent_milliseconds());
    const auto still = duration_of(working.still_milliseconds());
    if (!spent || !still) {
        return std::nullopt;
    }
    return Working{.key = {}, .spent = *spent, .still = *still, .place_in_queue = working.place_in_queue()};
}

// Without its object.
std::optional<Publication> from_wire(const wire::Publication& publication) {
    return Publication{
        .key = {},
        .root = Rank{publication.root()},
        .tree = publication.tree(),
        .spread = publication.is_for_askers() ? Publication::Spread::asked : Publication::Spread::everyone,
        .serial = publication.serial(),
        .sequence = publication.sequence(),
        .object = nullptr};
}

std::optional<Call> from_wire(const wire::Call& call) {
    const auto patience = duration_of(call.patience_milliseconds());
    if (!patience) {
        return std::nullopt;
    }
    return Call{
        .id = call.id(),
        .origin = Rank{call.origin()},
        .verb = call.verb()->str(),
        .argument = call.argument()->str(),
        .patience = *patience,
        .silence = call.silence_is_expected() ? Call::Silence::is_expected : Call::Silence::is_suspicious};
}

// Without its parts.
std::optional<Answer> from_wire(const wire::Answer& answer) {
    return Answer{
        .id = answer.id(), .origin = Rank{answer.origin()}, .parts = {}, .answers = answer.answers()};
}

std::optional<Ping> from_wire(const wire::Ping&) {
    return Ping{};
}

std::optional<Pong> from_wire(const wire::Pong&) {
    return Pong{};
}

using Decoded = tl::expected<Message, WireError>;

// Completes a message from its body. Nothing instead of a body: its checksum is wrong.
template <typename Content, typename Table>
Decoded complete(Content content, const Table&, const Blob*, Lane) {
    return content;
}

Decoded complete(Publication publication, const wire::Publication& told, const Blob* body, Lane lane) {
    const bool is_possible = body != nullptr && answers(told.payload(), publication.key.kind);
    auto content = is_possible ? decode_content(told, *body) : std::nullopt;
    const auto lifetime = duration_of(told.lifetime_milliseconds());
    if (!content || (!lifetime && told.lifetime_milliseconds() >= 0)) {
        return refuse(
            (body == nullptr ? "a wrong checksum of " : "a malformed ") + to_string(publication.key),
            Damaged{publication.key, lane, publication.sequence});
    }
    publication.lane = lane;
    publication.object = make_object(std::move(*content), lifetime);
    return publication;
}

Decoded complete(Answer answer, const wire::Answer&, const Blob* body, Lane) {
    auto parts = body != nullptr ? decode_body<wire::AnswerBody>(*body) : std::nullopt;
    if (!parts) {
        return refuse("an answer with a damaged body");
    }
    answer.parts = std::move(*parts);
    return answer;
}

template <typename Table>
constexpr wire::Content type_of(fb::Offset<Table>) {
    return wire::ContentTraits<Table>::enum_value;
}

// No checksum if there is no body, as in most messages.
std::uint64_t sum_of(const Blob& body) {
    return body.size == 0 ? 0 : checksum_of(body);
}

// False if there is no value.
template <typename Value>
bool adopt(Value& member, std::optional<Value> value) {
    if (value) {
        member = std::move(*value);
    }
    return value.has_value();
}

template <typename Table>
Decoded decode(const wire::Header& header, const Frame& frame) {
    const Table& table = *header.content_as<Table>();
    auto content = from_wire(table);
    bool is_sound = content.has_value();
    if constexpr (requires { content->key; }) {
        is_sound = is_sound && adopt(content->key, key_of(header));
    }
    if constexpr (requires { content->news; }) {
        is_sound = is_sound && adopt(content->news, values_of<News>(header.news(), news_told_max));
    }
    if (!is_sound) {
        return refuse(std::string("a malformed ") + wire::EnumNameContent(header.content_type()));
    }
    const bool is_intact = sum_of(frame.body) == header.body_checksum();
    const Blob body{frame.body.data, frame.body.size, header.body_checksum()};
    return complete(std::move(*content), table, is_intact ? &body : nullptr, frame.lane);
}

}  // namespace

Frame encode(const Message& message) {
    Builder builder(512);
    Frame frame = std::visit(
        [&builder](const auto& content) {
            Frame made = frame_of(content);
            const auto offset = to_wire(builder, content);
            wire::Key key;
            fb::Offset<fb::Vector<std::uint8_t>> path;
            fb::Offset<Structs<wire::News>> news;
            if constexpr (requires { content.key; }) {
                key = {content.key.version, content.key.generation, content.key.index,
                       static_cast<wire::Kind>(content.key.kind)};
                path = bytes_of(builder, content.key.path);
            }
            if constexpr (requires { content.news; }) {
                news = structs_of<wire::News>(builder, content.news);
            }
            builder.Finish(wire::CreateHeader(builder, type_of(offset), offset.Union(), path,
                                              path.IsNull() ? nullptr : &key, sum_of(made.body), news));
            return made;
        },
        message);

    const Bytes table = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
    auto header = std::make_shared_for_overwrite<std::byte[]>(checksum_bytes + table.size());
    const std::uint64_t sum = checksum_of(table);
    std::memcpy(header.get(), &sum, checksum_bytes);
    std::memcpy(header.get() + checksum_bytes, table.data(), table.size());
    frame.header = {std::move(header), checksum_bytes + table.size()};
    return frame;
}

tl::expected<Message, WireError> decode(const Frame& frame) {
    if (frame.header.size <= checksum_bytes || frame.header.size > header_bytes_max) {
        return refuse("a header of " + std::to_string(frame.header.size) + " bytes");
    }
    std::uint64_t sum = 0;
    std::memcpy(&sum, frame.header.data.get(), checksum_bytes);
    const Bytes table = frame.header.span().subspan(checksum_bytes);
    if (checksum_of(table) != sum) {
        return refuse("a wrong checksum of a header");
    }
    const auto* header = verified<wire::Header>(table);
    if (header == nullptr) {
        return refuse("a malformed header");
    }
    switch (header->content_type()) {
        case wire::Content::Interest:
            return decode<wire::Interest>(*header, frame);
        case wire::Content::Publication:
            return decode<wire::Publication>(*header, frame);
        case wire::Content::Decline:
            return decode<wire::Decline>(*header, frame);
        case wire::Content::Working:
            return decode<wire::Working>(*header, frame);
        case wire::Content::Call:
            return decode<wire::Call>(*header, frame);
        case wire::Content::Answer:
            return decode<wire::Answer>(*header, frame);
        case wire::Content::Ping:
            return decode<wire::Ping>(*header, frame);
        case wire::Content::Pong:
            return decode<wire::Pong>(*header, frame);
        case wire::Content::NONE:
            break;
    }
    return refuse("a header without content");
}

}  // namespace copper
