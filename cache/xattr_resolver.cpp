#include "cache/xattr_resolver.hpp"

#include <algorithm>
#include <utility>

#include "base/path.hpp"
#include "cache/pieces.hpp"

namespace copper {
namespace {

using Waiter = XattrResolver::Waiter;
using Resolution = XattrResolver::Resolution;

// The attributes that a batch has for a name; nothing if this node must ask for the name alone.
std::optional<Xattrs> found_in(const XattrBatch& batch, std::uint64_t names, std::string_view name) {
    if (batch.names != names) {
        return std::nullopt;
    }
    const auto entry = std::lower_bound(
        batch.entries.begin(), batch.entries.end(), name,
        [](const XattrBatch::Entry& one, std::string_view other) { return one.name < other; });
    return entry != batch.entries.end() && entry->name == name ? entry->xattrs : Xattrs();
}

void resolve_alone(Cache& cache, const std::string& path, const Waiter& waiter) {
    cache.get({.kind = ObjectKind::xattrs, .path = path}, [waiter](const ObjectPtr& object) {
        const Xattrs* xattrs = object->xattrs();
        waiter(xattrs != nullptr ? Resolution(*xattrs) : tl::unexpected(object->error()));
    });
}

// `names`: the XattrBatch::names that the reader must report, or it has other names than this node.
void resolve_in_batch(Cache& cache, const std::string& path, const ObjectKey& key, std::uint64_t names,
                      const Waiter& waiter) {
    cache.get(key, [&cache, path, names, waiter](const ObjectPtr& object) {
        const XattrBatch* batch = object->xattr_batch();
        if (auto found = batch != nullptr ? found_in(*batch, names, base_name(path)) : std::nullopt) {
            waiter(std::move(*found));
        } else {
            resolve_alone(cache, path, waiter);
        }
    });
}

ObjectKey batch_key(const std::string& path, std::size_t position, std::uint64_t version) {
    return {.kind = ObjectKind::xattr_batch,
            .path = std::string(parent_path(path)),
            .index = static_cast<std::uint32_t>(position / batch_entries),
            .version = version};
}

void resolve_by_index(Cache& cache, const std::string& path, const ObjectPtr& object, const Waiter& waiter) {
    const auto piece = object->index()->piece_of(base_name(path));
    if (!piece) {
        resolve_alone(cache, path, waiter);
        return;
    }
    get_piece(
        cache, std::string(parent_path(path)), object, *piece,
        [&cache, path, waiter, piece = *piece, version = object->index()->version](const ObjectPtr& answer) {
            // A Listing with attributes is not the piece: the directory has changed, and this is its present
            // object.
            const Listing* names = answer->listing();
            const bool is_piece = names != nullptr && !names->has_attributes();
            const auto at = is_piece ? names->find(base_name(path)) : std::nullopt;
            if (at) {
                const auto position = std::size_t{piece} * piece_entries + *at;
                resolve_in_batch(cache, path, batch_key(path, position, version), version, waiter);
            } else {
                resolve_alone(cache, path, waiter);
            }
        });
}

}  // namespace

void XattrResolver::resolve(const std::string& path, Waiter waiter) {
    const std::string directory(parent_path(path));
    const std::string name(base_name(path));
    if (name.empty() || !trees_.contains(directory) || is_first_in(directory, name)) {
        resolve_alone(cache_, path, waiter);
        return;
    }
    cache_.get({.kind = ObjectKind::listing, .path = directory},
               [this, path, waiter = std::move(waiter)](const ObjectPtr& object) {
                   if (object->listing() != nullptr) {
                       resolve_by_listing(path, object, waiter);
                   } else if (object->index() != nullptr) {
                       resolve_by_index(cache_, path, object, waiter);
                   } else {
                       resolve_alone(cache_, path, waiter);
                   }
               });
}

void XattrResolver::resolve_by_listing(const std::string& path, const ObjectPtr& object,
                                       const Waiter& waiter) {
    if (const auto position = object->listing()->find(base_name(path))) {
        const ObjectKey key = batch_key(path, *position, 0);
        resolve_in_batch(cache_, path, key, hash_of_names(object, key.index), waiter);
    } else {
        resolve_alone(cache_, path, waiter);
    }
}

std::uint64_t XattrResolver::hash_of_names(const ObjectPtr& object, std::uint32_t batch) {
    auto last = last_hash_.lock();
    if (last->of.lock() != object || last->batch != batch) {
        *last = {.of = object, .batch = batch, .names = names_hash(*object->listing(), batch)};
    }
    return last->names;
}

bool XattrResolver::is_first_in(const std::string& directory, const std::string& name) {
    auto first_names = first_names_.lock();
    if (first_names->size() >= directories_max && first_names->count(directory) == 0) {
        first_names->clear();
    }
    return first_names->try_emplace(directory, name).first->second == name;
}

}  // namespace copper
