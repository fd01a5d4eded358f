#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "cache/backing.hpp"
#include "cache/path.hpp"
#include "cache/stater.hpp"

namespace copper {
namespace {

using Names = std::vector<DirectoryName>;
using Entries = std::vector<SystemResult<Listing::NewEntry>>;

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

// Marks Copper mounts among the names, and takes out kernel filesystems.
void apply_obstacles(Names& names, const std::vector<std::pair<std::string, MountMap::Walk>>& obstacles) {
    for (const auto& obstacle : obstacles) {
        const auto at = std::find_if(names.begin(), names.end(),
                                     [&](const auto& name) { return name.text == obstacle.first; });
        if (at == names.end()) {
            continue;
        }
        if (obstacle.second == MountMap::Walk::copper_mount) {
            at->is_copper_mount = true;
            at->type = S_IFDIR;
        } else {
            names.erase(at);
        }
    }
}

// All names, sorted and without obstacles.
SystemResult<Names> read_names(DIR* directory, const PathOpener::Opened& opened, BackingCounters& counters) {
    Names names;
    ++counters.listings;
    ::rewinddir(directory);
    errno = 0;
    while (const dirent* entry =
               ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
        if (is_valid_name(entry->d_name)) {
            names.push_back({entry->d_name, entry->d_ino, static_cast<std::uint32_t>(DTTOIF(entry->d_type))});
        }
        errno = 0;
    }
    if (errno != 0) {
        return tl::unexpected(errno);
    }
    // A directory that changes meanwhile may give a name twice.
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
    names.erase(std::unique(names.begin(), names.end(),
                            [](const auto& a, const auto& b) { return a.text == b.text; }),
                names.end());
    apply_obstacles(names, opened.mounts->obstacles_in(opened.path));
    return names;
}

Listing by_name_only(const Names& names) {
    std::vector<Listing::NewEntry> entries;
    entries.reserve(names.size());
    for (const auto& name : names) {
        entries.push_back(
            {.name = name.text, .target = {}, .attributes = {.inode = name.inode, .mode = name.type}});
    }
    return Listing(std::move(entries), Listing::Detail::names_only);
}

bool is_fatal(const SystemResult<Listing::NewEntry>& entry) {
    return !entry && entry.error() != ENOENT;
}

Names slice(const Listing& listing, std::size_t first, const PathOpener::Opened& opened) {
    Names names;
    for (std::size_t i = first; i < std::min(first + batch_entries, listing.size()); ++i) {
        const auto entry = listing.at(i);
        names.push_back({std::string(entry.name), entry.attributes.inode, entry.attributes.mode & S_IFMT});
    }
    apply_obstacles(names, opened.mounts->obstacles_in(opened.path));
    return names;
}

// Types that the directory itself does not tell, from the entries; names that are gone are taken out.
Names complete_types(Names names, int directory, Stater& stater, BackingCounters& counters) {
    Names unknown;
    std::copy_if(names.begin(), names.end(), std::back_inserter(unknown),
                 [](const auto& n) { return n.type == 0; });
    if (unknown.empty()) {
        return names;
    }
    const auto entries = stater.stat(directory, unknown, counters);
    Names completed;
    completed.reserve(names.size());
    std::size_t next = 0;
    for (auto& name : names) {
        if (name.type == 0) {
            const auto& entry = entries[next++];
            if (!entry && entry.error() == ENOENT) {
                continue;
            }
            name.type = entry ? entry->attributes.mode & S_IFMT : 0;
        }
        completed.push_back(std::move(name));
    }
    return completed;
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

Listing PosixBacking::list_names(Names names, int directory, BackingCounters& counters) {
    if (names.size() <= listing_entries_with_attributes_max) {
        auto entries = stater_->stat(directory, names, counters);
        if (std::none_of(entries.begin(), entries.end(), is_fatal)) {
            return make_listing(std::move(entries));
        }
    }
    return by_name_only(complete_types(std::move(names), directory, *stater_, counters));
}

// The attributes of a name whose mount is gone are those of another directory.
std::optional<std::chrono::milliseconds> PosixBacking::lifetime_in(const std::string& directory) {
    return mounts_.current()->has_lost_in(directory) ? std::optional(unproven_lifetime) : std::nullopt;
}

ObjectPtr PosixBacking::read_listing(const std::string& path) {
    auto& counters = counters_of(path);
    auto opened = opener_.open(path, O_RDONLY | O_DIRECTORY, counters);
    if (!opened) {
        ++counters.listings;
        return make_error(opened.error());
    }
    const auto directory = directory_of(std::move(opened->fd));
    if (!directory) {
        return make_error(directory.error());
    }
    const int fd = ::dirfd(directory->get());
    ObjectPtr object;
    std::chrono::milliseconds patience = patience_max;
    for (int attempt = 0; attempt < read_attempts_max; ++attempt) {
        const auto before = settled_stat(fd, clocks_, patience, counters);
        auto names = read_names(directory->get(), *opened, counters);
        if (!names) {
            return make_error(names.error());
        }
        auto listing = list_names(std::move(*names), fd, counters);
        const auto after = stat_at(fd, "", counters);
        if (!before || !after) {
            return make_error(before ? after.error() : before.error());
        }
        if (after->links == 0) {
            return make_error(ENOENT);  // removed meanwhile, so it reads as empty
        }
        const bool is_unchanged = version_of(before->attributes) == version_of(*after);
        if (is_unchanged && before->rest == Rest::settled) {
            return make_object(std::move(listing), lifetime_in(opened->path));
        }
        // Not for ever: a name that moved while it was read may be in it twice, or not at all.
        object = make_object(std::move(listing), unproven_lifetime);
        if ((is_unchanged && before->rest == Rest::unproven) || patience.count() == 0) {
            return object;  // to read it again now would prove no more
        }
    }
    return object;
}

ObjectPtr PosixBacking::read_batch(const ObjectKey& key, const Listing* listing) {
    auto& counters = counters_of(key.path);
    auto opened = opener_.open(key.path, (listing != nullptr ? O_PATH : O_RDONLY) | O_DIRECTORY, counters);
    if (!opened) {
        return make_error(opened.error());
    }
    const std::size_t first = std::size_t{key.index} * batch_entries;
    if (listing != nullptr) {
        return make_object(
            make_listing(stater_->stat(opened->fd.get(), slice(*listing, first, *opened), counters)),
            lifetime_in(opened->path));
    }
    const auto directory = directory_of(std::move(opened->fd));
    if (!directory) {
        return make_error(directory.error());
    }
    auto names = read_names(directory->get(), *opened, counters);
    if (!names) {
        return make_error(names.error());
    }
    const auto begin = names->begin() + static_cast<std::ptrdiff_t>(std::min(first, names->size()));
    const auto end = begin + std::min<std::ptrdiff_t>(batch_entries, names->end() - begin);
    return make_object(make_listing(stater_->stat(::dirfd(directory->get()), Names(begin, end), counters)),
                       lifetime_in(opened->path));
}

}  // namespace copper
