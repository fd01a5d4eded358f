#include "collectives/sharing.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "cache/path.hpp"

namespace copper {
namespace {

// Of the files of a directory that are each node's own, one of so many may be an exception.
constexpr std::int64_t files_per_exception = 8;

std::uint64_t hash_of_text(std::string_view text, std::uint64_t seed) {
    return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace

// To send a file to all costs N messages, to send it to those who ask costs them a request each. In between,
// the square root: two nodes of 4, 90 of 8,192.
Sharing::Sharing(Options options)
    : options_(options),
      nodes_to_share_(std::max<std::size_t>(2, static_cast<std::size_t>(std::sqrt(options.nodes)))) {}

Sharing::Place Sharing::place_of(const ObjectKey& key) const {
    enum Which : std::uint8_t { large, small, small_of_subdirectories };
    const bool is_small = key.index == 0;
    const std::string_view directory = file_tree_of(key);
    const Group here{hash_of_text(directory, is_small ? small : large)};
    const Group around{hash_of_text(parent_path(directory), small_of_subdirectories)};
    return {.hash = hash_of_text(key.path, 0),
            .is_small = is_small,
            .here = here,
            .around = around,
            .files_here = &known_of(here),
            .files_around = &known_of(around)};
}

void Sharing::note(const ObjectKey& key, Rank node) {
    const Place place = place_of(key);
    if (is_taken_for_shared(place)) {
        return;
    }
    note_in(files_of(place.here), place, node);
    if (place.is_small) {
        note_in(files_of(place.around), place, node);
    }
}

void Sharing::note_in(Files& files, const Place& place, Rank node) {
    if (files_ >= options_.files_max && !files.known.contains(place.hash)) {
        for (auto& [group, some] : groups_) {
            forget(some);
        }
    }
    const auto [known, is_new] = files.known.try_emplace(place.hash);
    files_ += is_new ? 1 : 0;
    File& file = known->second;
    const Enough enough = enough_of(place);
    if (file.extents >= enough.extents) {
        count(files, file, -1);
    }
    if (!is_shared(file)) {
        file.nodes.insert(node);
    }
    ++file.extents;
    if (file.extents >= enough.extents) {
        count(files, file, 1);
    }
    files.are_kept_back = files.are_kept_back || are_own(files, enough);
}

void Sharing::note_pushed(const ObjectKey& key) {
    const Place place = place_of(key);
    if (place.is_small) {
        ++files_of(place.here).pushed;
        ++files_of(place.around).pushed;
    }
}

Sharing::Verdict Sharing::verdict(const ObjectKey& key) const {
    const Place place = place_of(key);
    if (is_taken_for_shared(place)) {
        return Verdict::shared;
    }
    const auto file = place.files_here->known.find(place.hash);
    if (file != place.files_here->known.end() && file->second.nodes.size() > 1) {
        return is_shared(file->second) ? Verdict::shared : Verdict::unknown;
    }
    return are_own(evidence_of(place), enough_of(place)) ? Verdict::own : Verdict::unknown;
}

// A small file that is no sample, where the samples are not each node's own.
bool Sharing::is_taken_for_shared(const Place& place) const {
    if (!place.is_small) {
        return false;
    }
    const bool has_samples = place.files_here->pushed >= options_.pushed_before_samples ||
                             place.files_around->pushed >= options_.pushed_around_before_samples;
    return !place.files_here->are_kept_back && !evidence_of(place).are_kept_back &&
           !(has_samples && place.hash % options_.files_per_sample == 0);
}

// A directory of which too little is known is taken for one like those beside it.
const Sharing::Files& Sharing::evidence_of(const Place& place) const {
    const bool is_known = !place.is_small || place.files_here->judged >= options_.small.files;
    return is_known ? *place.files_here : *place.files_around;
}

// Hardly any of them was asked for by several nodes, and not all others by the same: one that is ahead of the
// others is no sign.
bool Sharing::are_own(const Files& files, Enough enough) {
    return files.judged >= enough.files && files.of_several * files_per_exception <= files.judged &&
           files.of_one.size() > 1;
}

void Sharing::count(Files& files, const File& file, int by) {
    files.judged += by;
    if (file.nodes.size() > 1) {
        files.of_several += by;
    } else if ((files.of_one[*file.nodes.begin()] += by) == 0) {
        files.of_one.erase(*file.nodes.begin());
    }
}

Sharing::Files& Sharing::files_of(Group group) {
    if (groups_.size() >= options_.groups_max && !groups_.contains(group)) {
        const auto oldest = groups_.find(oldest_.front());
        forget(oldest->second);
        groups_.erase(oldest);
        oldest_.pop_front();
    }
    const auto [known, is_new] = groups_.try_emplace(group);
    if (is_new) {
        oldest_.push_back(group);
    }
    return known->second;
}

const Sharing::Files& Sharing::known_of(Group group) const {
    static const Files none;
    const auto known = groups_.find(group);
    return known == groups_.end() ? none : known->second;
}

// What has been learned of the group stays.
void Sharing::forget(Files& files) {
    files_ -= files.known.size();
    files.known.clear();
    files.judged = files.of_several = 0;
    files.of_one.clear();
}

}  // namespace copper
