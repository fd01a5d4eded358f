#include "cache/siblings.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/guarded.hpp"
#include "base/path.hpp"
#include "cache/batch_evidence.hpp"

namespace copper {
namespace {

std::string_view suffix_of(std::string_view name) {
    const auto dot = name.rfind('.');
    return dot == std::string_view::npos ? std::string_view() : name.substr(dot);
}

}  // namespace

struct Siblings::State : std::enable_shared_from_this<State> {
    // Files of one directory with one suffix.
    struct Group {
        std::set<std::string> left;   // neither fetched nor used
        std::set<std::string> ahead;  // fetched, and not used yet
        std::size_t window = window_min;
    };
    using GroupKey = std::tuple<std::string, std::string, Use>;  // directory, suffix
    struct Groups {
        std::map<GroupKey, Group> by_key;
        std::size_t names = 0;  // of all groups when they were made
    };

    State(Cache& its_cache, Options its_options) : cache(its_cache), options(its_options) {}

    static Group group_of(const Directory& directory, std::string_view suffix) {
        Group group;
        for (std::size_t i = 0; i < directory.names.size(); ++i) {
            const Listing::Entry entry = directory.names.at(i);
            if (S_ISREG(entry.attributes.mode) && suffix_of(entry.name) == suffix) {
                group.left.emplace(entry.name);
            }
        }
        return group;
    }

    // What there is room for, from `name` on.
    std::vector<std::string> next(Group& group, const std::string& name) {
        std::vector<std::string> chosen;
        while (group.ahead.size() < group.window && !group.left.empty() && in_flight < in_flight_max) {
            auto nearest = group.left.upper_bound(name);
            if (nearest == group.left.end()) {
                nearest = group.left.begin();
            }
            chosen.push_back(*nearest);
            group.ahead.insert(group.left.extract(nearest));
            ++in_flight;
        }
        return chosen;
    }

    void fetch(const std::string& path, Use use) {
        cache.get(
            {.kind = ObjectKind::entry, .path = path},
            [state = shared_from_this(), path, use](const ObjectPtr& object) {
                const Listing* found = object->listing();
                const bool is_there = found != nullptr && found->size() == 1 && !object->lifetime;
                if (use == Use::read && is_there) {
                    state->fetch_bytes(path, found->at(0).attributes);
                } else {
                    --state->in_flight;
                }
            },
            FetchFor::guess);
    }

    void fetch_bytes(const std::string& path, const Attributes& attributes) {
        if (!S_ISREG(attributes.mode) || attributes.size == 0 || attributes.size > options.file_bytes_max) {
            --in_flight;
            return;
        }
        cache.get(
            {.kind = ObjectKind::extent, .path = path, .version = hash_of(version_of(attributes))},
            [state = shared_from_this()](const ObjectPtr&) { --state->in_flight; }, FetchFor::guess);
    }

    Cache& cache;
    const Options options;
    std::atomic<std::size_t> in_flight = 0;
    Guarded<Groups> groups;
};

Siblings::Siblings(Cache& cache, Counters& counters, Options options)
    : counters_(counters),
      state_(std::make_shared<State>(
          cache, Options{.file_bytes_max = std::min(options.file_bytes_max, extent_bytes)})) {}

Siblings::~Siblings() = default;

void Siblings::used(const std::string& path, Use use) {
    const std::string directory(parent_path(path));
    const std::string name(base_name(path));
    const ObjectPtr object = state_->cache.find({.kind = ObjectKind::directory, .path = directory});
    const Directory* names = object != nullptr ? object->directory() : nullptr;
    if (names == nullptr || !names->has_all_names() || BatchEvidence::answers_at_once(*names)) {
        return;
    }
    const std::string suffix(suffix_of(name));
    std::vector<std::string> chosen;
    {
        auto groups = state_->groups.lock();
        const State::GroupKey key(directory, suffix, use);
        auto group = groups->by_key.find(key);
        if (group == groups->by_key.end()) {
            State::Group made = State::group_of(*names, suffix);
            if (groups->names + made.left.size() > names_max) {
                *groups = {};
            }
            groups->names += made.left.size();
            group = groups->by_key.emplace(key, std::move(made)).first;
        }
        if (group->second.ahead.erase(name) != 0) {
            ++counters_.used;
            group->second.window = std::min(group->second.window + window_growth, window_max);
        } else if (group->second.left.erase(name) == 0) {
            return;  // it has been used before
        }
        chosen = state_->next(group->second, name);
    }
    counters_.fetched += chosen.size();
    for (const auto& sibling : chosen) {
        state_->fetch(join_path(directory, sibling), use);
    }
}

}  // namespace copper
