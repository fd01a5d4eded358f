#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/path.hpp"
#include "cache/backing/concurrent_calls.hpp"
#include "cache/backing/directory_names.hpp"
#include "cache/backing/listed_directories.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/backing/time_waited.hpp"

namespace copper {
namespace {

using Names = DirectoryNames;
using Entries = std::vector<SystemResult<Listing::NewEntry>>;

// Attributes and text. Most batches are much smaller, but each link can have 4 KiB of text.
constexpr std::size_t batch_bytes_max = object_bytes_max / 2;

struct CloseDirectory {
    void operator()(DIR* directory) const { ::closedir(directory); }
};
using DirectoryStream = std::unique_ptr<DIR, CloseDirectory>;

SystemResult<DirectoryStream> stream_of(UniqueFd fd) {
    DirectoryStream directory(::fdopendir(fd.get()));
    if (directory == nullptr) {
        return tl::unexpected(errno);
    }
    fd.release();
    return directory;
}

// A Copper mount is a directory; kernel filesystems are removed.
void apply_obstacles(Names& names, const std::vector<std::pair<std::string, MountMap::Walk>>& obstacles) {
    for (const auto& [name, kind] : obstacles) {
        const auto at = names.find(name);
        if (!at) {
            continue;
        }
        if (kind == MountMap::Walk::copper_mount) {
            names.set_type(*at, S_IFDIR);
        } else {
            names.erase({*at});
        }
    }
}

// All names, sorted, without obstacles. `time_to_open`: what the filesystem let us wait before.
SystemResult<Names> read_names(DIR* directory, const PathOpener::Opened& opened,
                               std::chrono::nanoseconds time_to_open, ReadCounters& counters) {
    Names names;
    counters.count(&BackingCounters::listings);
    ::rewinddir(directory);
    errno = 0;
    const TimeWaited time_to_read;
    const dirent* entry = ::readdir(directory);  // NOLINT(concurrency-mt-unsafe): a stream of our own
    // Many clients open a directory without asking a server.
    counters.pace().note(Pace::Kind::list, std::max(time_to_open, time_to_read.elapsed()));
    for (; entry != nullptr; entry = ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe)
        if (is_valid_name(entry->d_name)) {
            if (names.size() == directory_entries_max) {
                return tl::unexpected(E2BIG);
            }
            if (names.size() % piece_entries == 0) {
                counters.progress().note();  // the first listing of a large directory takes many calls
            }
            names.add(entry->d_name, entry->d_ino, static_cast<std::uint32_t>(DTTOIF(entry->d_type)));
        }
        errno = 0;
    }
    if (errno != 0) {
        return tl::unexpected(errno);
    }
    names.sort_and_drop_repeats();
    apply_obstacles(names, opened.mounts->obstacles_in(opened.path));
    return names;
}

// Types that the directory itself does not tell, from the entries; names that are gone are taken out.
void complete_types(Names& names, int directory, ConcurrentCalls& calls, ReadCounters& counters) {
    std::vector<std::size_t> unknown;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!names.has_type(i)) {
            unknown.push_back(i);
        }
    }
    std::vector<SystemResult<Attributes>> found(unknown.size());
    calls.for_each(directory, unknown.size(), [&](std::size_t i) {
        found[i] = stat_at(directory, std::string(names.text(unknown[i])), counters);
    });
    std::vector<std::size_t> gone;
    for (std::size_t i = 0; i < unknown.size(); ++i) {
        if (found[i]) {
            names.set_type(unknown[i], found[i]->mode & S_IFMT);
        } else if (found[i].error() == ENOENT) {
            gone.push_back(unknown[i]);
        }
    }
    names.erase(gone);
}

ListedDirectoryPtr make_listed(const Names& names, Directory directory, std::optional<Version> listed) {
    std::vector<PackedNames> pieces;
    for (std::uint32_t i = 0; !directory.has_all_names() && i < directory.first_names.size(); ++i) {
        pieces.emplace_back(names.piece(i));
    }
    return std::make_shared<ListedDirectory>(ListedDirectory{
        .object = make_directory(std::move(directory)), .pieces = std::move(pieces), .listed = listed});
}

}  // namespace

// Of the entries that exist.
Listing PosixBacking::make_listing(Entries entries, const ReadCounters& counters) {
    std::vector<Listing::NewEntry> kept;
    kept.reserve(entries.size());
    ReadCounters outside(outside_trees_, counters.progress(), counters.pace());
    for (auto& entry : entries) {
        if (entry) {
            entry->leads_into_trees = opener_.leads_into(trees_, entry->target, outside);
            kept.push_back(std::move(*entry));
        }
    }
    return Listing(std::move(kept), Listing::Detail::attributes);
}

// The attributes of a name whose mount is gone are those of another directory.
std::optional<std::chrono::milliseconds> PosixBacking::lifetime_in(const std::string& directory) {
    return mounts_.current()->has_lost_in(directory) ? std::optional(doubtful_lifetime) : std::nullopt;
}

// A directory that is being listed.
struct PosixBacking::OpenDirectory {
    const ObjectKey& key;
    const PathOpener::Opened& place;
    DIR* stream;
    ReadCounters& counters;
    std::chrono::nanoseconds time_to_open;
    std::chrono::milliseconds patience = patience_max;
};

// `names->listed` is set if the directory was settled. If it was not, another attempt may prove more.
SystemResult<ListedDirectories::Found> PosixBacking::list_once(OpenDirectory& directory) {
    const int fd = ::dirfd(directory.stream);
    const auto before = settled_stat(fd, clocks_, directory.patience, directory.counters);
    if (!before) {
        return tl::unexpected(before.error());
    }
    if (auto current = listed_.find(directory.key, version_of(before->attributes)); current != nullptr) {
        ObjectPtr object = current->object;
        const bool is_proven = !lifetime_in(directory.place.path);
        if (is_proven != current->directory().is_proven) {
            Directory content = current->directory();
            content.is_proven = is_proven;
            object = make_directory(std::move(content));
        }
        return ListedDirectories::Found{.object = std::move(object), .names = std::move(current)};
    }
    auto names = read_names(directory.stream, directory.place, directory.time_to_open, directory.counters);
    if (!names) {
        return tl::unexpected(names.error());
    }
    complete_types(*names, fd, *calls_, directory.counters);
    if (!directory.place.mounts->numbers_files(directory.place.path)) {
        for (std::size_t i = 0; i < names->size(); ++i) {
            names->set_inode(i, number_of(join_path(directory.key.path, names->text(i))));
        }
    }
    const auto after = stat_at(fd, "", directory.counters);
    if (!after) {
        return tl::unexpected(after.error());
    }
    if (after->links == 0 && before->attributes.links != 0) {
        return tl::unexpected(ENOENT);  // the directory was removed: it reads as empty
    }
    Directory content = names->directory();
    content.operation_time = directory.counters.pace().operation_time();
    content.is_serial = directory.counters.pace().is_serial();
    if (content.bytes() > object_bytes_max) {
        return tl::unexpected(E2BIG);
    }
    const bool is_unchanged = version_of(before->attributes) == version_of(*after);
    const auto listed = is_unchanged && before->is_settled ? std::optional(version_of(*after)) : std::nullopt;
    content.is_proven = listed && !lifetime_in(directory.place.path);
    auto made = make_listed(*names, std::move(content), listed);
    return ListedDirectories::Found{.object = made->object, .names = std::move(made)};
}

ListedDirectories::Found PosixBacking::list_directory(const ObjectKey& key, ReadCounters& counters) {
    using Found = ListedDirectories::Found;
    const auto failed = [](int error) { return Found{.object = make_error(error), .names = nullptr}; };
    const TimeWaited time;
    auto opened = opener_.open(key.path, O_RDONLY | O_DIRECTORY, counters);
    const auto time_to_open = time.elapsed();
    if (!opened) {
        counters.count(&BackingCounters::listings);
        return failed(opened.error());
    }
    const auto stream = stream_of(std::move(opened->fd));
    if (!stream) {
        return failed(stream.error());
    }
    OpenDirectory directory{.key = key,
                            .place = *opened,
                            .stream = stream->get(),
                            .counters = counters,
                            .time_to_open = time_to_open};
    SystemResult<Found> found;
    for (int attempt = 0; attempt < read_attempts_max; ++attempt) {
        found = list_once(directory);
        const bool is_settled = found && found->names->listed;
        if (!found || is_settled || directory.patience.count() == 0) {
            break;
        }
    }
    if (!found) {
        return failed(found.error());
    }
    if (auto version = found->names->listed) {
        version->inode = number_of(key.path, *opened, version->inode);
        note_version(ReadVersions::Kind::directory, key.path, *version);
    }
    return std::move(*found);
}

ObjectPtr PosixBacking::read_directory(const ObjectKey& key, ReadCounters& counters) {
    return listed_.read(key, [&] { return list_directory(key, counters); }).object;
}

// The names of the wanted version, or of the present one.
ListedDirectories::Found PosixBacking::find_names(const ObjectKey& key, ReadCounters& counters) {
    if (auto kept = listed_.find(key.path, key.version); kept != nullptr) {
        return {.object = nullptr, .names = std::move(kept)};
    }
    return listed_.read(key, [&] { return list_directory(key, counters); });
}

ObjectPtr PosixBacking::read_piece(const ObjectKey& key, ReadCounters& counters) {
    const auto [object, listed] = find_names(key, counters);
    if (listed == nullptr || listed->directory().version != key.version) {
        return make_object(object->content, error_lifetime);  // the life of this answer, not of the directory
    }
    if (key.index >= listed->directory().first_names.size()) {
        return make_error(EINVAL);
    }
    return listed->piece(key.index);
}

// The names of a batch, or the object that says why there are none.
tl::expected<PosixBacking::BatchNames, ObjectPtr> PosixBacking::batch_names(const ObjectKey& key,
                                                                            ReadCounters& counters) {
    auto [object, listed] = find_names(key, counters);
    if (listed == nullptr) {
        return tl::unexpected(object);
    }
    if (listed->directory().version != key.version) {
        return tl::unexpected(make_error(EAGAIN));
    }
    BatchNames batch;
    static_assert(piece_entries % batch_entries == 0);
    const std::size_t first = std::size_t{key.index} * batch_entries;
    if (first < listed->directory().entries) {
        batch.piece = listed->piece(first / piece_entries);
        const Listing& names = *batch.piece->listing();
        for (std::size_t i = first % piece_entries; i < names.size() && batch.names.size() < batch_entries;
             ++i) {
            batch.names.push_back(names.at(i));
        }
    }
    return batch;
}

// A node that misses an entry in its batch asks for the entry alone: one that is gone, or has just changed.
ObjectPtr PosixBacking::read_batch(const ObjectKey& key, ReadCounters& counters) {
    const auto names = batch_names(key, counters);
    if (!names) {
        return names.error();
    }
    const auto opened = opener_.open(key.path, O_PATH | O_DIRECTORY, counters);
    if (!opened) {
        return make_error(opened.error());
    }
    const auto directory = parent_directory(opened->fd.get());
    if (!directory) {
        return make_error(directory.error());
    }
    const auto mounts = opened->mounts->obstacles_in(opened->path);
    const auto is_mount = [&](std::string_view name) {
        return std::any_of(mounts.begin(), mounts.end(),
                           [&](const auto& mount) { return mount.first == name; });
    };
    const bool has_numbers = opened->mounts->numbers_files(opened->path);
    Entries entries(names->names.size(), tl::unexpected(EAGAIN));
    const auto look_up = [&](std::size_t i) {
        const Listing::Entry& known = names->names[i];
        const std::string name(known.name);
        if (is_mount(name)) {
            entries[i] = copper_mount_entry(name, known.attributes.inode);
            return;
        }
        auto found = entry_at(*directory, name, clocks_, IfUnsettled::take, counters);
        if (found && found->is_settled) {
            entries[i] = std::move(found->entry);
            if (!has_numbers) {
                entries[i]->attributes.inode = number_of(join_path(key.path, name));
            }
        } else {
            entries[i] = tl::unexpected(found ? EAGAIN : found.error());
        }
    };
    calls_->for_each(directory->fd, entries.size(), look_up, [&] { return !counters.pace().is_serial(); });
    const bool is_any_unsettled =
        std::ranges::any_of(entries, [](const auto& entry) { return !entry && entry.error() == EAGAIN; });
    std::size_t bytes = 0;
    for (auto& entry : entries) {
        bytes += entry ? sizeof(Attributes) + entry->name.size() + entry->target.size() : 0;
        if (bytes > batch_bytes_max) {
            entry = tl::unexpected(ENOENT);
        }
    }
    Listing listing = make_listing(std::move(entries), counters);
    if (listing.size() == 0 && is_any_unsettled) {
        return make_error(EAGAIN);  // no names at all would look like trouble of this node
    }
    return make_object(std::move(listing), lifetime_in(opened->path));
}

}  // namespace copper
