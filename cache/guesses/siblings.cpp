#include "cache/guesses/siblings.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/path.hpp"
#include "cache/take_nearest.hpp"

namespace copper {
namespace {

std::string_view suffix_of(std::string_view name) {
    const auto dot = name.rfind('.');
    return dot == std::string_view::npos ? std::string_view() : name.substr(dot);
}

bool has_use_for_neighbours(std::string_view name, Siblings::Use use) {
    const bool is_source = use == Siblings::Use::read && name.ends_with(".py");
    return !is_source && !is_library(name);
}

}  // namespace

Siblings::Group Siblings::group_of(const Directory& directory, std::string_view suffix) {
    Group group;
    for (std::size_t i = 0; i < directory.names.size(); ++i) {
        const Listing::Entry entry = directory.names.at(i);
        if (S_ISREG(entry.attributes.mode) && suffix_of(entry.name) == suffix) {
            group.left.emplace(entry.name);
        }
    }
    return group;
}

bool Siblings::used(const std::string& path, Use use, Foresight foresight) {
    const std::string directory(parent_path(path));
    const std::string name(base_name(path));
    const ObjectPtr names = ahead_->known_names(directory);
    if (names == nullptr || !has_use_for_neighbours(name, use)) {
        return false;
    }
    const std::string suffix(suffix_of(name));
    std::vector<std::string> chosen;
    bool is_guess = false;
    {
        auto groups = groups_.lock();
        const GroupKey key(directory, suffix, use);
        auto group = groups->by_key.find(key);
        if (group == groups->by_key.end()) {
            Group made = group_of(*names->directory(), suffix);
            if (groups->names + made.left.size() > names_max) {
                *groups = {};
            }
            groups->names += made.left.size();
            group = groups->by_key.emplace(key, std::move(made)).first;
        }
        is_guess = group->second.ahead.erase(name) != 0;
        if (is_guess) {
            ++counters_.used;
            group->second.window = std::min(group->second.window + window_growth, window_max);
        } else if (group->second.left.erase(name) == 0 || foresight == Foresight::foreseen) {
            return false;  // it has been used before, or others foresaw it
        }
        chosen = take_nearest(group->second.left, group->second.ahead, group->second.window, name);
    }
    counters_.fetched += chosen.size();
    for (const auto& sibling : chosen) {
        const std::string beside = join_path(directory, sibling);
        if (use == Use::read) {
            ahead_->small_file(beside);
        } else {
            ahead_->entry(beside, [](const Listing::Entry&) {});
        }
    }
    return is_guess;
}

}  // namespace copper
