#include "tests/sim/simulated_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/path.hpp"
#include "cache/codec.hpp"

namespace copper::sim {
namespace {

// Some versions have the size of the one before.
std::uint64_t size_of(const std::string& path, std::uint64_t version, std::uint32_t file_bytes_max) {
    const std::uint64_t mix = hash_of({.kind = ObjectKind::extent, .path = path}) + version / 4 * 7919;
    return mix % (std::uint64_t{file_bytes_max} + 1);
}

// Runs of equal bytes, so that they can be coded.
std::vector<std::byte> content(std::uint64_t seed, std::uint64_t offset, std::uint64_t size) {
    constexpr std::uint64_t run = 16;
    const std::uint64_t before = offset % run;
    std::vector<std::byte> bytes((before + size + run - 1) / run * run);
    for (std::uint64_t i = 0; i < bytes.size(); i += run) {
        const std::uint64_t number = offset / run + i / run;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(i), run,
                    static_cast<std::byte>((seed + number * 2654435761U) >> 11U));
    }
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(before));
    bytes.resize(size);
    return bytes;
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

SimulatedStore::State& SimulatedStore::add_state(const std::string& path, TimePoint now) {
    State next = state(path, now);
    next.since = now;
    ++next.changes;
    return history_[path].emplace_back(next);
}

void SimulatedStore::begin_writing(const std::string& file, TimePoint now) {
    State& begun = add_state(file, now);
    begun.is_being_written = true;
    ++begun.version;
}

void SimulatedStore::end_writing(const std::string& file, TimePoint now) {
    State& ended = add_state(file, now);
    ended.is_being_written = false;
    ++ended.version;
}

void SimulatedStore::replace(const std::string& file, TimePoint now) {
    State& other = add_state(file, now);
    other.named_since = other.exists ? other.named_since : now;
    other.exists = true;
    ++other.files;
    other.version += 2;
    touch(std::string(parent_path(file)), now);
}

void SimulatedStore::remove(const std::string& file, TimePoint now) {
    add_state(file, now).exists = false;
    touch(std::string(parent_path(file)), now);
}

SimulatedStore::State SimulatedStore::state(const std::string& path, TimePoint when) const {
    if (const auto known = history_.find(path); known != history_.end()) {
        const auto& states = known->second;
        const auto later = std::find_if(states.rbegin(), states.rend(),
                                        [when](const State& state) { return state.since <= when; });
        if (later != states.rend()) {
            return *later;
        }
    }
    return {.exists = !has_number_below(base_name(path), 'f', names_per_directory()) ||
                      has_number_below(base_name(path), 'f', shape_.files_per_directory)};
}

std::vector<TimePoint> SimulatedStore::moments(const std::string& path, TimePoint from, TimePoint to) const {
    std::vector<TimePoint> moments = {from};
    const auto add = [&](const std::string& changed, std::chrono::milliseconds later) {
        const auto known = history_.find(changed);
        for (std::size_t i = 0; known != history_.end() && i < known->second.size(); ++i) {
            const TimePoint moment = known->second[i].since + later;
            if (moment > from && moment <= to) {
                moments.push_back(moment);
            }
        }
    };
    for (const std::string& changed : {path, std::string(parent_path(path))}) {
        add(changed, {});
        add(changed, settling);
    }
    return moments;
}

bool SimulatedStore::is_directory(const std::string& path) const {
    return path == root() || parent_path(path) == root();
}

bool SimulatedStore::exists(const std::string& path, const View& view) const {
    if (view.hidden && path != *view.hidden && is_within(path, *view.hidden)) {
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
        const std::uint64_t version = huge_version(view.when);
        return name >= huge_name(version) && name < huge_name(version + shape_.huge_entries);
    }
    const bool is_file = parent_path(path) != root();
    const std::string above(is_file ? parent_path(path) : path);
    return parent_path(above) == root() && has_number_below(base_name(above), 'd', shape_.directories) &&
           (!is_file ||
            (has_number_below(base_name(path), 'f', names_per_directory()) && state(path, view.when).exists));
}

Attributes SimulatedStore::attributes(const std::string& path, TimePoint when) const {
    const bool is_file = parent_path(path) != root() && path != root();
    const State state = this->state(path, when);
    Attributes attributes;
    attributes.inode = hash_of({.kind = ObjectKind::entry, .path = path}) + state.files;
    attributes.mode = is_file ? S_IFREG | 0644U : S_IFDIR | 0755U;
    attributes.modified.nanoseconds = state.version;
    attributes.changed.nanoseconds = state.changes;
    attributes.size = is_file ? size_of(path, state.version, shape_.file_bytes_max) : 4096;
    attributes.blocks = (attributes.size + 511) / 512;
    return attributes;
}

bool SimulatedStore::is_unsettled(const std::string& directory, TimePoint when) const {
    const State state = this->state(directory, when);
    return directory != huge_directory() && state.changes > 0 && state.since > when - settling;
}

std::vector<Listing::NewEntry> SimulatedStore::entries_of(const std::string& path, const View& view) const {
    std::vector<Listing::NewEntry> entries;
    const bool is_root = path == root();
    const std::uint32_t count = is_root ? shape_.directories : names_per_directory();
    for (std::uint32_t i = 0; i < count && view.hidden != path; ++i) {
        const std::string name = is_root ? std::string(base_name(directory(i))) : file_name(i);
        const std::string entry = join_path(path, name);
        const State state = this->state(entry, view.when);
        const bool is_missed = is_unsettled(path, view.when) && state.named_since > view.when - settling;
        if (state.exists && !is_missed) {
            entries.push_back({.name = name, .target = {}, .attributes = attributes(entry, view.when)});
        }
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
}

// From the `first` of the huge directory on.
std::vector<Listing::NewEntry> SimulatedStore::huge_entries(const View& view, std::uint64_t first,
                                                            std::uint64_t count) const {
    std::vector<Listing::NewEntry> entries;
    const std::uint64_t version = huge_version(view.when);
    for (std::uint64_t i = first; i < std::min<std::uint64_t>(first + count, shape_.huge_entries); ++i) {
        const std::string name = huge_name(version + i);
        entries.push_back({.name = name,
                           .target = {},
                           .attributes = attributes(join_path(huge_directory(), name), view.when)});
    }
    return entries;
}

// Of any directory, as PosixBacking makes it that has read the directory just now.
Directory SimulatedStore::directory_of(const std::string& path, const View& view) const {
    Directory directory;
    directory.operation_time = shape_.operation_time;
    if (path == huge_directory()) {
        const std::uint64_t version = huge_version(view.when);
        directory.version = version + 1;
        directory.entries = shape_.huge_entries;
        for (std::uint64_t first = 0; first < directory.entries; first += piece_entries) {
            directory.first_names.push_back(huge_name(version + first));
        }
        return directory;
    }
    directory.names = Listing(entries_of(path, view), Listing::Detail::names_only);
    directory.entries = directory.names.size();
    directory.is_proven = !is_unsettled(path, view.when);
    if (directory.entries > 0) {
        directory.first_names.emplace_back(directory.names.at(0).name);
    }
    for (std::size_t i = 0; i < directory.entries; ++i) {
        directory.version = directory.version * 31 + hash_of({.path = std::string(directory.names.name(i))});
    }
    return directory;
}

std::vector<std::string> SimulatedStore::names_at(const std::string& path, TimePoint when) const {
    std::vector<std::string> names;
    for (const auto& entry : slice_of(path, {when, std::nullopt}, 0, directory_entries_max)) {
        names.push_back(entry.name);
    }
    return names;
}

std::vector<Listing::NewEntry> SimulatedStore::slice_of(const std::string& path, const View& view,
                                                        std::uint64_t first, std::uint64_t count) const {
    if (path == huge_directory()) {
        return huge_entries(view, first, count);
    }
    auto entries = entries_of(path, view);
    entries.erase(entries.begin(),
                  entries.begin() + static_cast<std::ptrdiff_t>(std::min(first, entries.size())));
    entries.resize(std::min(count, entries.size()));
    return entries;
}

// Of the names whose files nobody writes at the moment.
ObjectPtr SimulatedStore::read_batch(const ObjectKey& key, const View& view) const {
    auto entries = slice_of(key.path, view, std::uint64_t{key.index} * batch_entries, batch_entries);
    const auto unsettled = std::erase_if(entries, [&](const Listing::NewEntry& entry) {
        return state(join_path(key.path, entry.name), view.when).is_being_written;
    });
    return entries.empty() && unsettled > 0
               ? make_error(EAGAIN)
               : make_object(Listing(std::move(entries), Listing::Detail::attributes));
}

ObjectPtr SimulatedStore::read_directory(const ObjectKey& key, const View& view) const {
    Directory directory = directory_of(key.path, view);
    const bool is_right = key.version == directory.version;
    if (key.kind == ObjectKind::names && is_right && key.index >= directory.first_names.size()) {
        return make_error(EINVAL);
    }
    switch (key.kind) {
        case ObjectKind::names:
            return is_right ? make_object(
                                  Listing(slice_of(key.path, view, std::uint64_t{key.index} * piece_entries,
                                                   piece_entries),
                                          Listing::Detail::names_only))
                            : make_object(std::move(directory), error_lifetime);
        case ObjectKind::batch:
            return is_right ? read_batch(key, view) : make_error(EAGAIN);
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return is_right ? make_object(XattrBatch()) : make_error(EAGAIN);
        default:
            return make_directory(std::move(directory));
    }
}

int SimulatedStore::error_of(const std::string& path, const View& view) const {
    if (exists(path, view)) {
        return 0;
    }
    for (std::string above = path; above != root() && above != "/";) {
        above = std::string(parent_path(above));
        if (exists(above, view)) {
            return is_directory(above) ? ENOENT : ENOTDIR;
        }
    }
    return ENOENT;
}

ObjectPtr SimulatedStore::read(const ObjectKey& key, TimePoint now, Trouble trouble) const {
    const bool is_of_submount =
        trouble == Trouble::submount_never_mounted || trouble == Trouble::submount_unmounted;
    const std::string point = is_of_submount ? directory(0) : root();
    switch (trouble) {
        case Trouble::none:
            return read_seen(key, {now, std::nullopt});
        case Trouble::never_mounted:
        case Trouble::submount_never_mounted:
            return read_seen(key, {now, point});
        case Trouble::unmounted:
        case Trouble::submount_unmounted: {
            if (is_within(key.path, point)) {
                return make_error(ESTALE);
            }
            const ObjectPtr object = read_seen(key, {now, std::nullopt});
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

ObjectPtr SimulatedStore::read_seen(const ObjectKey& key, const View& view) const {
    const bool is_unsettled = state(key.path, view.when).is_being_written;
    const auto listing = [is_unsettled](std::vector<Listing::NewEntry> entries) {
        return make_object(Listing(std::move(entries), Listing::Detail::attributes),
                           is_unsettled ? std::optional(doubtful_lifetime) : std::nullopt);
    };
    const int error = error_of(key.path, view);
    const bool is_of_directory = key.kind == ObjectKind::directory || key.kind == ObjectKind::batch ||
                                 key.kind == ObjectKind::names || key.kind == ObjectKind::xattr_batch ||
                                 key.kind == ObjectKind::acl_batch;
    if (key.kind == ObjectKind::entry && error == ENOENT &&
        error_of(std::string(parent_path(key.path)), view) == 0) {
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
            return read_directory(key, view);
        case ObjectKind::entry:
            return listing({{.name = std::string(base_name(key.path)),
                             .target = {},
                             .attributes = attributes(key.path, view.when)}});
        case ObjectKind::xattrs:
        case ObjectKind::acl:
            return make_object(Xattrs());
        case ObjectKind::extent:
        case ObjectKind::own_extent:
            return read_file(key, view);
        case ObjectKind::space:
        case ObjectKind::data_map:  // no file is sparse
            return make_error(EINVAL);
    }
    return nullptr;
}

ObjectPtr SimulatedStore::read_file(const ObjectKey& key, const View& view) const {
    if (state(key.path, view.when).is_being_written) {
        return make_error(EAGAIN);
    }
    const Attributes now = attributes(key.path, view.when);
    const auto bytes =
        content(content_seed(key.path, now), key.index * extent_bytes, bytes_in_extent(now, key.index));
    const bool is_wanted = key.version == 0 || key.version == hash_of(version_of(now));
    return make_object(Extent{now, copy_to_blob(bytes)},
                       is_wanted || extents_of(now.size) <= 1 ? std::nullopt : std::optional(error_lifetime));
}

bool SimulatedStore::is_intact(const std::string& path, std::uint32_t index, const Extent& extent) {
    const std::uint64_t size = bytes_in_extent(extent.attributes, index);
    static const auto memory = ExtentMemory::make();
    const auto plain = read_plain(extent, 0, extent.plain_bytes, *memory);
    return extent.plain_bytes == size && plain && plain->bytes.size() == size &&
           is_intact(path, extent.attributes, index * extent_bytes, plain->bytes);
}

bool SimulatedStore::is_intact(const std::string& path, const Attributes& attributes, std::uint64_t offset,
                               std::span<const std::byte> bytes) {
    return std::ranges::equal(bytes, content(content_seed(path, attributes), offset, bytes.size()));
}

}  // namespace copper::sim
