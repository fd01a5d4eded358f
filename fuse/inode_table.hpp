// Maps the kernel's inodes to paths.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/guarded.hpp"
#include "cache/generations.hpp"
#include "cache/object.hpp"
#include "cache/read_ahead.hpp"
#include "fuse/inode_records.hpp"
#include "fuse/record_index.hpp"

namespace copper {

inline constexpr InodeId root_inode = 1;

// The inodes that the kernel knows. Thread-safe: one lock, held for a few steps in hash tables. No reference
// to its content ever leaves the table.
//
// An inode never changes its type or size, and the kernel gets bytes of one Version of it. If its name comes
// to mean anything else, the name gets another inode. Programs with the old file open keep the old one.
//
// An inode is in one of these states:
//
//   state          its name     its attributes are of                      and when the kernel forgets it
//   listed         means it     the last Listing that named it             it is removed
//   read           means it     the Version whose bytes the kernel has     it is removed
//   kept           means it     a Version that a read has found            it stays
//   kept_and_read  means it     the same, and the kernel has its bytes     it stays
//   nameless       means        the last answer to the kernel              it is removed
//                  another one
//
//   look_up()      new -> listed. Unless `listed`, its attributes win over an older Listing, and over the one
//                  that told another Version before.
//   hand_out()     listed -> read, kept -> kept_and_read, with the Version found if it has the same size
//   supersede()    new -> kept, for a name that now means another file
//   doubt()        the same state. If a Listing then tells another Version: nameless
//   any of them, and detach(): the inode that the name meant -> nameless
//
// An inode with others below it stays, too. An inode takes some 150 bytes and its name.
class InodeTable {
  public:
    // At most this many inodes are `kept` or `kept_and_read`.
    static constexpr std::size_t kept_max = 65536;

    // Goes on with what another process has left in `memory`; otherwise `memory` is zeros.
    // `main_filesystem`: the root path of the filesystem whose inode numbers are told unchanged.
    InodeTable(const Attributes& root, std::span<std::byte> memory, std::string main_filesystem = "/");

    struct Told {
        InodeId inode = 0;
        Attributes attributes;     // what to tell the kernel: the inode's own ones if they are newer
        std::uint64_t number = 0;  // st_ino: `attributes` have the backing filesystem's own
    };

    // Counts one lookup of `name` in `parent` and returns its inode, which stays the same while it is known.
    // Nothing if no memory is left, or `parent` is unknown (the kernel never asks that).
    enum class Filesystem { of_parent, own };  // Listing::Entry::begins_filesystem
    // `asked`: doubts() before `attributes` were asked for; nothing: now.
    std::optional<Told> look_up(InodeId parent, std::string_view name, const Attributes& attributes,
                                Filesystem filesystem = Filesystem::of_parent,
                                std::optional<std::uint64_t> asked = std::nullopt);

    enum class Known { still, no_more };
    Known forget(InodeId inode, std::uint64_t lookups);

    // The name gets a new inode at its next lookup.
    void detach(InodeId inode);

    struct Place {
        InodeId parent = 0;
        std::string directory;  // path of the parent
        std::string name;       // empty: the root
    };

    // What the kernel knows at a path and below it.
    struct Name {
        InodeId parent = 0;
        std::string name;
    };
    struct Below {
        std::vector<InodeId> directories;  // names in them may be out of date: also the one that has `path`
        std::vector<Name> names;           // the one that leads to `path` is the last of its filesystem
    };
    // By the filesystem that the directories lie on.
    using BelowByFilesystem = std::map<NumberSpace, Below>;
    // Whatever lies there may be another file or directory by now, until a lookup that began later tells the
    // same Version. With Reach::one_level, what lies in directories of the directory `path` stays. Takes a
    // step for each inode. `only`: nothing of another filesystem.
    BelowByFilesystem doubt(const std::string& path, Reach reach = Reach::everything_below,
                            std::optional<NumberSpace> only = std::nullopt);
    // Where this directory lies, if doubt() says that its attributes may have changed: it has `path`, or lies
    // below. look_up() tells them anew.
    std::optional<Place> doubted_directory(InodeId inode);
    // How often doubt() has been called.
    std::uint64_t doubts() const { return doubts_; }

    std::optional<std::string> path(InodeId inode);
    std::optional<Place> place(InodeId inode);

    // What the kernel has; nothing if the inode is unknown.
    std::optional<Told> told(InodeId inode);
    std::optional<Attributes> attributes(InodeId inode);

    // Of the names in this directory.
    NumberSpace numbers(InodeId directory);

    enum class Bytes { some, none };
    enum class Verdict {
        current,  // the version that the kernel knows
        adopted,  // another version, but the kernel has no bytes yet: the inode takes it
        other,    // a version of another size, or the kernel has bytes of another one
    };
    // The daemon found bytes of the version in `attributes`, and will hand them to the kernel, if there are
    // any.
    Verdict hand_out(InodeId inode, const Attributes& attributes, Bytes bytes);

    // The extents to fetch ahead when extents `read` of `extents` are read (ReadAhead).
    ExtentRange read_ahead(InodeId inode, ExtentRange read, std::uint32_t extents, std::uint32_t window_max);

    // `inode`'s name now means another file, with `attributes`. The name gets a new inode, unless it already
    // has an inode of that version or a newer one. Returns the place whose entry in the kernel is out of
    // date; nothing if the kernel does not know the inode.
    std::optional<Place> supersede(InodeId inode, const Attributes& attributes);

    std::size_t size();

  private:
    using Position = InodeRecords::Position;
    using Record = InodeRecords::Record;

    struct State {
        struct ByInode {
            const InodeRecords* records;
            std::uint64_t operator()(Position position) const { return records->at(position).inode; }
        };
        struct ByName {
            const InodeRecords* records;
            std::uint64_t operator()(Position position) const;
        };

        State(std::span<std::byte> memory, std::string main_filesystem)
            : main_filesystem(std::move(main_filesystem)), records(memory) {}
        State(const State&) = delete;  // the indices point to `records`
        State& operator=(const State&) = delete;

        Position find(InodeId inode) const;
        Position find(InodeId parent, std::string_view name) const;
        // The last inode on the way to a path, and what is left of that.
        std::pair<Position, std::string_view> find_on_the_way(std::string_view path) const;
        Record& at(InodeId inode) const { return records.at(find(inode)); }

        void restore(const Attributes& root);
        void index_all();
        Position add(const Record& record, std::string_view name);
        NumberSpace numbers_of(std::string root_path) const;
        Position add_below(InodeId parent, std::string_view name, InodeState state,
                           const Attributes& attributes, NumberSpace numbers, std::uint16_t outdated = 0);
        Position replace(Position position, const Attributes& attributes);
        void set_state(Record& record, InodeState state);
        void take_name(Position position);
        void remove(Position position);
        void remove_if_unused(InodeId inode);
        std::string path(const Record& record) const;
        Place place(const Record& record) const;

        const std::string main_filesystem;
        InodeRecords records;
        RecordIndex<ByInode> by_inode{ByInode{&records}};
        RecordIndex<ByName> by_name{ByName{&records}};  // all but the nameless and the root
        std::size_t kept = 0;
        std::unordered_map<InodeId, ReadAhead> read_aheads;  // of files of several extents
    };

    Guarded<State> state_;
    std::atomic<std::uint64_t> doubts_ = 0;
};

}  // namespace copper
