#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/path.hpp"
#include "cache/backing/huge_directories.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/backing/stater.hpp"

namespace copper {
namespace {

using Names = DirectoryNames;
using Entries = std::vector<SystemResult<Listing::NewEntry>>;

// Attributes and text. Most batches are much smaller, but each link can have 4 KiB of text.
constexpr std::size_t batch_bytes_max = object_bytes_max / 2;

struct CloseDirectory {
    void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

SystemResult<Directory> directory_of(UniqueFd fd) {
    Directory directory(::fdopendir(fd.get()));
    if (directory == nullptr) {
        return tl::unexpected(errno);
    }
    fd.release();
    return directory;
}

// Marks Copper mounts among the names and removes kernel filesystems.
void apply_obstacles(Names& names, const std::vector<std::pair<std::string, MountMap::Walk>>& obstacles) {
    for (const auto& [name, kind] : obstacles) {
        const auto at = names.find(name);
        if (!at) {
            continue;
        }
        if (kind == MountMap::Walk::copper_mount) {
            names.mark_copper_mount(*at);
        } else {
            names.erase({*at});
        }
    }
}

// All names, sorted, without obstacles.
SystemResult<Names> read_names(DIR* directory, const PathOpener::Opened& opened, BackingCounters& counters) {
    Names names;
    ++counters.listings;
    ::rewinddir(directory);
    errno = 0;
    while (const dirent* entry =
               ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
        if (is_valid_name(entry->d_name)) {
            if (names.size() == directory_entries_max) {
                return tl::unexpected(E2BIG);
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

bool is_fatal(const SystemResult<Listing::NewEntry>& entry) {
    return !entry && entry.error() != ENOENT;
}

// Gets the types that readdir did not report from the entries. Removes names that are gone.
void complete_types(Names& names, int directory, Stater& stater, BackingCounters& counters) {
    std::vector<std::size_t> unknown;
    std::vector<DirectoryName> to_stat;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!names.has_type(i)) {
            unknown.push_back(i);
            to_stat.push_back(names.slice(i, 1).front());
        }
    }
    const auto entries = stater.stat(directory, to_stat, counters);
    std::vector<std::size_t> gone;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (entries[i]) {
            names.set_type(unknown[i], entries[i]->attributes.mode & S_IFMT);
        } else if (entries[i].error() == ENOENT) {
            gone.push_back(unknown[i]);
        }
    }
    names.erase(gone);
}

}  // namespace

// Of the entries that exist.
Listing PosixBacking::make_listing(Entries entries) {
    std::vector<Listing::NewEntry> kept;
    kept.reserve(entries.size());
    for (auto& entry : entries) {
        if (entry) {
            entry->leads_into_trees = opener_.leads_into(trees_, entry->target, outside_trees_);
            kept.push_back(std::move(*entry));
        }
    }
    return Listing(std::move(kept), Listing::Detail::attributes);
}

// The whole Listing. Nothing if it is too large to travel, or if an entry's attributes cannot be read.
ObjectPtr PosixBacking::list_entries(const DirectoryNames& names, int directory, BackingCounters& counters) {
    if (names.size() > listing_entries_max ||
        names.size() * sizeof(Attributes) + names.text_bytes() > object_bytes_max) {
        return nullptr;
    }
    auto entries = stater_->stat(directory, names.slice(0, names.size()), counters);
    if (std::any_of(entries.begin(), entries.end(), is_fatal)) {
        return nullptr;
    }
    auto object = make_object(make_listing(std::move(entries)));
    return object->bytes() <= object_bytes_max ? object : nullptr;
}

// The directory's object, and the names if the object is an Index.
std::pair<ObjectPtr, std::shared_ptr<HugeDirectory>> PosixBacking::list_names(DirectoryNames names,
                                                                              int directory,
                                                                              BackingCounters& counters) {
    if (auto object = list_entries(names, directory, counters); object != nullptr) {
        return {std::move(object), nullptr};
    }
    complete_types(names, directory, *stater_, counters);
    if (names.size() == 0) {  // all of them were removed meanwhile
        return {make_object(Listing({}, Listing::Detail::attributes)), nullptr};
    }
    auto huge = std::make_shared<HugeDirectory>();
    huge->index = names.index();
    huge->names = std::move(names);
    auto object = make_object(huge->index);
    if (object->bytes() > object_bytes_max) {
        return {make_error(E2BIG), nullptr};
    }
    return {std::move(object), std::move(huge)};
}

// If a name's mount is gone, the name's attributes belong to another directory.
std::optional<std::chrono::milliseconds> PosixBacking::lifetime_in(const std::string& directory) {
    return mounts_.current()->has_lost_in(directory) ? std::optional(unproven_lifetime) : std::nullopt;
}

HugeDirectories::Found PosixBacking::list_directory(const std::string& path) {
    using Found = HugeDirectories::Found;
    const auto failed = [](int error) { return Found{.object = make_error(error), .huge = nullptr}; };
    const auto with_lifetime = [](const ObjectPtr& object,
                                  std::optional<std::chrono::milliseconds> lifetime) {
        return lifetime && !object->error() ? make_object(object->content, lifetime) : object;
    };
    auto& counters = counters_of(path);
    auto opened = opener_.open(path, O_RDONLY | O_DIRECTORY, counters);
    if (!opened) {
        ++counters.listings;
        return failed(opened.error());
    }
    const auto directory = directory_of(std::move(opened->fd));
    if (!directory) {
        return failed(directory.error());
    }
    const int fd = ::dirfd(directory->get());
    Found found;
    std::chrono::milliseconds patience = patience_max;
    for (int attempt = 0; attempt < read_attempts_max; ++attempt) {
        const auto before = settled_stat(fd, clocks_, patience, counters);
        if (!before) {
            return failed(before.error());
        }
        if (auto current = huge_directories_.find(path, version_of(before->attributes)); current != nullptr) {
            return {.object = make_object(current->index), .huge = std::move(current)};
        }
        auto names = read_names(directory->get(), *opened, counters);
        if (!names) {
            return failed(names.error());
        }
        auto [object, huge] = list_names(std::move(*names), fd, counters);
        const auto after = stat_at(fd, "", counters);
        if (!after) {
            return failed(after.error());
        }
        if (after->links == 0) {
            return failed(ENOENT);  // the directory was removed: it reads as empty
        }
        const bool is_unchanged = version_of(before->attributes) == version_of(*after);
        if (is_unchanged && before->rest == Rest::settled) {
            if (huge != nullptr) {
                huge->listed = version_of(*after);
            }
            return {.object = with_lifetime(object, lifetime_in(opened->path)), .huge = std::move(huge)};
        }
        // Not for ever: a name that moved during the read may be missing, or appear twice.
        found = {.object = with_lifetime(object, unproven_lifetime), .huge = std::move(huge)};
        if ((is_unchanged && before->rest == Rest::unproven) || patience.count() == 0) {
            break;  // reading it again now would prove no more
        }
    }
    return found;
}

ObjectPtr PosixBacking::read_listing(const std::string& path) {
    return huge_directories_.read(path, [&] { return list_directory(path); }).object;
}

// The version that the key names, or the directory's present one.
HugeDirectories::Found PosixBacking::find_names(const ObjectKey& key) {
    if (auto kept = huge_directories_.find(key.path, key.version); kept != nullptr) {
        return {.object = nullptr, .huge = std::move(kept)};
    }
    return huge_directories_.read(key.path, [&] { return list_directory(key.path); });
}

ObjectPtr PosixBacking::read_piece(const ObjectKey& key) {
    const auto [object, huge] = find_names(key);
    if (huge == nullptr || huge->index.version != key.version) {
        return make_object(object->content, error_lifetime);
    }
    if (key.index >= huge->index.first_names.size()) {
        return make_error(EINVAL);
    }
    return make_object(huge->names.piece(key.index));
}

// Reads a small directory again: this node keeps nothing of its Listing here.
tl::expected<PosixBacking::BatchNames, ObjectPtr> PosixBacking::small_batch_names(const ObjectKey& key) {
    auto& counters = counters_of(key.path);
    auto opened = opener_.open(key.path, O_RDONLY | O_DIRECTORY, counters);
    if (!opened) {
        return tl::unexpected(make_error(opened.error()));
    }
    const auto directory = directory_of(std::move(opened->fd));
    if (!directory) {
        return tl::unexpected(make_error(directory.error()));
    }
    const auto all = read_names(directory->get(), *opened, counters);
    if (!all) {
        return tl::unexpected(make_error(all.error()));
    }
    auto names = all->slice(std::size_t{key.index} * batch_entries, batch_entries);
    std::vector<Listing::NewEntry> entries;
    for (const auto& name : names) {
        entries.push_back({.name = name.text, .target = {}, .attributes = {}});
    }
    const auto hash = names_hash(Listing(std::move(entries), Listing::Detail::names_only), 0);
    return BatchNames{.names = std::move(names), .hash = hash};
}

tl::expected<PosixBacking::BatchNames, ObjectPtr> PosixBacking::huge_batch_names(const ObjectKey& key) {
    const auto [object, huge] = find_names(key);
    if (huge != nullptr && huge->index.version == key.version) {
        return BatchNames{.names = huge->names.slice(std::size_t{key.index} * batch_entries, batch_entries),
                          .hash = key.version};
    }
    const bool failed = object != nullptr && object->error();
    return failed ? tl::expected<BatchNames, ObjectPtr>(tl::unexpect, object) : BatchNames();
}

// A node that misses an entry in its batch asks for the entry alone.
ObjectPtr PosixBacking::read_batch(const ObjectKey& key) {
    auto& counters = counters_of(key.path);
    const auto known = huge_batch_names(key);
    if (!known) {
        return known.error();
    }
    if (known->hash == 0) {
        return make_object(Listing({}, Listing::Detail::attributes), error_lifetime);
    }
    const auto opened = opener_.open(key.path, O_PATH | O_DIRECTORY, counters);
    if (!opened) {
        return make_error(opened.error());
    }
    auto entries = stater_->stat(opened->fd.get(), known->names, counters);
    std::size_t bytes = 0;
    for (auto& entry : entries) {
        bytes += entry ? sizeof(Attributes) + entry->name.size() + entry->target.size() : 0;
        if (bytes > batch_bytes_max) {
            entry = tl::unexpected(ENOENT);
        }
    }
    return make_object(make_listing(std::move(entries)), lifetime_in(opened->path));
}

}  // namespace copper
