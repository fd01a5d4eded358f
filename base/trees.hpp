// Which paths the nodes mirror together: everything in one of the trees. Other paths are mirrored too, but
// each node reads them itself.
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
    // A directory above a tree.
    bool is_on_the_way(std::string_view path) const;
    const std::vector<std::string>& roots() const { return roots_; }

  private:
    std::vector<std::string> roots_;
};

}  // namespace copper
