#include "cache/object.hpp"

#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.hpp"
#include "base/path.hpp"

namespace copper {

Version version_of(const Attributes& attributes) {
    return {attributes.inode, attributes.size, attributes.modified, attributes.changed};
}

std::uint64_t checksum_of(const Blob& blob) {
    return blob.checksum != 0 ? blob.checksum : checksum_of(blob.span());
}

std::uint64_t hash_of(const Version& version) {
    const std::uint64_t parts[] = {version.inode,
                                   version.size,
                                   static_cast<std::uint64_t>(version.modified.seconds),
                                   version.modified.nanoseconds,
                                   static_cast<std::uint64_t>(version.changed.seconds),
                                   version.changed.nanoseconds};
    return std::max<std::uint64_t>(XXH3_64bits(parts, sizeof parts), 1);
}

Blob copy_to_blob(std::span<const std::byte> bytes) {
    auto data = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), data.get());
    return {std::move(data), bytes.size()};
}

Listing::Listing(std::vector<NewEntry> entries, Detail detail) : detail_(detail) {
    if (!std::ranges::is_sorted(entries, {}, &NewEntry::name)) {  // those from other nodes are
        std::ranges::sort(entries, {}, &NewEntry::name);
    }
    if (!has_attributes()) {
        for (auto& entry : entries) {
            entry.target.clear();
            entry.leads_into_trees = false;
            entry.begins_filesystem = false;
        }
    }
    std::size_t text_bytes = 0;
    for (const auto& entry : entries) {
        text_bytes += entry.name.size() + entry.target.size();
    }
    text_.reserve(text_bytes);
    slots_.reserve(entries.size());
    attributes_.reserve(has_attributes() ? entries.size() : 0);
    inodes_.reserve(has_attributes() ? 0 : entries.size());
    for (const auto& entry : entries) {
        slots_.push_back({.text_offset = static_cast<std::uint32_t>(text_.size()),
                          .target_bytes = static_cast<std::uint16_t>(entry.target.size()),
                          .name_bytes = static_cast<std::uint8_t>(entry.name.size()),
                          .leads_into_trees = entry.leads_into_trees,
                          .begins_filesystem = entry.begins_filesystem});
        text_.append(entry.name).append(entry.target);
        if (has_attributes()) {
            attributes_.push_back(entry.attributes);
        } else {
            inodes_.push_back(
                {.inode = entry.attributes.inode, .mode = entry.attributes.mode & std::uint32_t{S_IFMT}});
        }
    }
}

Listing::Entry Listing::at(std::size_t index) const {
    const Slot& slot = slots_[index];
    const auto type_of = [](const InodeAndType& known) {
        return Attributes{.inode = known.inode, .mode = known.mode};
    };
    return {.name = name_of(slot),
            .target = {text_.data() + slot.text_offset + slot.name_bytes, slot.target_bytes},
            .attributes = has_attributes() ? attributes_[index] : type_of(inodes_[index]),
            .leads_into_trees = slot.leads_into_trees,
            .begins_filesystem = slot.begins_filesystem};
}

std::size_t Listing::first_from(std::string_view name) const {
    const auto slot = std::lower_bound(slots_.begin(), slots_.end(), name,
                                       [this](const Slot& s, std::string_view n) { return name_of(s) < n; });
    return static_cast<std::size_t>(slot - slots_.begin());
}

std::optional<std::size_t> Listing::find(std::string_view name) const {
    const std::size_t at = first_from(name);
    return at < size() && this->name(at) == name ? std::optional(at) : std::nullopt;
}

std::size_t Listing::bytes() const {
    return allocated_bytes(slots_.capacity() * sizeof(Slot)) + allocated_bytes(text_.capacity() + 1) +
           (has_attributes() ? allocated_bytes(attributes_.capacity() * sizeof(Attributes))
                             : allocated_bytes(inodes_.capacity() * sizeof(InodeAndType)));
}

std::optional<std::uint32_t> Directory::piece_of(std::string_view name) const {
    const auto next = std::upper_bound(first_names.begin(), first_names.end(), name);
    if (next == first_names.begin()) {
        return std::nullopt;
    }
    return static_cast<std::uint32_t>(next - first_names.begin() - 1);
}

std::size_t Directory::entries_of(std::uint32_t piece) const {
    return std::min<std::uint64_t>(piece_entries, entries - std::uint64_t{piece} * piece_entries);
}

bool Directory::fits(std::uint32_t piece, const Listing& piece_names) const {
    const std::size_t count = piece_names.size();
    return !piece_names.has_attributes() && count == entries_of(piece) &&
           piece_names.at(0).name == first_names[piece] &&
           (piece + 1 == first_names.size() || piece_names.at(count - 1).name < first_names[piece + 1]);
}

std::size_t Directory::bytes() const {
    std::size_t held = names.bytes() + allocated_bytes(first_names.capacity() * sizeof(std::string));
    for (const auto& name : first_names) {
        held += allocated_bytes(name.capacity() + 1);
    }
    return held;
}

std::uint64_t DataMap::data_from(std::uint64_t offset) const {
    const auto next = std::ranges::upper_bound(segments, offset, {}, &Segment::end);
    return next != segments.end() ? std::max(offset, next->begin) : attributes.size;
}

std::uint64_t DataMap::hole_from(std::uint64_t offset) const {
    const auto next = std::ranges::upper_bound(segments, offset, {}, &Segment::end);
    return next != segments.end() && next->begin <= offset ? next->end : std::min(offset, attributes.size);
}

bool DataMap::has_data(std::uint32_t extent) const {
    const std::uint64_t begin = extent * extent_bytes;
    return data_from(begin) < std::min(begin + extent_bytes, attributes.size);
}

std::optional<Listing::Entry> Object::entry(std::string_view name) const {
    const Listing* entries = listing();
    const auto at = entries != nullptr ? entries->find(name) : std::nullopt;
    return at ? std::optional(entries->at(*at)) : std::nullopt;
}

std::error_code Object::error() const {
    const auto* error = std::get_if<std::error_code>(&content);
    return error != nullptr ? *error : std::error_code();
}

namespace {

std::size_t bytes_of(const Xattrs& pairs) {
    std::size_t held = allocated_bytes(pairs.capacity() * sizeof(Xattrs::value_type));
    for (const auto& [name, value] : pairs) {
        held += allocated_bytes(name.capacity() + 1) + allocated_bytes(value.capacity() + 1);
    }
    return held;
}

}  // namespace

std::size_t Object::bytes() const {
    constexpr std::size_t shared_counts = 2 * sizeof(void*);
    std::size_t held = allocated_bytes(shared_counts + sizeof(Object));
    if (const Listing* entries = listing()) {
        held += entries->bytes();
    } else if (const Directory* pieces = directory()) {
        held += pieces->bytes();
    } else if (const Extent* range = extent()) {
        held += allocated_bytes(shared_counts + range->blob.size);
    } else if (const DataMap* map = data_map()) {
        held += allocated_bytes(map->segments.capacity() * sizeof(DataMap::Segment));
    } else if (const Xattrs* pairs = xattrs()) {
        held += bytes_of(*pairs);
    } else if (const XattrBatch* batch = xattr_batch()) {
        held += allocated_bytes(batch->entries.capacity() * sizeof(XattrBatch::Entry));
        for (const auto& entry : batch->entries) {
            held += allocated_bytes(entry.name.capacity() + 1) + (entry.xattrs ? bytes_of(*entry.xattrs) : 0);
        }
    }
    return held;
}

ObjectPtr make_object(Content content, std::optional<std::chrono::milliseconds> lifetime) {
    return std::make_shared<const Object>(Object{std::move(content), lifetime});
}

ObjectPtr make_directory(Directory directory) {
    const auto lifetime = directory.is_proven ? std::nullopt : std::optional(doubtful_lifetime);
    return make_object(std::move(directory), lifetime);
}

ObjectPtr make_error(std::errc error) {
    return make_object(std::make_error_code(error), error_lifetime);
}

ObjectPtr make_error(int error_number) {
    return make_error(static_cast<std::errc>(error_number));
}

std::string_view file_tree_of(const ObjectKey& key) {
    switch (key.kind) {
        case ObjectKind::directory:
        case ObjectKind::names:
        case ObjectKind::batch:
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return key.path;
        case ObjectKind::entry:
        case ObjectKind::extent:
        case ObjectKind::data_map:
        case ObjectKind::space:
        case ObjectKind::own_extent:
        case ObjectKind::xattrs:
        case ObjectKind::acl:
            return parent_path(key.path);
    }
    return key.path;
}

std::string to_string(const ObjectKey& key) {
    static constexpr const char* names[] = {"directory", "batch",    "entry",       "extent",
                                            "xattrs",    "names",    "xattr batch", "acl",
                                            "acl batch", "data map", "space",       "own extent"};
    return std::string(names[static_cast<std::size_t>(key.kind)]) + ' ' + key.path + '#' +
           std::to_string(key.index) + (key.version != 0 ? '@' + std::to_string(key.version) : "") +
           (key.generation != 0 ? " of generation " + std::to_string(key.generation) : "");
}

std::uint64_t hash_of(const ObjectKey& key) {
    const std::uint64_t seed = (std::uint64_t{key.index} << 8U) | static_cast<std::uint64_t>(key.kind);
    return XXH3_64bits_withSeed(key.path.data(), key.path.size(), seed ^ key.version ^ key.generation);
}

}  // namespace copper
