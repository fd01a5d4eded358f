#include "collectives/sharing.hpp"

#include <algorithm>
#include <cmath>

namespace copper {

// To send a file to all costs N messages, to send it to those who ask costs them a request each. In between,
// the square root: two nodes of 4, 90 of 8,192.
Sharing::Sharing(Options options)
    : options_(options),
      nodes_to_share_(std::max<std::size_t>(2, static_cast<std::size_t>(std::sqrt(options.nodes)))) {}

void Sharing::note(std::string_view file_tree, const std::string& file, Rank node) {
    auto directory = directories_.find(file_tree);
    if (directory == directories_.end()) {
        if (directories_.size() >= options_.directories_max) {
            directories_.erase(oldest_.front());
            oldest_.pop_front();
        }
        directory = directories_.emplace(file_tree, Directory()).first;
        oldest_.push_back(directory->first);
    }
    Directory& files = directory->second;
    if (files.size() >= options_.files_per_directory_max && !files.contains(file)) {
        files.erase(files.begin());
    }
    File& known = files[file];
    ++known.extents;
    if (!is_shared(known)) {
        known.nodes.insert(node);
    }
}

Sharing::Verdict Sharing::verdict(std::string_view file_tree, const std::string& file) const {
    const auto directory = directories_.find(file_tree);
    if (directory == directories_.end()) {
        return Verdict::unknown;
    }
    const auto known = directory->second.find(file);
    if (known != directory->second.end() && known->second.nodes.size() > 1) {
        return is_shared(known->second) ? Verdict::shared : Verdict::unknown;
    }
    return are_own(directory->second) ? Verdict::own : Verdict::unknown;
}

// Of the files that many extents were asked of, each was asked for by one node, and not all by the same.
bool Sharing::are_own(const Directory& directory) const {
    std::uint32_t files = 0;
    std::set<Rank> nodes;
    for (const auto& [path, file] : directory) {
        if (file.extents < options_.extents_to_judge) {
            continue;
        }
        if (file.nodes.size() > 1) {
            return false;
        }
        ++files;
        nodes.insert(file.nodes.begin(), file.nodes.end());
    }
    return files >= options_.files_to_judge && nodes.size() >= options_.files_to_judge;
}

}  // namespace copper
