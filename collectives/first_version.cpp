#include "collectives/first_version.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/path.hpp"
#include "cache/names.hpp"

namespace copper {
namespace {

bool lasts(const ObjectPtr& object) {
    return object != nullptr && !object->lifetime;
}

Listing::NewEntry copy_of(const Listing::Entry& entry) {
    return {.name = std::string(entry.name),
            .target = std::string(entry.target),
            .attributes = entry.attributes,
            .leads_into_trees = entry.leads_into_trees,
            .begins_filesystem = entry.begins_filesystem};
}

// The batch that holds this name's attributes, if the cache has it.
ObjectPtr batch_with(const std::string& directory, std::string_view name, const FindObject& find) {
    const ObjectPtr holder = find({.kind = ObjectKind::directory, .path = directory});
    const Directory* names = holder != nullptr ? holder->directory() : nullptr;
    const auto number = names != nullptr ? names->piece_of(name) : std::nullopt;
    if (!number) {
        return nullptr;
    }
    const ObjectPtr piece = names->has_all_names() ? nullptr
                                                   : find({.kind = ObjectKind::names,
                                                           .path = directory,
                                                           .index = *number,
                                                           .version = names->version});
    const Listing* listing = names->has_all_names() ? &names->names
                             : piece != nullptr     ? piece->listing()
                                                    : nullptr;
    const auto at = listing != nullptr ? listing->find(name) : std::nullopt;
    if (!at) {
        return nullptr;
    }
    return find(batch_key(ObjectKind::batch, directory,
                          {.directory = holder, .position = std::uint64_t{*number} * piece_entries + *at}));
}

ObjectPtr entry_as_known(const ObjectKey& key, const ObjectPtr& object, const FindObject& find) {
    const std::string_view name = base_name(key.path);
    const ObjectPtr batch = batch_with(std::string(parent_path(key.path)), name, find);
    const auto known = lasts(batch) ? batch->entry(name) : std::nullopt;
    return known ? make_object(Listing({copy_of(*known)}, Listing::Detail::attributes)) : object;
}

ObjectPtr batch_as_known(const ObjectKey& key, const ObjectPtr& object, const FindObject& find) {
    const Listing& read = *object->listing();
    std::vector<Listing::NewEntry> entries;
    bool is_other = false;
    for (std::size_t i = 0; i < read.size(); ++i) {
        const Listing::Entry entry = read.at(i);
        const ObjectPtr alone = find(entry_key(key.path, std::string(entry.name)));
        const bool is_known = lasts(alone) && alone->listing() != nullptr;
        const auto known = is_known ? alone->entry(entry.name) : std::optional(entry);
        is_other = is_other || (is_known && !(known && known->attributes == entry.attributes));
        if (known) {
            entries.push_back(copy_of(*known));
        }
    }
    return is_other ? make_object(Listing(std::move(entries), Listing::Detail::attributes), object->lifetime)
                    : object;
}

}  // namespace

ObjectPtr with_first_versions(const ObjectKey& key, const ObjectPtr& object, const FindObject& find) {
    if (object->listing() == nullptr) {
        return object;
    }
    switch (key.kind) {
        case ObjectKind::entry:
            return entry_as_known(key, object, find);
        case ObjectKind::batch:
            return batch_as_known(key, object, find);
        default:
            return object;
    }
}

std::vector<std::pair<ObjectKey, ObjectPtr>> proven_by(const ObjectKey& key, const Object& object,
                                                       const FindObject& find) {
    std::vector<std::pair<ObjectKey, ObjectPtr>> proven;
    const Extent* extent = object.extent();
    if (extent == nullptr || key.version == 0) {
        return proven;
    }
    ObjectKey found = key;
    found.version = hash_of(version_of(extent->attributes));
    if (found.version != key.version && find(found) == nullptr) {
        proven.emplace_back(found, make_object(object.content));
    }
    const ObjectKey alone{.kind = ObjectKind::entry, .path = key.path};
    const ObjectPtr told = find(alone);
    auto entry = told != nullptr && told->lifetime ? told->entry(base_name(key.path)) : std::nullopt;
    if (entry && entry->attributes.changed <= extent->attributes.changed) {
        entry->attributes = extent->attributes;
        proven.emplace_back(alone, make_object(Listing({copy_of(*entry)}, Listing::Detail::attributes)));
    }
    return proven;
}

}  // namespace copper
