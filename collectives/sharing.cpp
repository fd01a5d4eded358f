#include "collectives/sharing.hpp"

#include <algorithm>
#include <cmath>

#include "cache/path.hpp"

namespace copper {
namespace {

// Of the files of a directory that are each node's own, one of so many may be an exception.
constexpr std::int64_t files_per_exception = 8;

bool is_small(const ObjectKey& key) {
    return key.index == 0;
}

std::uint64_t hash_of_path(const ObjectKey& key) {
    return hash_of({.kind = key.kind, .path = key.path});
}

}  // namespace

// To send a file to all costs N messages, to send it to those who ask costs them a request each. In between,
// the square root: two nodes of 4, 90 of 8,192.
Sharing::Sharing(Options options)
    : options_(options),
      nodes_to_share_(std::max<std::size_t>(2, static_cast<std::size_t>(std::sqrt(options.nodes)))) {}

Sharing::Group Sharing::here(const ObjectKey& key) {
    return {std::string(file_tree_of(key)), is_small(key) ? Which::small : Which::large};
}

Sharing::Group Sharing::around(const ObjectKey& key) {
    return {std::string(parent_path(file_tree_of(key))), Which::small_of_subdirectories};
}

void Sharing::note(const ObjectKey& key, Rank node) {
    if (is_taken_for_shared(key)) {
        return;
    }
    note_in(files_of(here(key)), key, node);
    if (is_small(key)) {
        note_in(files_of(around(key)), key, node);
    }
}

void Sharing::note_in(Files& files, const ObjectKey& key, Rank node) {
    const std::uint64_t hash = hash_of_path(key);
    if (files_ >= options_.files_max && !files.known.contains(hash)) {
        for (auto& [group, some] : groups_) {
            forget(some);
        }
    }
    const auto [known, is_new] = files.known.try_emplace(hash);
    files_ += is_new ? 1 : 0;
    File& file = known->second;
    const Enough enough = enough_of(key);
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
    if (is_small(key)) {
        ++files_of(here(key)).pushed;
        ++files_of(around(key)).pushed;
    }
}

Sharing::Verdict Sharing::verdict(const ObjectKey& key) const {
    if (is_taken_for_shared(key)) {
        return Verdict::shared;
    }
    const Files& files = known_of(here(key));
    const auto file = files.known.find(hash_of_path(key));
    if (file != files.known.end() && file->second.nodes.size() > 1) {
        return is_shared(file->second) ? Verdict::shared : Verdict::unknown;
    }
    return are_own(evidence_of(key), enough_of(key)) ? Verdict::own : Verdict::unknown;
}

// A small file that is no sample, where the samples are not each node's own.
bool Sharing::is_taken_for_shared(const ObjectKey& key) const {
    if (!is_small(key)) {
        return false;
    }
    const Files& files = known_of(here(key));
    const bool has_samples = files.pushed >= options_.pushed_before_samples ||
                             known_of(around(key)).pushed >= options_.pushed_around_before_samples;
    return !files.are_kept_back && !evidence_of(key).are_kept_back &&
           !(has_samples && hash_of_path(key) % options_.files_per_sample == 0);
}

// A directory of which too little is known is taken for one like those beside it.
const Sharing::Files& Sharing::evidence_of(const ObjectKey& key) const {
    const Files& files = known_of(here(key));
    return is_small(key) && files.judged < options_.small.files ? known_of(around(key)) : files;
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

Sharing::Files& Sharing::files_of(const Group& group) {
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

const Sharing::Files& Sharing::known_of(const Group& group) const {
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
