// Files that were changing when a program read them.
#pragma once

#include <atomic>
#include <cstddef>
#include <set>
#include <string>

#include "base/guarded.hpp"

namespace copper {

// Thread-safe. What the kernel and the snapshot know of such a file may be out of date, and its size with it.
// So its next lookup finds out which version the file has by then, and programs get that without an error.
class UnsettledNames {
  public:
    // Beyond it, all are forgotten: that costs each of them one more ESTALE.
    static constexpr std::size_t paths_max = 1024;

    void add(const std::string& path) {
        auto paths = paths_.lock();
        if (paths->size() >= paths_max && !paths->contains(path)) {
            paths->clear();
        }
        paths->insert(path);
        count_ = paths->size();
    }
    bool is_empty() const { return count_ == 0; }
    bool contains(const std::string& path) { return !is_empty() && paths_.lock()->contains(path); }
    void remove(const std::string& path) {
        auto paths = paths_.lock();
        paths->erase(path);
        count_ = paths->size();
    }

  private:
    Guarded<std::set<std::string>> paths_;
    std::atomic<std::size_t> count_ = 0;  // most lookups need no lock
};

}  // namespace copper
