// A backing filesystem made of arithmetic: what every byte is follows from the path and the file's version
// alone. It changes, and keeps its history: what each path was, since when. So it can tell what it was at any
// moment. It answers as PosixBacking does, in trouble too: tests/unit/stores_test.cpp asks both the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "cache/object.hpp"

namespace copper::sim {

struct StoreShape {
    std::uint32_t directories = 8;
    std::uint32_t files_per_directory = 12;
    std::uint32_t names_to_come = 0;  // of each directory: names that do not exist at first
    std::uint32_t file_bytes_max = 20000;
    std::uint32_t huge_entries = 0;               // of one more directory; 0: there is none
    std::chrono::microseconds operation_time{0};  // Directory::operation_time
};

// What may be wrong with one node's mount of the filesystem.
enum class Trouble : std::uint8_t {
    none,
    never_mounted,           // the root is there and empty, and was when the daemon started
    submount_never_mounted,  // the same of directory(0), which should be a mount of its own
    unmounted,               // the root's mount went away under the daemon
    submount_unmounted,      // directory(0)'s did
    stale,                   // the server answers ESTALE
    io_error,                // or EIO
    ticket_expired,          // or EACCES
};

class SimulatedStore {
  public:
    explicit SimulatedStore(StoreShape shape) : shape_(shape) {}

    static std::string root() { return "/pfs"; }
    std::string directory(std::uint32_t index) const { return root() + "/d" + std::to_string(index); }
    static std::string file_name(std::uint32_t index) { return "f" + std::to_string(index); }
    const StoreShape& shape() const { return shape_; }

    // Names in each directory, with those to come.
    std::uint32_t names_per_directory() const { return shape_.files_per_directory + shape_.names_to_come; }

    // The huge directory. In version v its names are those of the numbers [v, v + huge_entries).
    static std::string huge_directory() { return root() + "/huge"; }
    static std::string huge_name(std::uint64_t number) { return "h" + std::to_string(10000000 + number); }

    // After so long, a directory's names are proven. Until then, names that have come may be missing.
    static constexpr std::chrono::milliseconds settling{20};

    // As it is now. Times never go back.
    ObjectPtr read(const ObjectKey& key, TimePoint now, Trouble trouble = Trouble::none) const;
    void change_huge(TimePoint now) { touch(huge_directory(), now); }
    // A file is written again in place: nobody gets its bytes before the end.
    void begin_writing(const std::string& file, TimePoint now);
    void end_writing(const std::string& file, TimePoint now);
    void change_mode(const std::string& file, TimePoint now) { add_state(file, now); }
    // Another file gets the name, by rename or as a new one.
    void replace(const std::string& file, TimePoint now);
    void remove(const std::string& file, TimePoint now);

    // What a path was from `since` on.
    struct State {
        TimePoint since = TimePoint::min();
        bool exists = true;
        TimePoint named_since = TimePoint::min();
        bool is_being_written = false;
        std::uint32_t files = 0;    // how many others the name meant before
        std::uint32_t version = 0;  // of the file's bytes, or of the directory's names
        std::uint32_t changes = 0;  // of any kind
    };
    State state(const std::string& path, TimePoint when) const;
    // `from`, and each later moment until `to` at which the path, or the names of its directory, or its own
    // names, became something else.
    std::vector<TimePoint> moments(const std::string& path, TimePoint from, TimePoint to) const;

    // Of a file that existed.
    Attributes attributes(const std::string& path, TimePoint when) const;
    bool exists(const std::string& path, TimePoint when) const { return exists(path, {when, std::nullopt}); }
    // What a reader found then.
    Directory directory_at(const std::string& path, TimePoint when) const {
        return directory_of(path, {when, std::nullopt});
    }
    // All of them.
    std::vector<std::string> names_at(const std::string& path, TimePoint when) const;
    // True if the extent holds the right bytes of the version that its attributes name.
    static bool is_intact(const std::string& path, std::uint32_t index, const Extent& extent);
    static bool is_intact(const std::string& path, const Attributes& attributes, std::uint64_t offset,
                          std::span<const std::byte> bytes);

  private:
    struct View {
        TimePoint when;
        std::optional<std::string> hidden;  // a directory that looks empty
    };
    State& add_state(const std::string& path, TimePoint now);
    void touch(const std::string& directory, TimePoint now) { ++add_state(directory, now).version; }
    std::uint64_t huge_version(TimePoint when) const { return state(huge_directory(), when).version; }
    std::vector<Listing::NewEntry> huge_entries(const View& view, std::uint64_t first,
                                                std::uint64_t count) const;
    Directory directory_of(const std::string& path, const View& view) const;
    std::vector<Listing::NewEntry> slice_of(const std::string& path, const View& view, std::uint64_t first,
                                            std::uint64_t count) const;
    ObjectPtr read_directory(const ObjectKey& key, const View& view) const;
    ObjectPtr read_batch(const ObjectKey& key, const View& view) const;
    bool exists(const std::string& path, const View& view) const;
    bool is_directory(const std::string& path) const;
    bool is_unsettled(const std::string& directory, TimePoint when) const;
    std::vector<Listing::NewEntry> entries_of(const std::string& path, const View& view) const;
    // The error of opening it, 0 if there is none.
    int error_of(const std::string& path, const View& view) const;
    ObjectPtr read_seen(const ObjectKey& key, const View& view) const;
    ObjectPtr read_file(const ObjectKey& key, const View& view) const;

    const StoreShape shape_;
    std::map<std::string, std::vector<State>> history_;  // of what has changed, each from the second state on
};

}  // namespace copper::sim
