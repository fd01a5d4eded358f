// Files of which the page filler had the kernel keep bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/guarded.hpp"

namespace copper {

// Thread-safe. Nobody sees whether a program reads bytes that the kernel keeps. They count as used when a
// program looks up the file's name: a profile keeps them as long as programs do that.
class FilledFiles {
  public:
    // Beyond it, all are forgotten: a profile may lose them, and the next job records them again.
    static constexpr std::size_t files_max = 1U << 16;

    // The page filler looks a name up, which a program then does again.
    void looked_up(const std::string& path) {
        auto files = files_.lock();
        if (files->size() >= files_max) {
            files->clear();
        }
        files->try_emplace(path);
        count_ = files->size();
    }

    // False: a program has looked it up already.
    bool add(const std::string& path, std::uint32_t extent) {
        auto files = files_.lock();
        const auto file = files->find(path);
        if (file == files->end()) {
            return false;
        }
        if (file->second.empty() || file->second.back() != extent) {  // it takes several reads
            file->second.push_back(extent);
        }
        return true;
    }

    bool is_empty() const { return count_ == 0; }

    // A program looks the name up: which extents it may use from now on.
    std::vector<std::uint32_t> take(const std::string& path) {
        std::vector<std::uint32_t> extents;
        if (!is_empty()) {
            auto files = files_.lock();
            if (const auto file = files->find(path); file != files->end()) {
                extents = std::move(file->second);
                files->erase(file);
                count_ = files->size();
            }
        }
        return extents;
    }

  private:
    Guarded<std::unordered_map<std::string, std::vector<std::uint32_t>>> files_;
    std::atomic<std::size_t> count_ = 0;  // most lookups need no lock
};

}  // namespace copper
