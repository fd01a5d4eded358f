// A backing filesystem made of arithmetic: which names exist and what every byte is follows from the path and
// the file's version alone.
#pragma once

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
    std::uint32_t huge_entries = 0;  // of one more directory; 0: there is none
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

    ObjectPtr read(const ObjectKey& key) const;
    void change(const std::string& file) { ++versions_[file]; }

    // Of a file that exists, as it is now.
    Attributes attributes(const std::string& path) const;
    bool exists(const std::string& path) const;
    // True if the extent holds the right bytes of the version that its attributes name.
    static bool is_intact(const std::string& path, std::uint32_t index, const Extent& extent);

  private:
    ObjectPtr list(const std::string& path) const;
    ObjectPtr read_huge(const ObjectKey& key) const;
    std::vector<Listing::NewEntry> huge_entries(std::uint64_t first, std::uint64_t count) const;
    std::uint64_t version(const std::string& path) const;

    const StoreShape shape_;
    std::map<std::string, std::uint64_t> versions_;
};

}  // namespace copper::sim
