// What to fetch ahead of a program that goes through names in their order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace copper {

// Moves names from `left` to `ahead`, until that has `ahead_max`: from `place` on, then from the first one.
// Returns them in this order. Names: a std::set of strings.
template <typename Names>
std::vector<std::string> take_nearest(Names& left, Names& ahead, std::size_t ahead_max,
                                      const std::string& place) {
    std::vector<std::string> taken;
    while (ahead.size() < ahead_max && !left.empty()) {
        auto nearest = left.upper_bound(place);
        if (nearest == left.end()) {
            nearest = left.begin();
        }
        taken.push_back(*nearest);
        ahead.insert(left.extract(nearest));
    }
    return taken;
}

}  // namespace copper
