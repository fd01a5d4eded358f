#include "wire/wire.hpp"

#include <cstring>
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

constexpr std::size_t checksum_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t verifier_tables_max = 1U << 22;
constexpr std::uint64_t verifier_depth_max = 16;
// The kernel accepts no larger error number in the answer to a FUSE request (fuse_dev_do_write).
constexpr int error_number_max = 511;
// The limit for durations that are added to a clock: a year.
constexpr std::int64_t duration_milliseconds_max = 366LL * 24 * 3600 * 1000;

std::string_view text_of(const fb::Vector<std::uint8_t>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view text_of(const fb::String& text) {
    return {text.data(), text.size()};
}

auto bytes_of(Builder& builder, std::string_view text) {
    return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

auto ranks_of(Builder& builder, const std::vector<Rank>& ranks) {
    return ranks.empty() ? fb::Offset<fb::Vector<std::uint32_t>>()
                         : builder.CreateVector<std::uint32_t>(
                               ranks.size(), [&ranks](std::size_t i) { return ranks[i].value; });
}

// Takes the finished buffer out of the builder: no copy.
Blob release(Builder& builder) {
    auto buffer = std::make_shared<fb::DetachedBuffer>(builder.Release());
    const auto* data = reinterpret_cast<const std::byte*>(buffer->data());
    return {std::shared_ptr<const std::byte[]>(buffer, data), buffer->size()};
}

// Nothing if the bytes are not a valid buffer with this root.
template <typename Table>
const Table* verified(Bytes bytes) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    fb::Verifier verifier(data, bytes.size(), verifier_depth_max, verifier_tables_max);
    return verifier.VerifyBuffer<Table>(nullptr) ? fb::GetRoot<Table>(data) : nullptr;
}

tl::unexpected<WireError> refuse(std::string reason) {
    return tl::unexpected(WireError{std::move(reason), std::nullopt});
}

// ---- values

wire::Attributes to_wire(const Attributes& a) {
    return {a.inode,
            a.size,
            a.blocks,
            a.device,
            a.accessed.seconds,
            a.modified.seconds,
            a.changed.seconds,
            a.accessed.nanoseconds,
            a.modified.nanoseconds,
            a.changed.nanoseconds,
            a.mode,
            a.links,
            a.user,
            a.group,
            a.block_bytes};
}

Attributes from_wire(const wire::Attributes& a) {
    return {.inode = a.inode(),
            .size = a.size(),
            .blocks = a.blocks(),
            .device = a.device(),
            .mode = a.mode(),
            .links = a.links(),
            .user = a.user(),
            .group = a.group(),
            .block_bytes = a.block_bytes(),
            .accessed = {a.accessed_seconds(), a.accessed_nanoseconds()},
            .modified = {a.modified_seconds(), a.modified_nanoseconds()},
            .changed = {a.changed_seconds(), a.changed_nanoseconds()}};
}

auto to_wire(Builder& builder, const ObjectKey& key) {
    return wire::CreateKey(builder, static_cast<wire::Kind>(key.kind), bytes_of(builder, key.path), key.index,
                           key.version);
}

std::optional<ObjectKey> from_wire(const wire::Key& key) {
    const std::string_view path = text_of(*key.path());
    const bool is_extent = key.kind() == wire::Kind::extent;
    const bool is_part = is_extent || key.kind() == wire::Kind::batch || key.kind() == wire::Kind::names ||
                         key.kind() == wire::Kind::xattr_batch;
    if (key.kind() > wire::Kind::MAX || !is_normalised_path(path) ||
        ((key.index() != 0 || key.version() != 0) && !is_part)) {
        return std::nullopt;
    }
    return ObjectKey{static_cast<ObjectKind>(key.kind()), std::string(path), key.index(), key.version()};
}

// No vector if there is no news, as in most messages.
fb::Offset<fb::Vector<const wire::News*>> to_wire(Builder& builder, const std::vector<News>& news) {
    std::vector<wire::News> told;
    for (const News& each : news) {
        told.emplace_back(each.rank.value, each.incarnation, static_cast<wire::NodeState>(each.state));
    }
    return told.empty() ? 0 : builder.CreateVectorOfStructs(told);
}

std::optional<std::vector<News>> from_wire(const fb::Vector<const wire::News*>* told) {
    std::vector<News> news;
    if (told != nullptr && told->size() > news_told_max) {
        return std::nullopt;
    }
    for (fb::uoffset_t i = 0; told != nullptr && i < told->size(); ++i) {
        const wire::News* each = told->Get(i);
        if (each->incarnation() > incarnation_max || each->state() > wire::NodeState::MAX) {
            return std::nullopt;
        }
        news.push_back({.rank = Rank{each->rank()},
                        .incarnation = each->incarnation(),
                        .state = static_cast<NodeState>(each->state())});
    }
    return news;
}

fb::Offset<fb::Vector<const wire::Finding*>> to_wire(Builder& builder, const std::vector<Finding>& findings) {
    std::vector<wire::Finding> told;
    for (const Finding& finding : findings) {
        told.emplace_back(finding.reader.value, finding.error);
    }
    return told.empty() ? 0 : builder.CreateVectorOfStructs(told);
}

std::optional<std::vector<Finding>> from_wire(const fb::Vector<const wire::Finding*>* told) {
    std::vector<Finding> findings;
    if (told != nullptr && told->size() > findings_max) {
        return std::nullopt;
    }
    for (fb::uoffset_t i = 0; told != nullptr && i < told->size(); ++i) {
        const wire::Finding* finding = told->Get(i);
        if (finding->error() < 0 || finding->error() > error_number_max) {
            return std::nullopt;
        }
        findings.push_back({.reader = Rank{finding->reader()}, .error = finding->error()});
    }
    return findings;
}

// ---- bodies

fb::Offset<wire::ListingBody> to_wire(Builder& builder, const Listing& listing) {
    std::vector<wire::ListingSlot> slots;
    std::vector<wire::NameSlot> names;
    listing.has_attributes() ? slots.reserve(listing.size()) : names.reserve(listing.size());
    std::string text;
    for (std::size_t i = 0; i < listing.size(); ++i) {
        const Listing::Entry entry = listing.at(i);
        const auto name_bytes = static_cast<std::uint16_t>(entry.name.size());
        if (listing.has_attributes()) {
            slots.emplace_back(to_wire(entry.attributes), name_bytes,
                               static_cast<std::uint16_t>(entry.target.size()), entry.leads_into_trees);
        } else {
            names.emplace_back(entry.attributes.inode, entry.attributes.mode, name_bytes);
        }
        text.append(entry.name).append(entry.target);
    }
    const auto slots_offset = listing.has_attributes() ? builder.CreateVectorOfStructs(slots) : 0;
    const auto names_offset = listing.has_attributes() ? 0 : builder.CreateVectorOfStructs(names);
    const auto text_offset = bytes_of(builder, text);
    return wire::CreateListingBody(builder, slots_offset, names_offset, text_offset);
}

Blob encode_body(const Listing& listing) {
    Builder builder(listing.bytes() + 256);
    builder.Finish(to_wire(builder, listing));
    return release(builder);
}

Blob encode_body(const Directory& directory) {
    Builder builder(directory.bytes() + 256);
    const auto operation = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
        directory.operation_time.count(), 0, std::numeric_limits<std::uint32_t>::max()));
    fb::Offset<wire::ListingBody> names = 0;
    fb::Offset<fb::Vector<std::uint8_t>> first_name_bytes = 0, text_offset = 0;
    if (directory.has_all_names()) {
        names = to_wire(builder, directory.names);
    } else {
        std::vector<std::uint8_t> lengths;
        std::string text;
        for (const std::string& name : directory.first_names) {
            lengths.push_back(static_cast<std::uint8_t>(name.size()));
            text.append(name);
        }
        first_name_bytes = builder.CreateVector(lengths);
        text_offset = bytes_of(builder, text);
    }
    builder.Finish(wire::CreateDirectoryBody(builder, directory.version, directory.entries, operation, names,
                                             first_name_bytes, text_offset));
    return release(builder);
}

auto to_wire(Builder& builder, const Xattrs& xattrs) {
    std::vector<fb::Offset<wire::Xattr>> pairs;
    for (const auto& [name, value] : xattrs) {
        const auto name_offset = bytes_of(builder, name);
        pairs.push_back(wire::CreateXattr(builder, name_offset, bytes_of(builder, value)));
    }
    return builder.CreateVector(pairs);
}

Blob encode_body(const Xattrs& xattrs) {
    Builder builder;
    builder.Finish(wire::CreateXattrsBody(builder, to_wire(builder, xattrs)));
    return release(builder);
}

Blob encode_body(const XattrBatch& batch) {
    Builder builder;
    std::vector<fb::Offset<wire::XattrBatchEntry>> entries;
    for (const auto& entry : batch.entries) {
        fb::Offset<fb::Vector<fb::Offset<wire::Xattr>>> pairs = 0;
        if (entry.xattrs) {
            pairs = to_wire(builder, *entry.xattrs);
        }
        entries.push_back(wire::CreateXattrBatchEntry(builder, bytes_of(builder, entry.name), pairs));
    }
    builder.Finish(wire::CreateXattrBatchBody(builder, builder.CreateVector(entries)));
    return release(builder);
}

Blob encode_body(const std::vector<Answer::Part>& parts) {
    Builder builder;
    std::vector<fb::Offset<wire::Part>> offsets;
    for (const auto& part : parts) {
        offsets.push_back(wire::CreatePart(builder, part.rank.value, bytes_of(builder, part.text),
                                           ranks_of(builder, part.with)));
    }
    builder.Finish(wire::CreateAnswerBody(builder, builder.CreateVector(offsets)));
    return release(builder);
}

Blob encode_body(const Content& content) {
    return std::visit(
        [](const auto& value) -> Blob {
            using Value = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<Value, std::error_code>) {
                return {};
            } else if constexpr (std::is_same_v<Value, Extent>) {
                return value.blob;
            } else {
                return encode_body(value);
            }
        },
        content);
}

// Reads names, and the data with them, from the front of a text.
class NameReader {
  public:
    explicit NameReader(std::string_view text) : text_(text) {}

    // Nothing if the text is too short, the name is invalid, or it does not sort after the previous one.
    std::optional<std::string_view> next(std::size_t bytes) {
        const auto name = rest(bytes);
        if (!name || !is_valid_name(*name) || *name <= last_) {
            return std::nullopt;
        }
        last_ = *name;
        return name;
    }
    std::optional<std::string_view> rest(std::size_t bytes) {
        if (bytes > text_.size()) {
            return std::nullopt;
        }
        const std::string_view front = text_.substr(0, bytes);
        text_.remove_prefix(bytes);
        return front;
    }

  private:
    std::string_view text_;
    std::string_view last_;
};

// The verifier checks the alignment of a vector's length, but not that of its elements.
template <typename Slot>
bool is_aligned(const fb::Vector<const Slot*>& slots) {
    return reinterpret_cast<std::uintptr_t>(slots.Data()) % alignof(Slot) == 0;
}

std::optional<Listing> decode_entries(const fb::Vector<const wire::ListingSlot*>& slots,
                                      std::string_view text) {
    std::vector<Listing::NewEntry> entries;
    entries.reserve(slots.size());
    NameReader reader(text);
    for (const wire::ListingSlot* slot : slots) {
        const auto name = reader.next(slot->name_bytes());
        const auto target = name ? reader.rest(slot->target_bytes()) : std::nullopt;
        if (!target) {
            return std::nullopt;
        }
        entries.push_back({.name = std::string(*name),
                           .target = std::string(*target),
                           .attributes = from_wire(slot->attributes()),
                           .leads_into_trees = slot->leads_into_trees()});
    }
    return Listing(std::move(entries), Listing::Detail::attributes);
}

std::optional<Listing> decode_names(const fb::Vector<const wire::NameSlot*>& slots, std::string_view text) {
    std::vector<Listing::NewEntry> entries;
    entries.reserve(slots.size());
    NameReader reader(text);
    for (const wire::NameSlot* slot : slots) {
        const auto name = reader.next(slot->name_bytes());
        if (!name) {
            return std::nullopt;
        }
        entries.push_back({.name = std::string(*name),
                           .target = {},
                           .attributes = {.inode = slot->inode(), .mode = slot->mode()}});
    }
    return Listing(std::move(entries), Listing::Detail::names_only);
}

std::optional<Listing> from_wire(const wire::ListingBody& table) {
    if ((table.slots() != nullptr) == (table.names() != nullptr)) {
        return std::nullopt;
    }
    const std::string_view text = text_of(*table.text());
    if (table.slots() != nullptr) {
        return is_aligned(*table.slots()) ? decode_entries(*table.slots(), text) : std::nullopt;
    }
    return is_aligned(*table.names()) ? decode_names(*table.names(), text) : std::nullopt;
}

std::optional<Content> decode_listing(Bytes body) {
    const auto* table = verified<wire::ListingBody>(body);
    return table != nullptr ? from_wire(*table) : std::optional<Listing>();
}

std::optional<Content> decode_directory(Bytes body) {
    const auto* table = verified<wire::DirectoryBody>(body);
    const bool has_first_names =
        table != nullptr && table->first_name_bytes() != nullptr && table->text() != nullptr;
    if (table == nullptr || has_first_names == (table->names() != nullptr)) {
        return std::nullopt;
    }
    Directory directory;
    directory.version = table->version();
    directory.entries = table->entries();
    directory.operation_time = std::chrono::microseconds(table->operation_microseconds());
    if (!has_first_names) {
        auto names = from_wire(*table->names());
        if (!names || names->has_attributes()) {
            return std::nullopt;
        }
        directory.names = std::move(*names);
        if (directory.names.size() > 0) {
            directory.first_names.emplace_back(directory.names.at(0).name);
        }
        return directory.has_all_names() ? std::optional<Content>(std::move(directory)) : std::nullopt;
    }
    NameReader reader(text_of(*table->text()));
    for (const std::uint8_t bytes : *table->first_name_bytes()) {
        const auto name = reader.next(bytes);
        if (!name) {
            return std::nullopt;
        }
        directory.first_names.emplace_back(*name);
    }
    return directory.has_all_names() ? std::nullopt : std::optional<Content>(std::move(directory));
}

// (Tables may share their bytes, so a small body could stand for any amount of text. Those from encode()
// never do.)
std::optional<Xattrs> from_wire(const fb::Vector<fb::Offset<wire::Xattr>>& pairs, std::size_t& bytes_left) {
    Xattrs xattrs;
    for (const wire::Xattr* pair : pairs) {
        const std::size_t bytes = std::size_t{pair->name()->size()} + pair->value()->size() + 1;
        if (bytes > bytes_left) {
            return std::nullopt;
        }
        bytes_left -= bytes;
        xattrs.emplace_back(text_of(*pair->name()), text_of(*pair->value()));
    }
    return xattrs;
}

std::optional<Content> decode_xattrs(Bytes body) {
    const auto* table = verified<wire::XattrsBody>(body);
    std::size_t bytes_left = body.size();
    return table != nullptr ? from_wire(*table->pairs(), bytes_left) : std::nullopt;
}

std::optional<Content> decode_xattr_batch(Bytes body) {
    const auto* table = verified<wire::XattrBatchBody>(body);
    if (table == nullptr || table->entries()->size() > batch_entries) {
        return std::nullopt;
    }
    XattrBatch batch;
    std::size_t bytes_left = body.size();
    for (const wire::XattrBatchEntry* told : *table->entries()) {
        const std::string_view name = text_of(*told->name());
        const bool is_in_order = batch.entries.empty() || batch.entries.back().name < name;
        if (name.size() > bytes_left || !is_valid_name(name) || !is_in_order) {
            return std::nullopt;
        }
        bytes_left -= name.size();
        XattrBatch::Entry entry{.name = std::string(name), .xattrs = std::nullopt};
        if (told->pairs() != nullptr) {
            entry.xattrs = from_wire(*told->pairs(), bytes_left);
            if (!entry.xattrs) {
                return std::nullopt;
            }
        }
        batch.entries.push_back(std::move(entry));
    }
    return batch;
}

std::optional<Content> decode_extent(const wire::Publication& publication, const Blob& body) {
    if (publication.attributes() == nullptr || publication.coding() > wire::Coding::MAX) {
        return std::nullopt;
    }
    Extent extent{.attributes = from_wire(*publication.attributes()),
                  .blob = {body.data, body.size, publication.body_checksum()},
                  .coding = static_cast<Coding>(publication.coding()),
                  .plain_bytes = publication.plain_bytes()};
    return is_sound(extent) ? std::optional<Content>(std::move(extent)) : std::nullopt;
}

std::optional<Content> decode_content(const wire::Publication& publication, const Blob& body) {
    switch (publication.payload()) {
        case wire::Payload::error:
            if (publication.error() <= 0 || publication.error() > error_number_max) {
                return std::nullopt;
            }
            return std::error_code(publication.error(), std::generic_category());
        case wire::Payload::listing:
            return decode_listing(body.span());
        case wire::Payload::extent:
            return decode_extent(publication, body);
        case wire::Payload::xattrs:
            return decode_xattrs(body.span());
        case wire::Payload::directory:
            return decode_directory(body.span());
        case wire::Payload::xattr_batch:
            return decode_xattr_batch(body.span());
    }
    return std::nullopt;
}

// An error answers anything.
bool answers(const Content& content, ObjectKind kind) {
    if (std::holds_alternative<std::error_code>(content)) {
        return true;
    }
    switch (kind) {
        case ObjectKind::directory:
            return std::holds_alternative<Directory>(content);
        case ObjectKind::names:
            return std::holds_alternative<Listing>(content) || std::holds_alternative<Directory>(content);
        case ObjectKind::batch:
        case ObjectKind::entry:
            return std::holds_alternative<Listing>(content);
        case ObjectKind::extent:
        case ObjectKind::own_extent:
            return std::holds_alternative<Extent>(content);
        case ObjectKind::xattrs:
            return std::holds_alternative<Xattrs>(content);
        case ObjectKind::xattr_batch:
            return std::holds_alternative<XattrBatch>(content);
    }
    return false;
}

// ---- messages: each overload makes the header's content and the body

struct Encoded {
    wire::Content type;
    fb::Offset<void> offset;
    Blob body;
    Lane lane = Lane::eager;
    std::size_t saved_bytes = 0;
};

Encoded encode(Builder& builder, const Interest& interest) {
    const auto key = to_wire(builder, interest.key);
    const auto findings = to_wire(builder, interest.findings);
    const auto news = to_wire(builder, interest.news);
    return {.type = wire::Content::Interest,
            .offset = wire::CreateInterest(builder, key, interest.seen[0], interest.seen[1], interest.attempt,
                                           interest.hops, interest.origin.value,
                                           interest.wanted == Interest::Wanted::by_several,
                                           static_cast<wire::FetchFor>(interest.why), findings,
                                           static_cast<std::uint64_t>(interest.spent.count()), news)
                          .Union(),
            .body = {}};
}

Encoded encode(Builder& builder, const Decline& decline) {
    const auto key = to_wire(builder, decline.key);
    return {.type = wire::Content::Decline, .offset = wire::CreateDecline(builder, key).Union(), .body = {}};
}

Encoded encode(Builder& builder, const Working& working) {
    const auto key = to_wire(builder, working.key);
    const auto spent = static_cast<std::uint64_t>(working.spent.count());
    return {.type = wire::Content::Working,
            .offset = wire::CreateWorking(builder, key, spent).Union(),
            .body = {}};
}

Encoded encode(Builder& builder, const Publication& publication) {
    const Object& object = *publication.object;
    Blob body = encode_body(object.content);
    const auto key = to_wire(builder, publication.key);
    const auto news = to_wire(builder, publication.news);
    wire::PublicationBuilder table(builder);
    table.add_key(key);
    table.add_news(news);
    table.add_root(publication.root.value);
    table.add_tree(publication.tree);
    table.add_spread(static_cast<wire::Spread>(publication.spread));
    table.add_serial(publication.serial);
    table.add_sequence(publication.sequence);
    table.add_bulk(publication.lane == Lane::bulk);
    table.add_payload(static_cast<wire::Payload>(object.content.index()));
    table.add_error(object.error().value());
    table.add_lifetime_milliseconds(object.lifetime ? object.lifetime->count() : -1);
    wire::Attributes attributes;
    std::size_t saved_bytes = 0;
    if (const Extent* extent = object.extent()) {
        attributes = to_wire(extent->attributes);
        table.add_attributes(&attributes);
        table.add_coding(static_cast<wire::Coding>(extent->coding));
        table.add_plain_bytes(static_cast<std::uint32_t>(extent->plain_bytes));
        saved_bytes = extent->plain_bytes - extent->blob.size;
    }
    table.add_body_bytes(static_cast<std::uint32_t>(body.size));
    table.add_body_checksum(checksum_of(body));
    return {.type = wire::Content::Publication,
            .offset = table.Finish().Union(),
            .body = std::move(body),
            .lane = publication.lane,
            .saved_bytes = saved_bytes};
}

Encoded encode(Builder& builder, const Call& call) {
    return {.type = wire::Content::Call,
            .offset = wire::CreateCall(builder, call.id, call.origin.value, builder.CreateString(call.verb),
                                       builder.CreateString(call.argument), call.patience.count(),
                                       static_cast<wire::Silence>(call.silence))
                          .Union(),
            .body = {}};
}

Encoded encode(Builder& builder, const Answer& answer) {
    Blob body = encode_body(answer.parts);
    const Lane lane = body.size > eager_body_bytes_max ? Lane::bulk : Lane::eager;
    return {.type = wire::Content::Answer,
            .offset = wire::CreateAnswer(builder, answer.id, answer.origin.value, answer.answers, body.size,
                                         checksum_of(body.span()))
                          .Union(),
            .body = std::move(body),
            .lane = lane};
}

Encoded encode(Builder& builder, const Ping& ping) {
    const auto news = to_wire(builder, ping.news);
    return {.type = wire::Content::Ping, .offset = wire::CreatePing(builder, news).Union(), .body = {}};
}

Encoded encode(Builder& builder, const Pong& pong) {
    const auto news = to_wire(builder, pong.news);
    return {.type = wire::Content::Pong, .offset = wire::CreatePong(builder, news).Union(), .body = {}};
}

using Decoded = tl::expected<Message, WireError>;

Decoded decode(const wire::Interest& interest, const Blob&) {
    auto key = from_wire(*interest.key());
    if (!key) {
        return refuse("an interest in something that is no object");
    }
    auto news = from_wire(interest.news());
    if (!news) {
        return refuse("an interest with news that cannot be");
    }
    auto findings = from_wire(interest.findings());
    if (!findings) {
        return refuse("an interest with findings that cannot be");
    }
    if (interest.spent_milliseconds() > std::uint64_t{duration_milliseconds_max}) {
        return refuse("an interest in what was read for ever");
    }
    if (interest.why() > wire::FetchFor::MAX) {
        return refuse("an interest for no known reason");
    }
    return Interest{
        .key = std::move(*key),
        .seen = {interest.seen_eager(), interest.seen_bulk()},
        .attempt = interest.attempt(),
        .hops = interest.hops(),
        .origin = Rank{interest.origin()},
        .wanted = interest.by_several() ? Interest::Wanted::by_several : Interest::Wanted::by_one_perhaps,
        .why = static_cast<FetchFor>(interest.why()),
        .findings = std::move(*findings),
        .spent = std::chrono::milliseconds(interest.spent_milliseconds()),
        .news = std::move(*news)};
}

Decoded decode(const wire::Decline& decline, const Blob&) {
    auto key = from_wire(*decline.key());
    if (!key) {
        return refuse("a decline of something that is no object");
    }
    return Decline{.key = std::move(*key)};
}

Decoded decode(const wire::Working& working, const Blob&) {
    auto key = from_wire(*working.key());
    if (!key) {
        return refuse("work on something that is no object");
    }
    if (working.spent_milliseconds() > std::uint64_t{duration_milliseconds_max}) {
        return refuse("work for ever");
    }
    return Working{.key = std::move(*key), .spent = std::chrono::milliseconds(working.spent_milliseconds())};
}

tl::unexpected<WireError> damaged(const wire::Publication& publication, const char* what, ObjectKey key) {
    const Lane lane = publication.bulk() ? Lane::bulk : Lane::eager;
    std::string reason = what + to_string(key);
    return tl::unexpected(
        WireError{std::move(reason), Damaged{std::move(key), lane, publication.sequence()}});
}

Decoded decode(const wire::Publication& publication, const Blob& body) {
    auto key = from_wire(*publication.key());
    if (!key || publication.spread() > wire::Spread::MAX) {
        return refuse("a publication of something that is no object");
    }
    if (body.size != publication.body_bytes() || checksum_of(body) != publication.body_checksum()) {
        return damaged(publication, "a wrong checksum of ", std::move(*key));
    }
    auto content = decode_content(publication, body);
    auto news = from_wire(publication.news());
    if (!content || !news || !answers(*content, key->kind) ||
        publication.lifetime_milliseconds() > duration_milliseconds_max) {
        return damaged(publication, "a malformed ", std::move(*key));
    }
    std::optional<std::chrono::milliseconds> lifetime;
    if (publication.lifetime_milliseconds() >= 0) {
        lifetime = std::chrono::milliseconds(publication.lifetime_milliseconds());
    }
    return Publication{.key = std::move(*key),
                       .root = Rank{publication.root()},
                       .tree = publication.tree(),
                       .spread = static_cast<Publication::Spread>(publication.spread()),
                       .serial = publication.serial(),
                       .sequence = publication.sequence(),
                       .lane = publication.bulk() ? Lane::bulk : Lane::eager,
                       .object = make_object(std::move(*content), lifetime),
                       .news = std::move(*news)};
}

Decoded decode(const wire::Call& call, const Blob&) {
    if (call.patience_milliseconds() < 0 || call.patience_milliseconds() > duration_milliseconds_max) {
        return refuse("a call with unlimited patience");
    }
    if (call.silence() > wire::Silence::MAX) {
        return refuse("a call of an unknown kind");
    }
    return Call{.id = call.id(),
                .origin = Rank{call.origin()},
                .verb = std::string(text_of(*call.verb())),
                .argument = std::string(text_of(*call.argument())),
                .patience = std::chrono::milliseconds(call.patience_milliseconds()),
                .silence = static_cast<Call::Silence>(call.silence())};
}

Decoded decode(const wire::Answer& answer, const Blob& body) {
    const bool intact = body.size == answer.body_bytes() && checksum_of(body) == answer.body_checksum();
    const auto* table = intact ? verified<wire::AnswerBody>(body.span()) : nullptr;
    if (table == nullptr) {
        return refuse("an answer with a damaged body");
    }
    Answer result{
        .id = answer.id(), .origin = Rank{answer.origin()}, .parts = {}, .answers = answer.answers()};
    std::size_t bytes = 0;
    for (const wire::Part* part : *table->parts()) {
        const std::size_t others = part->with() == nullptr ? 0 : part->with()->size();
        bytes += part->text()->size() + others * sizeof(std::uint32_t);
        if (bytes > body.size) {  // like decode_xattrs()
            return refuse("an answer whose parts share their text");
        }
        result.parts.push_back({Rank{part->rank()}, std::string(text_of(*part->text())), {}});
        for (std::uint32_t i = 0; i < others; ++i) {
            result.parts.back().with.push_back(Rank{part->with()->Get(i)});
        }
    }
    return result;
}

Decoded decode(const wire::Ping& ping, const Blob&) {
    auto news = from_wire(ping.news());
    return news ? Decoded(Ping{.news = std::move(*news)}) : refuse("a ping with news that cannot be");
}

Decoded decode(const wire::Pong& pong, const Blob&) {
    auto news = from_wire(pong.news());
    return news ? Decoded(Pong{.news = std::move(*news)}) : refuse("a pong with news that cannot be");
}

}  // namespace

Frame encode(const Message& message) {
    Builder builder(512);
    Encoded encoded =
        std::visit([&builder](const auto& content) { return encode(builder, content); }, message);
    builder.Finish(wire::CreateHeader(builder, encoded.type, encoded.offset));

    const Bytes table = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
    auto header = std::make_shared_for_overwrite<std::byte[]>(checksum_bytes + table.size());
    const std::uint64_t sum = checksum_of(table);
    std::memcpy(header.get(), &sum, checksum_bytes);
    std::memcpy(header.get() + checksum_bytes, table.data(), table.size());
    return {.header = {std::move(header), checksum_bytes + table.size()},
            .body = std::move(encoded.body),
            .lane = encoded.lane,
            .saved_bytes = encoded.saved_bytes};
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
            return decode(*header->content_as_Interest(), frame.body);
        case wire::Content::Publication:
            return decode(*header->content_as_Publication(), frame.body);
        case wire::Content::Decline:
            return decode(*header->content_as_Decline(), frame.body);
        case wire::Content::Working:
            return decode(*header->content_as_Working(), frame.body);
        case wire::Content::Call:
            return decode(*header->content_as_Call(), frame.body);
        case wire::Content::Answer:
            return decode(*header->content_as_Answer(), frame.body);
        case wire::Content::Ping:
            return decode(*header->content_as_Ping(), frame.body);
        case wire::Content::Pong:
            return decode(*header->content_as_Pong(), frame.body);
        case wire::Content::NONE:
            break;
    }
    return refuse("a header without content");
}

}  // namespace copper
