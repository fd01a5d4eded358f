#include "cache/resolve.hpp"

#include <utility>

#include "cache/path.hpp"

namespace copper {
namespace {

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

void resolve_in_batch(Cache& cache, const std::string& directory, const std::string& name,
                      std::size_t position, ResolutionWaiter waiter) {
    const auto index = static_cast<std::uint32_t>(position / batch_entries);
    cache.get({.kind = ObjectKind::batch, .path = directory, .index = index},
              [&cache, directory, name, waiter = std::move(waiter)](const ObjectPtr& object) {
                  const Listing* batch = object->listing();
                  const auto at =
                      batch != nullptr && batch->has_attributes() ? batch->find(name) : std::nullopt;
                  if (at) {
                      waiter(found(batch->at(*at)));
                  } else {
                      resolve_entry(cache, directory, name, waiter);
                  }
              });
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
                  const Listing* listing = object->listing();
                  if (listing == nullptr) {
                      if (object->error() == std::errc::permission_denied) {
                          resolve_entry(cache, directory, name, waiter);
                      } else {
                          waiter(tl::unexpected(object->error()));
                      }
                      return;
                  }
                  const auto position = listing->find(name);
                  if (!position) {
                      waiter(std::nullopt);
                  } else if (listing->has_attributes()) {
                      waiter(found(listing->at(*position)));
                  } else {
                      resolve_in_batch(cache, directory, name, *position, waiter);
                  }
              });
}

}  // namespace copper
