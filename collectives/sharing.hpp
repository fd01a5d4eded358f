// Whether the nodes of a job read the same large files or each its own, as their reader sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "collectives/rank.hpp"

namespace copper {

// A file is shared when enough nodes have asked for extents of it: not many will be without it, so it is sent
// to all. Until then extents go to those who ask. Where different nodes read different files of a directory,
// and none reads another's, each is better off reading its own.
//
// Interests that merge on their way tell of one node only, but over the extents of a file, whose trees
// differ, of others too.
//
// Deterministic, not thread-safe; bounded: what is known of the oldest directories is forgotten, which costs
// time, nothing else.
class Sharing {
  public:
    struct Options {
        std::uint32_t nodes = 1;
        std::uint32_t extents_to_judge = 8;  // so many extents of a file must have been asked for
        std::uint32_t files_to_judge = 2;    // so many files of a directory, each by another node
        std::size_t directories_max = 1024;
        std::size_t files_per_directory_max = 256;
    };
    explicit Sharing(Options options);

    enum class Verdict : std::uint8_t { unknown, shared, own };

    // `node` asks for an extent of the file.
    void note(std::string_view file_tree, const std::string& file, Rank node);
    Verdict verdict(std::string_view file_tree, const std::string& file) const;

  private:
    struct File {
        std::set<Rank> nodes;  // up to as many as make it shared
        std::uint32_t extents = 0;
    };
    using Directory = std::map<std::string, File>;

    bool is_shared(const File& file) const { return file.nodes.size() >= nodes_to_share_; }
    bool are_own(const Directory& directory) const;

    const Options options_;
    const std::size_t nodes_to_share_;
    std::map<std::string, Directory, std::less<>> directories_;
    std::deque<std::string> oldest_;
};

}  // namespace copper
