#include "cache/resolve.hpp"

#include <utility>

#include "base/path.hpp"
#include "cache/pieces.hpp"

namespace copper {
namespace {

// If a directory changes meanwhile, start again this often; then ask for the entry alone.
constexpr int attempts_max = 2;

Resolution found(const Listing::Entry& entry) {
    return ResolvedEntry{.attributes = entry.attributes,
                         .target = std::string(entry.target),
                         .leads_into_trees = entry.leads_into_trees};
}

void resolve_entry(Cache& cache, const std::string& directory, const std::string& name,
                   ResolutionWaiter waiter) {
    cache.get({.kind = ObjectKind::entry, .path = join_path(directory, name)},
              [waiter = std::move(waiter)](const ObjectPtr& object) {
                  const Listing* entry = object->listing();
                  if (entry == nullptr) {
                      waiter(tl::unexpected(object->error()));
                  } else if (entry->size() == 0) {
                      waiter(std::nullopt);
                  } else {
                      waiter(found(entry->at(0)));
                  }
              });
}

void resolve_in_batch(Cache& cache, const std::string& directory, const std::string& name, const Index& index,
                      std::size_t position, ResolutionWaiter waiter) {
    const ObjectKey key{.kind = ObjectKind::batch,
                        .path = directory,
                        .index = static_cast<std::uint32_t>(position / batch_entries),
                        .version = index.version};
    cache.get(key, [&cache, directory, name, waiter = std::move(waiter)](const ObjectPtr& object) {
        const Listing* batch = object->listing();
        const auto at = batch != nullptr && batch->has_attributes() ? batch->find(name) : std::nullopt;
        if (at) {
            waiter(found(batch->at(*at)));
        } else {
            resolve_entry(cache, directory, name, waiter);
        }
    });
}

void resolve_in(Cache& cache, const std::string& directory, const std::string& name, const ObjectPtr& object,
                int attempts, ResolutionWaiter waiter);

void resolve_by_index(Cache& cache, const std::string& directory, const std::string& name,
                      const ObjectPtr& object, int attempts, ResolutionWaiter waiter) {
    const auto piece = object->index()->piece_of(name);
    if (!piece) {
        waiter(std::nullopt);
        return;
    }
    if (attempts == 0) {
        resolve_entry(cache, directory, name, std::move(waiter));
        return;
    }
    get_piece(cache, directory, object, *piece,
              [&cache, directory, name, object, piece = *piece, attempts,
               waiter = std::move(waiter)](const ObjectPtr& answer) {
                  const Listing* names = answer->listing();
                  if (answer->error()) {
                      resolve_entry(cache, directory, name, waiter);
                  } else if (names == nullptr || names->has_attributes()) {
                      resolve_in(cache, directory, name, answer, attempts - 1, waiter);
                  } else if (const auto at = names->find(name)) {
                      resolve_in_batch(cache, directory, name, *object->index(),
                                       std::size_t{piece} * piece_entries + *at, waiter);
                  } else {
                      waiter(std::nullopt);
                  }
              });
}

void resolve_in(Cache& cache, const std::string& directory, const std::string& name, const ObjectPtr& object,
                int attempts, ResolutionWaiter waiter) {
    if (const Listing* listing = object->listing()) {
        const auto position = listing->find(name);
        waiter(position ? found(listing->at(*position)) : Resolution(std::nullopt));
    } else if (object->index() != nullptr) {
        resolve_by_index(cache, directory, name, object, attempts, std::move(waiter));
    } else if (object->error() == std::errc::permission_denied) {
        resolve_entry(cache, directory, name, std::move(waiter));
    } else {
        waiter(tl::unexpected(object->error()));
    }
}

}  // namespace

void resolve(Cache& cache, const Trees& trees, const std::string& directory, const std::string& name,
             ResolutionWaiter waiter) {
    if (!trees.contains(directory)) {
        resolve_entry(cache, directory, name, std::move(waiter));
        return;
    }
    cache.get({.kind = ObjectKind::listing, .path = directory},
              [&cache, directory, name, waiter = std::move(waiter)](const ObjectPtr& object) {
                  resolve_in(cache, directory, name, object, attempts_max, waiter);
              });
}

}  // namespace copper
