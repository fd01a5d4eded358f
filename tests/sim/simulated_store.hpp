// A backing filesystem made of arithmetic: which names exist and what every byte is follows from the path and
// the file's version alone. It answers as PosixBacking does, in trouble too: tests/unit/stores_test.cpp asks
// both the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/object.hpp"

namespace copper::sim {

struct StoreShape {
    std::uint32_t directories = 8;
    std::uint32_t files_per_directory = 12;
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

    // The huge directory. In version v its names are those of the numbers [v, v + huge_entries).
    static std::string huge_directory() { return root() + "/huge"; }
    static std::string huge_name(std::uint64_t number) { return "h" + std::to_string(10000000 + number); }
    void change_huge() { ++versions_[huge_directory()]; }
    std::uint64_t huge_version() const { return version(huge_directory()); }

    ObjectPtr read(const ObjectKey& key, Trouble trouble = Trouble::none) const;
    void change(const std::string& file) { ++versions_[file]; }

    // Of a file that exists, as it is now.
    Attributes attributes(const std::string& path) const;
    bool exists(const std::string& path) const { return exists(path, std::nullopt); }
    // True if the extent holds the right bytes of the version that its attributes name.
    static bool is_intact(const std::string& path, std::uint32_t index, const Extent& extent);

  private:
    std::vector<Listing::NewEntry> huge_entries(std::uint64_t first, std::uint64_t count) const;
    // `hidden`: a directory that looks empty.
    Directory directory_of(const std::string& path, const std::optional<std::string>& hidden) const;
    std::vector<Listing::NewEntry> slice_of(const std::string& path, const std::optional<std::string>& hidden,
                                            std::uint64_t first, std::uint64_t count) const;
    ObjectPtr read_directory(const ObjectKey& key, const std::optional<std::string>& hidden) const;
    bool exists(const std::string& path, const std::optional<std::string>& hidden) const;
    bool is_directory(const std::string& path) const;
    std::vector<Listing::NewEntry> entries_of(const std::string& path,
                                              const std::optional<std::string>& hidden) const;
    // The error of opening it, 0 if there is none.
    int error_of(const std::string& path, const std::optional<std::string>& hidden) const;
    ObjectPtr read_without(const ObjectKey& key, const std::optional<std::string>& hidden) const;
    ObjectPtr read_file(const ObjectKey& key) const;
    std::uint64_t version(const std::string& path) const;

    const StoreShape shape_;
    std::map<std::string, std::uint64_t> versions_;
};

}  // namespace copper::sim
