#include "cache/pieces.hpp"

#include <utility>

namespace copper {

void get_piece(Cache& cache, const std::string& directory, const ObjectPtr& index, std::uint32_t piece,
               Cache::Waiter waiter) {
    const ObjectKey key{
        .kind = ObjectKind::names, .path = directory, .index = piece, .version = index->index()->version};
    cache.get(key, [&cache, directory, index, piece, waiter = std::move(waiter)](const ObjectPtr& object) {
        const Listing* listing = object->listing();
        const bool is_names = listing != nullptr && !listing->has_attributes();
        if (is_names && index->index()->fits(piece, *listing)) {
            waiter(object);
        } else if (is_names) {
            waiter(make_error(std::errc::io_error));
        } else if (object->error()) {
            waiter(object);
        } else {
            const ObjectPtr now = make_object(object->content);  // lives as long as the job
            cache.deliver({.kind = ObjectKind::listing, .path = directory}, now);
            waiter(now);
        }
    });
}

}  // namespace copper
