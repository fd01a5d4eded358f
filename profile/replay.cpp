#include "profile/replay.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/path.hpp"
#include "cache/names.hpp"

namespace copper {
namespace {

ObjectKey directory_key(const std::string& path) {
    return {.kind = ObjectKind::directory, .path = path};
}

bool has_piece(const Directory& directory, const ObjectKey& key) {
    return key.kind == ObjectKind::names ? key.index < directory.first_names.size()
                                         : key.index * batch_entries < directory.entries;
}

}  // namespace

struct Replay::Fetcher : std::enable_shared_from_this<Fetcher> {
    struct Wanted {
        ObjectKey key;            // without a version: whatever is there
        std::uint64_t bytes = 0;  // of an extent with a version
        std::uint64_t rest = 0;   // bytes of the file behind that extent, which come next
        FetchFor why = FetchFor::everyone;
        std::shared_ptr<const Listing> names = nullptr;  // of a batch: those of its piece
        int harmless = 0;                                // an error that is no failure
    };
    enum class Below : std::uint8_t { nothing, everything };

    Fetcher(Cache& its_cache, Options its_options, Later its_later, Below its_below)
        : cache(its_cache), options(its_options), later(std::move(its_later)), below(its_below) {}

    void judge() {
        if (log == nullptr) {
            return;
        }
        for (const std::uint64_t use : log->hashes_since(uses_seen)) {
            ++uses_seen;
            ++(foretold.contains(use) ? progress.foretold : progress.unforeseen);
        }
        const bool is_known = progress.foretold + progress.unforeseen >= options.uses_to_judge;
        if (is_known && progress.unforeseen > progress.foretold && progress.state == State::running) {
            end(State::wrong);
        }
    }

    void end(State state) {
        progress.state = state;
        wanted.clear();
        extents_behind = 0;
    }

    void go_on() {
        judge();
        while (!wanted.empty() && in_flight < options.in_flight_max &&
               bytes_in_flight < options.bytes_in_flight_max) {
            if (progress.bytes + bytes_in_flight >= options.bytes_max ||
                (options.has_room != nullptr && !options.has_room(bytes_in_flight))) {
                end(State::full);
                break;
            }
            ++in_flight;
            fetch(take_next());
        }
        if (in_flight == 0 && progress.state == State::running) {
            progress.state = State::done;
        }
    }

    Wanted take_next() {
        Wanted next = std::move(wanted.front());
        wanted.pop_front();
        if (next.rest != 0) {
            Wanted& behind = wanted.emplace_front(next);
            ++behind.key.index;
            behind.bytes = std::min(extent_bytes, next.rest);
            behind.rest -= behind.bytes;
            --extents_behind;
        }
        return next;
    }

    // Runs `then` with the object, in this object's thread.
    void get(const ObjectKey& key, FetchFor why, std::function<void(const ObjectPtr&)> then) {
        cache.get(
            key,
            [self = shared_from_this(), then = std::move(then)](const ObjectPtr& object) {
                self->later([self, then, object] { then(object); });
            },
            why);
    }

    // The version of an extent, or a data map, is in its file's attributes, that of names in their directory.
    void fetch(const Wanted& next) {
        const ObjectKey& key = next.key;
        const bool is_of_names = key.kind == ObjectKind::names || key.kind == ObjectKind::batch ||
                                 key.kind == ObjectKind::xattr_batch || key.kind == ObjectKind::acl_batch;
        const bool is_of_file = key.kind == ObjectKind::extent || key.kind == ObjectKind::data_map;
        if (key.version == 0 && is_of_file) {
            get({.kind = ObjectKind::entry, .path = key.path}, next.why,
                [this, next](const ObjectPtr& object) {
                    const Listing* found = object->listing();
                    const Attributes attributes =
                        found != nullptr && found->size() == 1 ? found->at(0).attributes : Attributes();
                    if (next.key.index >= extents_to_fetch(attributes)) {
                        arrived(next, nullptr);
                    } else if (next.key.kind == ObjectKind::data_map) {
                        fetch_object(map_of(next.key.path, attributes, next.why));
                    } else {
                        fetch_object(extent_of(next.key.path, next.key.index, attributes, next.why));
                    }
                });
        } else if (key.version == 0 && is_of_names) {
            get(directory_key(key.path), next.why, [this, next = next](const ObjectPtr& object) mutable {
                const Directory* names = object->directory();
                if (names == nullptr || !has_piece(*names, next.key)) {
                    arrived(next, nullptr);
                } else {
                    next.key.version = names->version;
                    fetch_object(next);
                }
            });
        } else {
            fetch_object(next);
        }
    }

    void fetch_object(const Wanted& next) {
        bytes_in_flight += next.bytes;
        get(next.key, next.why, [this, next](const ObjectPtr& object) {
            bytes_in_flight -= next.bytes;
            progress.bytes += next.bytes;
            arrived(next, object);
        });
    }

    std::uint64_t extents_to_fetch(const Attributes& attributes) const {
        const bool is_shared = S_ISREG(attributes.mode) && attributes.size <= options.file_bytes_max;
        return is_shared ? extents_of(attributes.size) : 0;
    }

    // REQUIRES: a file that has such an extent.
    static Wanted extent_of(const std::string& path, std::uint32_t index, const Attributes& attributes,
                            FetchFor why) {
        return {.key = {.kind = ObjectKind::extent,
                        .path = path,
                        .index = index,
                        .version = hash_of(version_of(attributes))},
                .bytes = std::min(extent_bytes, attributes.size - index * extent_bytes),
                .why = why};
    }

    static Wanted map_of(const std::string& path, const Attributes& attributes, FetchFor why) {
        return {
            .key = {.kind = ObjectKind::data_map, .path = path, .version = hash_of(version_of(attributes))},
            .why = why};
    }

    // Null: there is no such object.
    void arrived(const Wanted& asked, const ObjectPtr& object) {
        --in_flight;
        const bool is_absent =
            object == nullptr || (asked.key.kind == ObjectKind::entry && object->listing() != nullptr &&
                                  object->listing()->size() == 0);
        const int error = is_absent ? ENOENT : object->error().value();
        const bool is_failure = error != 0 && error != asked.harmless;
        progress.fetched += error == 0 ? 1 : 0;
        if (is_failure) {
            ++progress.failed;
            progress.error = progress.error != 0 ? progress.error : error;
        }
        if (below == Below::everything && !is_failure && progress.state == State::running) {
            add_below(asked, object);
        }
        go_on();
    }

    void add_below(const Wanted& asked, const ObjectPtr& object) {
        const ObjectKey& key = asked.key;
        std::vector<Wanted> found;
        if (const Directory* directory = object->directory()) {
            add_names(key.path, {object, directory}, found);
        } else if (const DataMap* map = object->data_map()) {
            add_segments(key.path, *map, found);
        } else if (const Listing* listing = object->listing();
                   listing != nullptr && key.kind == ObjectKind::names) {
            add_batches(key, {object, listing}, found);
        } else if (listing != nullptr) {
            add_entries(key, *listing, found);
        }
        if (asked.names != nullptr) {
            add_missing(asked, *object, found);
        }
        // In front of what follows: a directory's files come before the next directory.
        wanted.insert(wanted.begin(), found.begin(), found.end());
    }

    static void add_names(const std::string& path, const std::shared_ptr<const Directory>& directory,
                          std::vector<Wanted>& found) {
        ObjectKey piece{.kind = ObjectKind::names, .path = path, .version = directory->version};
        if (directory->has_all_names()) {
            add_batches(piece, {directory, &directory->names}, found);
            return;
        }
        for (; piece.index < directory->first_names.size(); ++piece.index) {
            found.push_back({.key = piece});
        }
    }

    // Of a piece of the names.
    static void add_batches(const ObjectKey& piece, const std::shared_ptr<const Listing>& names,
                            std::vector<Wanted>& found) {
        const std::uint32_t first = piece.index * static_cast<std::uint32_t>(piece_entries / batch_entries);
        for (std::uint32_t batch = 0; batch * batch_entries < names->size(); ++batch) {
            found.push_back({.key = {.kind = ObjectKind::batch,
                                     .path = piece.path,
                                     .index = first + batch,
                                     .version = piece.version},
                             .names = names,
                             .harmless = EAGAIN});  // all of it has just changed
        }
    }

    // A batch is without names that are gone or have just changed, and where names are looked up one after
    // another, without those that nobody has asked for.
    static void add_missing(const Wanted& batch, const Object& entries, std::vector<Wanted>& found) {
        const Listing& names = *batch.names;
        const std::size_t first = batch.key.index % (piece_entries / batch_entries) * batch_entries;
        for (std::size_t i = first; i < std::min(first + batch_entries, names.size()); ++i) {
            const std::string_view name = names.at(i).name;
            if (!entries.entry(name)) {
                found.push_back({.key = entry_key(batch.key.path, std::string(name)), .harmless = ENOENT});
            }
        }
    }

    void add_entries(const ObjectKey& key, const Listing& entries, std::vector<Wanted>& found) {
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const Listing::Entry entry = entries.at(i);
            const std::string path =
                key.kind == ObjectKind::batch ? join_path(key.path, entry.name) : key.path;
            if (S_ISDIR(entry.attributes.mode)) {
                found.push_back({.key = directory_key(path)});
            }
            const std::uint64_t extents = extents_to_fetch(entry.attributes);
            if (extents != 0 && bytes_not_allocated(entry.attributes) >= extent_bytes) {
                found.push_back(map_of(path, entry.attributes, FetchFor::everyone));
            } else if (extents != 0) {
                add_extents(path, entry.attributes, {.begin = 0, .end = extents}, found);
            }
        }
    }

    // Of holes, programs need nothing but the map.
    void add_segments(const std::string& path, const DataMap& map, std::vector<Wanted>& found) {
        std::uint64_t next = 0;
        for (const auto& [begin, end] : map.segments) {
            const Extents extents{.begin = std::max(begin / extent_bytes, next), .end = extents_of(end)};
            if (extents.begin < extents.end) {
                add_extents(path, map.attributes, extents, found);
            }
            next = extents.end;
        }
    }

    struct Extents {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
    };
    // REQUIRES: the file has them, and at least one.
    void add_extents(const std::string& path, const Attributes& attributes, Extents extents,
                     std::vector<Wanted>& found) {
        Wanted& file = found.emplace_back(
            extent_of(path, static_cast<std::uint32_t>(extents.begin), attributes, FetchFor::everyone));
        file.rest =
            std::min(extents.end * extent_bytes, attributes.size) - extents.begin * extent_bytes - file.bytes;
        extents_behind += extents_of(file.rest);
    }

    Cache& cache;
    const Options options;
    const Later later;
    const Below below;
    std::deque<Wanted> wanted;
    std::uint64_t extents_behind = 0;  // of `wanted`: not in it yet
    std::size_t in_flight = 0;
    std::uint64_t bytes_in_flight = 0;
    Progress progress;
    // Of a profile.
    const UseLog* log = nullptr;
    std::size_t uses_seen = 0;
    std::unordered_set<std::uint64_t> foretold;  // hashes of keys
};

std::unique_ptr<Replay> Replay::of_profile(Cache& cache, Options options, Later later, const Profile& profile,
                                           const UseLog& log) {
    auto fetcher = std::make_shared<Fetcher>(cache, options, std::move(later), Fetcher::Below::nothing);
    for (const Profile::Use& use : profile.uses) {
        const FetchFor why = profile.is_for_everyone(use) ? FetchFor::everyone : FetchFor::guess;
        fetcher->wanted.push_back({.key = use.key, .why = why});
        fetcher->foretold.insert(hash_of(use.key));
    }
    fetcher->log = &log;
    fetcher->later([fetcher] {
        fetcher->uses_seen = fetcher->log->size();
        fetcher->go_on();
    });
    return std::unique_ptr<Replay>(new Replay(std::move(fetcher)));
}

std::unique_ptr<Replay> Replay::of_path(Cache& cache, Options options, Later later, std::string path) {
    auto fetcher = std::make_shared<Fetcher>(cache, options, std::move(later), Fetcher::Below::everything);
    fetcher->wanted.push_back({.key = {.kind = ObjectKind::entry, .path = std::move(path)}});
    fetcher->go_on();
    return std::unique_ptr<Replay>(new Replay(std::move(fetcher)));
}

Replay::~Replay() {
    fetcher_->end(State::done);
}

Replay::Progress Replay::progress() {
    fetcher_->judge();
    Progress progress = fetcher_->progress;
    progress.left = fetcher_->wanted.size() + fetcher_->extents_behind + fetcher_->in_flight;
    return progress;
}

const char* to_string(Replay::State state) {
    switch (state) {
        case Replay::State::running:
            return "running";
        case Replay::State::done:
            return "done";
        case Replay::State::wrong:
            return "stopped: programs use something else";
        case Replay::State::full:
            return "stopped: the cache is full";
    }
    return "unknown";
}

}  // namespace copper
