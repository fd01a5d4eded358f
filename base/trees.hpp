// Which paths are mirrored cooperatively: everything within one of the trees. What lies outside is mirrored
// too, but each node reads it by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace copper {

// Immutable.
class Trees {
  public:
    // REQUIRES: normalised paths.
    explicit Trees(std::vector<std::string> roots) : roots_(std::move(roots)) {}

    bool contains(std::string_view path) const;
    const std::vector<std::string>& roots() const { return roots_; }

  private:
    std::vector<std::string> roots_;
};

}  // namespace copper
