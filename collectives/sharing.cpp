#include "collectives/sharing.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

// Files of a directory are each node's own if several nodes use at most one in this many.
constexpr std::int64_t files_per_exception = 8;
// How many files must be known before judging, and how many extents of a large file must have been asked for.
constexpr std::int64_t small_files_to_judge = 16;
constexpr std::int64_t large_files_to_judge = 2;
constexpr std::uint32_t extents_to_judge = 8;

std::uint64_t hash_of_text(std::string_view text, std::uint64_t seed) {
    return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace

// Sending a large file to all costs N messages per extent. Sending it to those who ask costs a request each.
// The square root is in between: two nodes of 4, 90 of 8,192.
Sharing::Sharing(Options options)
    : options_(options),
      nodes_to_share_(std::max<std::size_t>(2, static_cast<std::size_t>(std::sqrt(options.nodes)))) {}

Sharing::Place Sharing::place_of(const ObjectKey& key) {
    const Kind kind = key.kind != ObjectKind::extent ? Kind::names
                      : key.index == 0               ? Kind::small_files
                                                     : Kind::large_files;
    const std::string_view directory = file_tree_of(key);
    return {.kind = kind,
            .group = GroupId{hash_of_text(directory, static_cast<std::uint64_t>(kind))},
            .small_files = GroupId{hash_of_text(directory, static_cast<std::uint64_t>(Kind::small_files))},
            .object = kind == Kind::large_files ? hash_of_text(key.path, 0) : hash_of(key)};
}

void Sharing::note(const ObjectKey& key, Rank node, Askers askers) {
    const Place place = place_of(key);
    Group& group = group_of(place.group);
    if (objects_ >= options_.objects_max && !group.objects.contains(place.object)) {
        for (auto& [id, each] : groups_) {
            forget(each);
        }
    }
    const auto [entry, is_new] = group.objects.try_emplace(place.object);
    objects_ += is_new ? 1 : 0;
    Object& object = entry->second;
    if (!is_new) {
        count(group, place, object, -1);
    }
    if (!is_shared(object)) {
        object.nodes.insert(node);
    }
    ++object.interests;
    object.is_of_all = object.is_of_all || askers == Askers::all;
    const bool was_of_several = object.is_of_several;
    object.is_of_several = was_of_several || askers == Askers::several || object.nodes.size() > 1;
    count(group, place, object, 1);
    group.since_evidence += is_new ? 1 : 0;
    if (object.is_of_several && !was_of_several) {
        open_window(group);
        group.is_evidence_new = true;
        if (place.kind == Kind::names) {
            Group& files = group_of(place.small_files);
            if (files.window == 0) {
                open_window(files);
            }
        }
    }
}

void Sharing::open_window(Group& group) const {
    const bool goes_on = group.window > 0 && group.since_evidence <= options_.lead_max;
    group.window = goes_on ? std::min(2 * group.window, options_.window_max) : options_.window_first;
    group.left = group.window;
    group.since_evidence = 0;
}

void Sharing::note_pushed(const ObjectKey& key) {
    const Place place = place_of(key);
    Group& group = group_of(place.group);
    group.left -= group.left > 0 ? 1 : 0;
    // The node that asked for it is not ahead of the others, which have it now.
    if (place.kind != Kind::large_files && forget_object(group, place) && group.since_evidence > 0) {
        --group.since_evidence;
    }
}

Sharing::Verdict Sharing::verdict(const ObjectKey& key) const {
    const Place place = place_of(key);
    const Group& group = known(place.group);
    const auto object = group.objects.find(place.object);
    const bool is_known = object != group.objects.end();
    const bool is_large = place.kind == Kind::large_files;
    if (is_known && object->second.is_of_all) {
        return Verdict::shared;
    }
    if (is_large ? is_known && is_shared(object->second) : group.left > 0) {
        return Verdict::shared;
    }
    if (place.kind == Kind::names || (is_known && object->second.is_of_several)) {
        return Verdict::unknown;
    }
    const std::int64_t judged = group.of_several + group.of_one;
    const bool are_own = judged >= (is_large ? large_files_to_judge : small_files_to_judge) &&
                         group.of_several * files_per_exception <= judged && group.of_node.size() > 1;
    return are_own ? Verdict::own : Verdict::unknown;
}

bool Sharing::take_evidence(const ObjectKey& key) {
    const auto group = groups_.find(place_of(key).group);
    return group != groups_.end() && std::exchange(group->second.is_evidence_new, false);
}

void Sharing::count(Group& group, const Place& place, const Object& object, int by) const {
    if (place.kind == Kind::large_files && object.interests < extents_to_judge) {
        return;
    }
    if (object.is_of_several) {
        group.of_several += by;
        return;
    }
    group.of_one += by;
    if ((group.of_node[*object.nodes.begin()] += by) == 0) {
        group.of_node.erase(*object.nodes.begin());
    }
}

Sharing::Group& Sharing::group_of(GroupId id) {
    if (groups_.size() >= options_.groups_max && !groups_.contains(id)) {
        const auto oldest = groups_.find(oldest_.front());
        forget(oldest->second);
        groups_.erase(oldest);
        oldest_.pop_front();
    }
    const auto [known, is_new] = groups_.try_emplace(id);
    if (is_new) {
        oldest_.push_back(id);
    }
    return known->second;
}

const Sharing::Group& Sharing::known(GroupId id) const {
    static const Group none;
    const auto known = groups_.find(id);
    return known == groups_.end() ? none : known->second;
}

// The window stays.
void Sharing::forget(Group& group) {
    objects_ -= group.objects.size();
    group.objects.clear();
    group.of_several = group.of_one = 0;
    group.of_node.clear();
}

bool Sharing::forget_object(Group& group, const Place& place) {
    const auto object = group.objects.find(place.object);
    if (object == group.objects.end()) {
        return false;
    }
    count(group, place, object->second, -1);
    group.objects.erase(object);
    --objects_;
    return true;
}

}  // namespace copper
