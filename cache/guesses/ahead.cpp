#include "cache/guesses/ahead.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/path.hpp"
#include "cache/batch_evidence.hpp"

namespace copper {
namespace {

constexpr int links_max = 4;

// Where a link leads that lies in `directory`. Nothing if that is not plain from the text.
std::optional<std::string> target_of(std::string_view directory, std::string_view target) {
    return target.starts_with('/') ? normalise_path(target) : normalise_path(join_path(directory, target));
}

}  // namespace

bool is_library(std::string_view name) {
    return name.ends_with(".so") || name.find(".so.") != std::string_view::npos;
}

Ahead::Ahead(Cache& cache, Trees trees, std::uint64_t file_bytes_max)
    : cache_(cache), trees_(std::move(trees)), file_bytes_max_(file_bytes_max) {}

ObjectPtr Ahead::known_names(const std::string& path) {
    ObjectPtr object = cache_.find(cache_.current({.kind = ObjectKind::directory, .path = path}));
    const Directory* directory = object != nullptr ? object->directory() : nullptr;
    const bool is_fit =
        directory != nullptr && directory->has_all_names() && !BatchEvidence::answers_at_once(*directory);
    return is_fit ? object : nullptr;
}

void Ahead::names(const std::string& path, std::function<void(const Directory&)> then) {
    if (!trees_.contains(path)) {
        return;
    }
    get({.key = {.kind = ObjectKind::directory, .path = path},
         .then = [then = std::move(then)](const ObjectPtr& object) {
             const Directory* directory = object->directory();
             if (directory != nullptr && directory->has_all_names() &&
                 !BatchEvidence::answers_at_once(*directory)) {
                 then(*directory);
             }
         }});
}

void Ahead::entry(const std::string& path, std::function<void(const Listing::Entry&)> then) {
    get({.key = {.kind = ObjectKind::entry, .path = path},
         .then = [then = std::move(then)](const ObjectPtr& object) {
             const Listing* found = object->listing();
             if (found != nullptr && found->size() == 1 && !object->lifetime) {
                 then(found->at(0));
             }
         }});
}

void Ahead::file(const std::string& path, GuessCounters& counters,
                 std::function<void(const FirstBytes&)> then) {
    if (counters.fetched > 2 * counters.used + unused_min || !trees_.contains(path)) {
        return;
    }
    ++counters.fetched;
    file_at(path, {.bytes = file_bytes_max_, .links = links_max},
            [self = shared_from_this(), &counters, then = std::move(then)](const FirstBytes& file) {
                self->guessed(file.path, counters);
                then(file);
            });
}

Ahead::File& Ahead::State::file(const std::string& path) {
    if (files.size() >= remembered_max) {
        files.clear();
    }
    return files[path];
}

void Ahead::guessed(const std::string& path, GuessCounters& counters) {
    auto state = state_.lock();
    File& file = state->file(path);
    if (file.guess == nullptr) {
        file.guess = &counters;
        counters.used += file.is_used ? 1 : 0;
    }
}

bool Ahead::used(const std::string& path) {
    auto state = state_.lock();
    File& file = state->file(path);
    if (file.guess != nullptr && !file.is_used) {
        ++file.guess->used;
    }
    file.is_used = true;
    return file.guess != nullptr;
}

void Ahead::small_file(const std::string& path) {
    file_at(path, {.bytes = std::min(extent_bytes, file_bytes_max_), .links = 0}, [](const FirstBytes&) {});
}

void Ahead::file_at(const std::string& path, Limits limits, std::function<void(const FirstBytes&)> then) {
    entry(path,
          [self = shared_from_this(), path, limits, then = std::move(then)](const Listing::Entry& found) {
              const Attributes& attributes = found.attributes;
              if (S_ISLNK(attributes.mode)) {
                  const auto target = target_of(parent_path(path), found.target);
                  if (target && limits.links > 0 && self->trees_.contains(*target)) {
                      self->file_at(*target, {.bytes = limits.bytes, .links = limits.links - 1}, then);
                  }
                  return;
              }
              if (!S_ISREG(attributes.mode) || attributes.size == 0 || attributes.size > limits.bytes) {
                  return;
              }
              FirstBytes file{.path = path, .attributes = attributes, .extent = nullptr};
              self->get_extent(file, 0, [file, then](const ObjectPtr& object) mutable {
                  if (object->extent() != nullptr && !object->lifetime) {
                      file.extent = object;
                      then(file);
                  }
              });
          });
}

void Ahead::get_extent(const FirstBytes& file, std::uint64_t index, Then then, Needed needed) {
    const std::uint64_t offset = index * extent_bytes;
    get({.key = {.kind = ObjectKind::extent,
                 .path = file.path,
                 .index = static_cast<std::uint32_t>(index),
                 .version = hash_of(version_of(file.attributes))},
         .then = std::move(then),
         .bytes = std::min(extent_bytes, file.attributes.size - std::min(file.attributes.size, offset)),
         .needed = needed});
}

std::optional<PlainBytes> Ahead::first_bytes(const FirstBytes& file) {
    return read_plain(*file.extent->extent(), 0, bytes_looked_at_max, *decoded_);
}

void Ahead::extents(const FirstBytes& file, FileSpan span, Needed needed) {
    const std::uint64_t end = std::min(span.offset + span.bytes, file.attributes.size);
    for (std::uint64_t index = span.offset / extent_bytes; index * extent_bytes < end; ++index) {
        get_extent(
            file, index, [](const ObjectPtr&) {}, needed);
    }
}

void Ahead::bytes(const FirstBytes& file, std::uint64_t offset, std::size_t size,
                  std::function<void(std::string_view)> then) {
    if (offset >= file.attributes.size) {
        return;
    }
    get_extent(
        file, offset / extent_bytes,
        [self = shared_from_this(), file, offset, size, then = std::move(then)](const ObjectPtr& object) {
            const Extent* extent = object->extent();
            const auto plain = extent != nullptr
                                   ? read_plain(*extent, offset % extent_bytes, size, *self->decoded_)
                                   : std::nullopt;
            if (!plain) {
                return;
            }
            std::string text(reinterpret_cast<const char*>(plain->bytes.data()), plain->bytes.size());
            const std::uint64_t next = offset + text.size();
            if (text.size() == size || text.empty() || next >= file.attributes.size) {
                then(text);
            } else {
                self->bytes(file, next, size - text.size(),
                            [text, then](std::string_view rest) { then(text + std::string(rest)); });
            }
        });
}

bool Ahead::remember(const std::string& what) {
    auto state = state_.lock();
    if (state->remembered.size() >= remembered_max) {
        state->remembered.clear();
    }
    return state->remembered.insert(what).second;
}

void Ahead::get(Wish wish) {
    if (const ObjectPtr object = cache_.find(cache_.current(wish.key))) {
        wish.then(object);
        return;
    }
    {
        auto state = state_.lock();
        auto& queue = state->queues[wish.bytes == 0 ? 0 : wish.needed == Needed::soon ? 1 : 2];
        if (queue.size() >= queued_max) {
            return;
        }
        queue.push_back(std::move(wish));
    }
    pump();
}

std::optional<Ahead::Wish> Ahead::take() {
    auto state = state_.lock();
    for (auto& queue : state->queues) {
        if (queue.empty() || state->in_flight >= in_flight_max ||
            (queue.front().bytes > 0 && state->bytes_in_flight >= bytes_in_flight_max)) {
            continue;
        }
        Wish wish = std::move(queue.front());
        queue.pop_front();
        ++state->in_flight;
        state->bytes_in_flight += wish.bytes;
        return wish;
    }
    return std::nullopt;
}

void Ahead::done(std::uint64_t bytes) {
    auto state = state_.lock();
    --state->in_flight;
    state->bytes_in_flight -= bytes;
}

void Ahead::pump() {
    while (auto wish = take()) {
        if (const ObjectPtr object = cache_.find(cache_.current(wish->key))) {  // by now
            done(wish->bytes);
            wish->then(object);
            continue;
        }
        cache_.get(
            wish->key,
            [self = shared_from_this(), bytes = wish->bytes, then = wish->then](const ObjectPtr& object) {
                self->done(bytes);
                then(object);
                self->pump();
            },
            FetchFor::guess);
    }
}

}  // namespace copper
