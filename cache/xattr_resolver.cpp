#include "cache/xattr_resolver.hpp"

#include <algorithm>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

// What a batch tells of a name: nothing if it has to be asked for alone.
std::optional<Xattrs> found_in(const ObjectPtr& object, std::string_view name) {
    const XattrBatch* batch = object->xattr_batch();
    if (batch == nullptr) {
        return std::nullopt;
    }
    const auto entry = std::lower_bound(
        batch->entries.begin(), batch->entries.end(), name,
        [](const XattrBatch::Entry& one, std::string_view other) { return one.name < other; });
    return entry != batch->entries.end() && entry->name == name ? entry->xattrs : Xattrs();
}

}  // namespace

void XattrResolver::resolve(const std::string& path, Waiter waiter) {
    const std::string directory(parent_path(path));
    const std::string name(base_name(path));
    if (name.empty() || !trees_.contains(directory)) {
        resolve_alone(path, waiter);
        return;
    }
    find_name(cache_, directory, name, [this, path, waiter = std::move(waiter)](const NameFound& told) {
        if (const auto* present = std::get_if<Present>(&told)) {
            resolve_present(path, *present, waiter);
        } else {
            resolve_alone(path, waiter);
        }
    });
}

void XattrResolver::resolve_alone(const std::string& path, const Waiter& waiter) {
    cache_.get({.kind = ObjectKind::xattrs, .path = path}, [waiter](const ObjectPtr& object) {
        const Xattrs* xattrs = object->xattrs();
        waiter(xattrs != nullptr ? Resolution(*xattrs) : tl::unexpected(object->error()));
    });
}

void XattrResolver::resolve_present(const std::string& path, const Present& place, const Waiter& waiter) {
    const std::string directory(parent_path(path));
    const ObjectKey batch = batch_key(ObjectKind::xattr_batch, directory, place);
    const bool is_worth_batch =
        evidence_.is_worth_batch(directory, *place.directory->directory(), place.position);
    if (!is_worth_batch && cache_.find(batch) == nullptr) {
        resolve_alone(path, waiter);
        return;
    }
    cache_.get(batch, [this, path, waiter](const ObjectPtr& object) {
        if (auto found = found_in(object, base_name(path))) {
            waiter(std::move(*found));
        } else {
            resolve_alone(path, waiter);
        }
    });
}

}  // namespace copper
