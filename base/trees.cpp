#include "base/trees.hpp"

#include <algorithm>

#include "base/path.hpp"

namespace copper {

bool Trees::contains(std::string_view path) const {
    return std::any_of(roots_.begin(), roots_.end(),
                       [path](const auto& root) { return is_within(path, root); });
}

bool Trees::is_on_the_way(std::string_view path) const {
    return !contains(path) && std::any_of(roots_.begin(), roots_.end(),
                                          [path](const auto& root) { return is_within(root, path); });
}

}  // namespace copper
