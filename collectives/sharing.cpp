#include "collectives/sharing.hpp"

#include <algorithm>
#include <cmath>

namespace copper {
namespace {

// Of the files of a directory that are each node's own, one of so many may be an exception.
constexpr std::int64_t files_per_exception = 8;

bool is_small(const ObjectKey& key) {
    return key.index == 0;
}

template <typename Directory>
auto& files_of(const ObjectKey& key, Directory& directory) {
    return is_small(key) ? directory.small : directory.large;
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

void Sharing::note(const ObjectKey& key, Rank node) {
    Files& files = files_of(key, directory_of(key));
    if (is_taken_for_shared(key, files)) {
        return;
    }
    const std::uint64_t hash = hash_of_path(key);
    if (files_ >= options_.files_max && !files.known.contains(hash)) {
        for (auto& [path, directory] : directories_) {
            forget(directory.large);
            forget(directory.small);
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
    ++files_of(key, directory_of(key)).pushed;
}

Sharing::Verdict Sharing::verdict(const ObjectKey& key) const {
    static const Directory unknown;
    const auto directory = directories_.find(file_tree_of(key));
    const Files& files = files_of(key, directory == directories_.end() ? unknown : directory->second);
    if (is_taken_for_shared(key, files)) {
        return Verdict::shared;
    }
    const auto file = files.known.find(hash_of_path(key));
    if (file != files.known.end() && file->second.nodes.size() > 1) {
        return is_shared(file->second) ? Verdict::shared : Verdict::unknown;
    }
    return are_own(files, enough_of(key)) ? Verdict::own : Verdict::unknown;
}

// A small file that is no sample, in a directory whose samples are not each node's own.
bool Sharing::is_taken_for_shared(const ObjectKey& key, const Files& files) const {
    const bool is_sample =
        files.pushed >= options_.pushed_before_samples && hash_of_path(key) % options_.files_per_sample == 0;
    return is_small(key) && !files.are_kept_back && !is_sample;
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

Sharing::Directory& Sharing::directory_of(const ObjectKey& key) {
    const std::string_view path = file_tree_of(key);
    if (const auto known = directories_.find(path); known != directories_.end()) {
        return known->second;
    }
    if (directories_.size() >= options_.directories_max) {
        const auto oldest = directories_.find(oldest_.front());
        forget(oldest->second.large);
        forget(oldest->second.small);
        directories_.erase(oldest);
        oldest_.pop_front();
    }
    oldest_.emplace_back(path);
    return directories_[oldest_.back()];
}

// What has been learned of the directory stays.
void Sharing::forget(Files& files) {
    files_ -= files.known.size();
    files.known.clear();
    files.judged = files.of_several = 0;
    files.of_one.clear();
}

}  // namespace copper
