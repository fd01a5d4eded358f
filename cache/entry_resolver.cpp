#include "cache/entry_resolver.hpp"

#include <utility>

namespace copper {
namespace {

ResolvedEntry resolved(const Listing::Entry& entry) {
    return {.attributes = entry.attributes,
            .target = std::string(entry.target),
            .leads_into_trees = entry.leads_into_trees,
            .begins_filesystem = entry.begins_filesystem};
}

Resolution resolution_of(const Listing::Entry& entry, const Object& object) {
    return {.found = resolved(entry), .lasts = !object.lifetime};
}

Resolution absent(const Object& object) {
    return {.found = std::nullopt, .lasts = !object.lifetime};
}

Resolution failed(std::error_code error) {
    return {.found = tl::unexpected(error), .lasts = false};
}

}  // namespace

void EntryResolver::resolve(const std::string& directory, const std::string& name, Waiter waiter) {
    if (!trees_.contains(directory)) {
        resolve_alone(entry_key(directory, name), waiter);
        return;
    }
    find_name(cache_, directory, name,
              [this, directory, name, waiter = std::move(waiter)](const NameFound& told) {
                  if (const auto* present = std::get_if<Present>(&told)) {
                      resolve_present(directory, name, *present, waiter);
                  } else if (const auto* gone = std::get_if<Absent>(&told)) {
                      waiter(absent(*gone->directory));
                  } else if (const auto* error = std::get_if<std::error_code>(&told)) {
                      waiter(failed(*error));
                  } else {
                      resolve_alone(entry_key(directory, name), waiter);
                  }
              });
}

std::optional<ResolvedEntry> EntryResolver::known(const std::string& directory, const std::string& name) {
    const auto told_by = [this, &name](const ObjectKey& key) -> std::optional<ResolvedEntry> {
        const ObjectPtr object = cache_.find(cache_.current(key));
        const auto entry = object != nullptr && !object->lifetime ? object->entry(name) : std::nullopt;
        return entry ? std::optional(resolved(*entry)) : std::nullopt;
    };
    if (auto alone = told_by(entry_key(directory, name))) {
        return alone;
    }
    const ObjectPtr names = cache_.find(cache_.current({.kind = ObjectKind::directory, .path = directory}));
    const Directory* listed = names != nullptr ? names->directory() : nullptr;
    const auto position =
        listed != nullptr && listed->has_all_names() ? listed->names.find(name) : std::nullopt;
    return position ? told_by(batch_key(ObjectKind::batch, directory, {names, *position})) : std::nullopt;
}

void EntryResolver::resolve_alone(const ObjectKey& key, const Waiter& waiter) {
    cache_.get(key, [waiter](const ObjectPtr& object) {
        const Listing* entry = object->listing();
        if (entry == nullptr) {
            waiter(failed(object->error()));
        } else {
            waiter(entry->size() == 0 ? absent(*object) : resolution_of(entry->at(0), *object));
        }
    });
}

void EntryResolver::resolve_present(const std::string& directory, const std::string& name,
                                    const Present& place, const Waiter& waiter) {
    const ObjectKey batch = batch_key(ObjectKind::batch, directory, place);
    const auto worth = evidence_.judge(directory, *place.directory->directory(), place.position);
    if (worth == BatchEvidence::Worth::batch_and_next) {
        fetch_next_batch(cache_, ObjectKind::batch, directory, place);
    }
    if (worth != BatchEvidence::Worth::none || cache_.find(cache_.current(batch)) != nullptr) {
        cache_.get(batch, [this, directory, name, waiter](const ObjectPtr& object) {
            if (const auto entry = object->entry(name)) {
                waiter(resolution_of(*entry, *object));
            } else {
                resolve_alone(entry_key(directory, name), waiter);
            }
        });
    } else {
        const ObjectKey key = entry_key(directory, name);
        asked_alone_(key.path, cache_.foresight(key));
        resolve_alone(key, waiter);  // last: after the answer, nobody keeps this object alive
    }
}

}  // namespace copper
