#include "cache/xattr_resolver.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

// The batches in which the paths of a directory are asked for together. Nothing: they are never.
std::optional<ObjectKind> batch_kind_of(const ObjectKey& alone) {
    if (alone.kind == ObjectKind::xattrs) {
        return ObjectKind::xattr_batch;
    }
    const bool is_of_access = alone.index == static_cast<std::uint32_t>(AclType::access);
    return is_of_access ? std::optional(ObjectKind::acl_batch) : std::nullopt;
}

// What a batch tells of a name: nothing if it has to be asked for alone.
std::optional<XattrResolver::Resolution> found_in(const ObjectPtr& object, std::string_view name) {
    if (object->error() == std::errc::not_supported) {
        return tl::unexpected(object->error());
    }
    const XattrBatch* batch = object->xattr_batch();
    if (batch == nullptr) {
        return std::nullopt;
    }
    const auto entry = std::lower_bound(
        batch->entries.begin(), batch->entries.end(), name,
        [](const XattrBatch::Entry& one, std::string_view other) { return one.name < other; });
    if (entry == batch->entries.end() || entry->name != name) {
        return Xattrs();
    }
    return entry->xattrs ? std::optional<XattrResolver::Resolution>(*entry->xattrs) : std::nullopt;
}

}  // namespace

void XattrResolver::resolve(const ObjectKey& alone, Waiter waiter) {
    const std::string directory(parent_path(alone.path));
    const std::string name(base_name(alone.path));
    if (name.empty() || !trees_.contains(directory) || !batch_kind_of(alone)) {
        resolve_alone(alone, waiter);
        return;
    }
    find_name(cache_, directory, name, [this, alone, waiter = std::move(waiter)](const NameFound& told) {
        if (const auto* present = std::get_if<Present>(&told)) {
            resolve_present(alone, *present, waiter);
        } else {
            resolve_alone(alone, waiter);
        }
    });
}

void XattrResolver::resolve_alone(const ObjectKey& alone, const Waiter& waiter) {
    cache_.get(alone, [waiter](const ObjectPtr& object) {
        const Xattrs* xattrs = object->xattrs();
        waiter(xattrs != nullptr ? Resolution(*xattrs) : tl::unexpected(object->error()));
    });
}

void XattrResolver::resolve_present(const ObjectKey& alone, const Present& place, const Waiter& waiter) {
    const std::string directory(parent_path(alone.path));
    const ObjectKind kind = batch_kind_of(alone).value();
    const ObjectKey batch = batch_key(kind, directory, place);
    const auto worth = evidence_.judge(directory, *place.directory->directory(), place.position);
    if (worth == BatchEvidence::Worth::none && cache_.find(cache_.current(batch)) == nullptr) {
        resolve_alone(alone, waiter);
        return;
    }
    if (worth == BatchEvidence::Worth::batch_and_next) {
        fetch_next_batch(cache_, kind, directory, place);
    }
    cache_.get(batch, [this, alone, waiter](const ObjectPtr& object) {
        if (auto found = found_in(object, base_name(alone.path))) {
            waiter(std::move(*found));
        } else {
            resolve_alone(alone, waiter);
        }
    });
}

}  // namespace copper
