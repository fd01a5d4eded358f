#include "tests/sim/simulated_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/path.hpp"
#include "cache/codec.hpp"

namespace copper::sim {
namespace {

std::uint64_t size_of(const std::string& path, std::uint64_t version, std::uint32_t file_bytes_max) {
    const std::uint64_t mix = hash_of({.kind = ObjectKind::extent, .path = path}) + version * 7919;
    return mix % (std::uint64_t{file_bytes_max} + 1);
}

std::byte byte_at(std::uint64_t seed, std::uint64_t offset) {
    // Runs of equal bytes, so that they can be coded.
    return static_cast<std::byte>((seed + (offset >> 4U) * 2654435761U) >> 11U);
}

std::uint64_t content_seed(const std::string& path, const Attributes& attributes) {
    return hash_of({.kind = ObjectKind::entry, .path = path}) ^
           (attributes.modified.nanoseconds * 0x9e3779b97f4a7c15U);
}

std::uint64_t bytes_in_extent(const Attributes& attributes, std::uint32_t index) {
    const std::uint64_t offset = index * extent_bytes;
    return std::min(extent_bytes, attributes.size - std::min(attributes.size, offset));
}

bool has_number_below(std::string_view name, char first, std::uint32_t end) {
    return name.size() > 1 && name.front() == first && std::stoul(std::string(name.substr(1))) < end;
}

}  // namespace

std::uint64_t SimulatedStore::version(const std::string& path) const {
    const auto entry = versions_.find(path);
    return entry == versions_.end() ? 0 : entry->second;
}

bool SimulatedStore::is_directory(const std::string& path) const {
    return path == root() || parent_path(path) == root();
}

bool SimulatedStore::exists(const std::string& path, const std::optional<std::string>& hidden) const {
    if (hidden && path != *hidden && is_within(path, *hidden)) {
        return false;
    }
    if (path == root()) {
        return true;
    }
    if (path == huge_directory()) {
        return shape_.huge_entries != 0;
    }
    if (parent_path(path) == huge_directory()) {
        const std::string name(base_name(path));
        return name >= huge_name(huge_version()) && name < huge_name(huge_version() + shape_.huge_entries);
    }
    const bool is_file = parent_path(path) != root();
    const std::string above(is_file ? parent_path(path) : path);
    return parent_path(above) == root() && has_number_below(base_name(above), 'd', shape_.directories) &&
           (!is_file || has_number_below(base_name(path), 'f', shape_.files_per_directory));
}

Attributes SimulatedStore::attributes(const std::string& path) const {
    const bool is_file = parent_path(path) != root() && path != root();
    Attributes attributes;
    attributes.inode = hash_of({.kind = ObjectKind::entry, .path = path});
    attributes.mode = is_file ? S_IFREG | 0644U : S_IFDIR | 0755U;
    attributes.modified.nanoseconds = static_cast<std::uint32_t>(version(path));
    attributes.size = is_file ? size_of(path, version(path), shape_.file_bytes_max) : 4096;
    return attributes;
}

std::vector<Listing::NewEntry> SimulatedStore::entries_of(const std::string& path,
                                                          const std::optional<std::string>& hidden) const {
    std::vector<Listing::NewEntry> entries;
    const bool is_root = path == root();
    const std::uint32_t count = is_root ? shape_.directories : shape_.files_per_directory;
    for (std::uint32_t i = 0; i < count && hidden != path; ++i) {
        const std::string name = is_root ? std::string(base_name(directory(i))) : file_name(i);
        entries.push_back({.name = name, .target = {}, .attributes = attributes(join_path(path, name))});
    }
    return entries;
}

// From the `first` of the huge directory on.
std::vector<Listing::NewEntry> SimulatedStore::huge_entries(std::uint64_t first, std::uint64_t count) const {
    std::vector<Listing::NewEntry> entries;
    for (std::uint64_t i = first; i < std::min<std::uint64_t>(first + count, shape_.huge_entries); ++i) {
        const std::string name = huge_name(huge_version() + i);
        entries.push_back(
            {.name = name, .target = {}, .attributes = attributes(join_path(huge_directory(), name))});
    }
    return entries;
}

// Of any directory, as PosixBacking makes it that has read the directory just now.
Directory SimulatedStore::directory_of(const std::string& path,
                                       const std::optional<std::string>& hidden) const {
    Directory directory;
    directory.operation_time = shape_.operation_time;
    if (path == huge_directory()) {
        directory.version = huge_version() + 1;
        directory.entries = shape_.huge_entries;
        for (std::uint64_t first = 0; first < directory.entries; first += piece_entries) {
            directory.first_names.push_back(huge_name(huge_version() + first));
        }
        return directory;
    }
    directory.names = Listing(entries_of(path, hidden), Listing::Detail::names_only);
    directory.entries = directory.names.size();
    if (directory.entries > 0) {
        directory.version = 2;
        directory.first_names.emplace_back(directory.names.at(0).name);
    }
    return directory;
}

std::vector<Listing::NewEntry> SimulatedStore::slice_of(const std::string& path,
                                                        const std::optional<std::string>& hidden,
                                                        std::uint64_t first, std::uint64_t count) const {
    if (path == huge_directory()) {
        return huge_entries(first, count);
    }
    auto entries = entries_of(path, hidden);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    entries.erase(entries.begin(),
                  entries.begin() + static_cast<std::ptrdiff_t>(std::min(first, entries.size())));
    entries.resize(std::min(count, entries.size()));
    return entries;
}

ObjectPtr SimulatedStore::read_directory(const ObjectKey& key,
                                         const std::optional<std::string>& hidden) const {
    Directory directory = directory_of(key.path, hidden);
    const bool is_right = key.version == directory.version;
    if (key.kind == ObjectKind::names && is_right && key.index >= directory.first_names.size()) {
        return make_error(EINVAL);
    }
    switch (key.kind) {
        case ObjectKind::names:
            return is_right ? make_object(
                                  Listing(slice_of(key.path, hidden, std::uint64_t{key.index} * piece_entries,
                                                   piece_entries),
                                          Listing::Detail::names_only))
                            : make_object(std::move(directory), error_lifetime);
        case ObjectKind::batch:
            return is_right ? make_object(
                                  Listing(slice_of(key.path, hidden, std::uint64_t{key.index} * batch_entries,
                                                   batch_entries),
                                          Listing::Detail::attributes))
                            : make_error(EAGAIN);
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return is_right ? make_object(XattrBatch()) : make_error(EAGAIN);
        default:
            return make_object(std::move(directory));
    }
}

int SimulatedStore::error_of(const std::string& path, const std::optional<std::string>& hidden) const {
    if (exists(path, hidden)) {
        return 0;
    }
    for (std::string above = path; above != root() && above != "/";) {
        above = std::string(parent_path(above));
        if (exists(above, hidden)) {
            return is_directory(above) ? ENOENT : ENOTDIR;
        }
    }
    return ENOENT;
}

ObjectPtr SimulatedStore::read(const ObjectKey& key, Trouble trouble) const {
    const bool is_of_submount =
        trouble == Trouble::submount_never_mounted || trouble == Trouble::submount_unmounted;
    const std::string point = is_of_submount ? directory(0) : root();
    switch (trouble) {
        case Trouble::none:
            return read_without(key, std::nullopt);
        case Trouble::never_mounted:
        case Trouble::submount_never_mounted:
            return read_without(key, point);
        case Trouble::unmounted:
        case Trouble::submount_unmounted: {
            if (is_within(key.path, point)) {
                return make_error(ESTALE);
            }
            const ObjectPtr object = read_without(key, std::nullopt);
            const bool tells_of_it = key.kind == ObjectKind::directory || key.kind == ObjectKind::batch ||
                                     key.kind == ObjectKind::xattr_batch || key.kind == ObjectKind::acl_batch;
            if (!tells_of_it || key.path != parent_path(point) || object->error()) {
                return object;
            }
            Content content = object->content;
            if (auto* batch = std::get_if<XattrBatch>(&content)) {
                batch->entries = {{std::string(base_name(point)), std::nullopt}};
            }
            return make_object(std::move(content), doubtful_lifetime);
        }
        case Trouble::stale:
            return make_error(ESTALE);
        case Trouble::io_error:
            return make_error(EIO);
        case Trouble::ticket_expired:
            return make_error(EACCES);
    }
    return nullptr;
}

ObjectPtr SimulatedStore::read_without(const ObjectKey& key, const std::optional<std::string>& hidden) const {
    const auto listing = [](std::vector<Listing::NewEntry> entries) {
        return make_object(Listing(std::move(entries), Listing::Detail::attributes));
    };
    const int error = error_of(key.path, hidden);
    const bool is_of_directory = key.kind == ObjectKind::directory || key.kind == ObjectKind::batch ||
                                 key.kind == ObjectKind::names || key.kind == ObjectKind::xattr_batch ||
                                 key.kind == ObjectKind::acl_batch;
    if (key.kind == ObjectKind::entry && error == ENOENT &&
        error_of(std::string(parent_path(key.path)), hidden) == 0) {
        return listing({});
    }
    if (error != 0) {
        return make_error(error);
    }
    if (is_of_directory != is_directory(key.path) && key.kind != ObjectKind::entry &&
        key.kind != ObjectKind::xattrs && key.kind != ObjectKind::acl) {
        return make_error(is_of_directory ? ENOTDIR : EISDIR);
    }
    switch (key.kind) {
        case ObjectKind::directory:
        case ObjectKind::names:
        case ObjectKind::batch:
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return read_directory(key, hidden);
        case ObjectKind::entry:
            return listing({{.name = std::string(base_name(key.path)),
                             .target = {},
                             .attributes = attributes(key.path)}});
        case ObjectKind::xattrs:
        case ObjectKind::acl:
            return make_object(Xattrs());
        case ObjectKind::extent:
        case ObjectKind::own_extent:
            return read_file(key);
    }
    return nullptr;
}

ObjectPtr SimulatedStore::read_file(const ObjectKey& key) const {
    const Attributes now = attributes(key.path);
    std::vector<std::byte> bytes(bytes_in_extent(now, key.index));
    const std::uint64_t seed = content_seed(key.path, now);
    for (std::uint64_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = byte_at(seed, key.index * extent_bytes + i);
    }
    return make_object(Extent{now, copy_to_blob(bytes)});
}

bool SimulatedStore::is_intact(const std::string& path, std::uint32_t index, const Extent& extent) {
    const std::uint64_t size = bytes_in_extent(extent.attributes, index);
    static const auto memory = ExtentMemory::make();
    const auto plain = read_plain(extent, 0, extent.plain_bytes, *memory);
    if (extent.plain_bytes != size || !plain || plain->bytes.size() != size) {
        return false;
    }
    const std::uint64_t seed = content_seed(path, extent.attributes);
    for (std::uint64_t i = 0; i < size; ++i) {
        if (plain->bytes[i] != byte_at(seed, index * extent_bytes + i)) {
            return false;
        }
    }
    return true;
}

}  // namespace copper::sim
