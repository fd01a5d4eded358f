#include "cache/names.hpp"

#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

using Waiter = std::function<void(const NameFound&)>;

// How often it begins anew with the names that a directory has by now, before it asks for the entry alone.
constexpr int attempts_max = 2;

void find_in(Cache& cache, const std::string& path, const std::string& name, const ObjectPtr& object,
             int attempts, Waiter waiter) {
    if (const std::error_code error = object->error()) {
        // (davfs2 opens a directory, and then cannot list it: EINVAL.)
        const bool may_be_searched =
            error == std::errc::permission_denied || error == std::errc::invalid_argument;
        waiter(may_be_searched ? NameFound(NamesUnavailable()) : NameFound(error));
        return;
    }
    const auto number = object->directory()->piece_of(name);
    if (!number) {
        waiter(Absent{object});
        return;
    }
    get_piece(cache, path, object, *number,
              [&cache, path, name, object, number = *number, attempts,
               waiter = std::move(waiter)](const Piece& piece) {
                  if (piece.names == nullptr) {
                      const bool goes_on = piece.holder->directory() != nullptr && attempts > 0;
                      goes_on ? find_in(cache, path, name, piece.holder, attempts - 1, waiter)
                              : waiter(NamesUnavailable());
                  } else if (const auto at = piece.names->find(name)) {
                      waiter(Present{object, std::uint64_t{number} * piece_entries + *at});
                  } else {
                      waiter(Absent{object});
                  }
              });
}

}  // namespace

void get_piece(Cache& cache, const std::string& path, const ObjectPtr& directory, std::uint32_t piece,
               std::function<void(const Piece&)> waiter) {
    const Directory& wanted = *directory->directory();
    if (wanted.has_all_names()) {
        waiter({.holder = directory, .names = &wanted.names});
        return;
    }
    const ObjectKey key =
        cache.current({.kind = ObjectKind::names, .path = path, .index = piece, .version = wanted.version});
    cache.get(key, [&cache, key, directory, piece, waiter = std::move(waiter)](const ObjectPtr& object) {
        if (const Listing* names = object->listing()) {
            const bool is_right = directory->directory()->fits(piece, *names);
            waiter(is_right ? Piece{object, names} : Piece{make_error(std::errc::io_error)});
        } else if (object->error()) {
            waiter({.holder = object});
        } else {
            Object directory_now = *make_directory(*object->directory());
            directory_now.is_for_others = object->is_for_others;
            const auto now = std::make_shared<const Object>(std::move(directory_now));
            cache.deliver({.kind = ObjectKind::directory, .path = key.path, .generation = key.generation},
                          now);
            waiter({.holder = now});
        }
    });
}

ObjectKey batch_key(ObjectKind kind, const std::string& directory, const Present& place) {
    return {.kind = kind,
            .path = directory,
            .index = static_cast<std::uint32_t>(place.position / batch_entries),
            .version = place.directory->directory()->version};
}

void fetch_next_batch(Cache& cache, ObjectKind kind, const std::string& directory, const Present& place) {
    const Present next{.directory = place.directory, .position = place.position + batch_entries};
    if (next.position / batch_entries * batch_entries < place.directory->directory()->entries) {
        cache.get(
            batch_key(kind, directory, next), [](const ObjectPtr&) {}, FetchFor::guess);
    }
}

ObjectKey entry_key(const std::string& directory, const std::string& name) {
    return {.kind = ObjectKind::entry, .path = join_path(directory, name)};
}

void find_name(Cache& cache, const std::string& directory, const std::string& name, Waiter waiter) {
    cache.get({.kind = ObjectKind::directory, .path = directory},
              [&cache, directory, name, waiter = std::move(waiter)](const ObjectPtr& object) {
                  find_in(cache, directory, name, object, attempts_max, waiter);
              });
}

}  // namespace copper
