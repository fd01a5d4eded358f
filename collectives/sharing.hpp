// Whether the nodes of a job read the same files or each its own, as their reader sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "cache/object.hpp"
#include "collectives/rank.hpp"

namespace copper {

// A file is shared when enough nodes have asked for extents of it: not many will be without it, so it is sent
// to all. Until then extents go to those who ask. Where different nodes read different files of a directory,
// and hardly one reads another's, each is better off reading its own.
//
// That is how large files are judged. A small one, or the first extent of a large one, is over before enough
// nodes have asked: it is taken for shared, and whether others use what was pushed to them the reader cannot
// see. So where many small files of a directory have been pushed, or of the directories around it, some more,
// the samples, go to those who ask, and tell. Once the samples are each node's own, no file of the directory
// is taken for shared before enough nodes have asked: to push to all what few want costs more than their
// requests.
//
// Interests that merge on their way tell of one node only, but over the extents of a file, whose trees
// differ, of others too; and those of a small file come from several children of its reader.
//
// Deterministic, not thread-safe; bounded: what is forgotten is judged anew, which costs time, nothing else.
class Sharing {
  public:
    // When to judge the files of a directory.
    struct Enough {
        std::uint32_t extents;  // of a file must have been asked for
        std::int64_t files;     // of these there must be, not all of one node
    };
    struct Options {
        std::uint32_t nodes = 1;
        Enough large = {.extents = 8, .files = 2};
        Enough small = {.extents = 1, .files = 16};  // others may come to a file so much later
        std::uint32_t pushed_before_samples = 64;
        std::uint32_t pushed_around_before_samples = 256;
        std::uint32_t files_per_sample = 8;
        std::size_t groups_max = 4096;
        std::size_t files_max = 1U << 16;  // of all groups
    };
    explicit Sharing(Options options);

    enum class Verdict : std::uint8_t { unknown, shared, own };

    // Of extents. `node` asks for one that was not pushed:
    void note(const ObjectKey& key, Rank node);
    void note_pushed(const ObjectKey& key);
    Verdict verdict(const ObjectKey& key) const;

  private:
    struct File {
        std::set<Rank> nodes;  // up to as many as make it shared
        std::uint32_t extents = 0;
    };
    // Files that are judged together.
    struct Files {
        std::map<std::uint64_t, File> known;  // by the hash of their path
        // Of those of which enough extents were asked for, by several nodes or by one:
        std::int64_t judged = 0;
        std::int64_t of_several = 0;
        std::map<Rank, std::int64_t> of_one;
        // Of small ones:
        std::uint32_t pushed = 0;
        bool are_kept_back = false;
    };
    enum class Group : std::uint64_t {};  // the hash of a directory and of which of its files
    // A file, and what is known of it and its like.
    struct Place {
        std::uint64_t hash;  // of its path
        bool is_small;
        Group here;
        Group around;  // of small files
        const Files* files_here;
        const Files* files_around;
    };

    Place place_of(const ObjectKey& key) const;
    Files& files_of(Group group);
    const Files& known_of(Group group) const;
    const Files& evidence_of(const Place& place) const;
    void note_in(Files& files, const Place& place, Rank node);
    void forget(Files& files);
    static void count(Files& files, const File& file, int by);
    Enough enough_of(const Place& place) const { return place.is_small ? options_.small : options_.large; }
    bool is_shared(const File& file) const { return file.nodes.size() >= nodes_to_share_; }
    bool is_taken_for_shared(const Place& place) const;
    static bool are_own(const Files& files, Enough enough);

    const Options options_;
    const std::size_t nodes_to_share_;
    std::unordered_map<Group, Files> groups_;
    std::deque<Group> oldest_;
    std::size_t files_ = 0;
};

}  // namespace copper
