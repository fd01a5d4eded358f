#include "cache/walk.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/guarded.hpp"
#include "base/path.hpp"
#include "cache/batch_evidence.hpp"
#include "cache/names.hpp"
#include "cache/take_nearest.hpp"

namespace copper {
namespace {

// Directories that a program may come to. Further ones are not fetched ahead.
constexpr std::size_t candidates_max = 4096;

}  // namespace

struct Walk::State : std::enable_shared_from_this<State> {
    // The order in which a program visits directories: the content of a directory comes before its next
    // sibling.
    struct WalkOrder {
        bool operator()(const std::string& a, const std::string& b) const {
            return std::lexicographical_compare(
                a.begin(), a.end(), b.begin(), b.end(),
                [](char one, char other) { return rank_of(one) < rank_of(other); });
        }
        static int rank_of(char c) { return c == '/' ? 0 : static_cast<unsigned char>(c) + 1; }
    };
    using Paths = std::set<std::string, WalkOrder>;

    struct Plan {
        Paths ahead;       // fetched, but not listed by a program yet
        Paths candidates;  // to fetch when there is room
        std::size_t window = 0;
        std::string place;  // the directory listed last
    };

    explicit State(Cache& its_cache) : cache(its_cache) {}

    static void add_candidates(Plan& plan, const std::string& directory, const Listing& names) {
        for (std::size_t i = 0; i < names.size() && plan.candidates.size() < candidates_max; ++i) {
            const Listing::Entry entry = names.at(i);
            if (S_ISDIR(entry.attributes.mode)) {
                plan.candidates.insert(join_path(directory, entry.name));
            }
        }
    }

    // The directories to fetch now.
    static std::vector<std::string> next(Plan& plan) {
        return take_nearest(plan.candidates, plan.ahead, plan.window, plan.place);
    }

    void fetch(const std::vector<std::string>& paths) {
        for (const auto& path : paths) {
            cache.get(
                {.kind = ObjectKind::directory, .path = path},
                [state = shared_from_this(), path](const ObjectPtr& object) { state->arrived(path, object); },
                FetchFor::guess);
        }
    }

    void arrived(const std::string& path, const ObjectPtr& object) {
        if (object->directory() == nullptr || directories_in_a_row == 0) {
            return;
        }
        std::vector<std::string> paths;
        {
            auto locked = plan.lock();
            if (locked->window == 0) {
                return;
            }
            add_candidates(*locked, path, object->directory()->names);
            paths = next(*locked);
        }
        fetch(paths);
        if (object->directory()->entries > 0 && BatchEvidence::is_worth_batch_at_once(*object->directory())) {
            cache.get(
                batch_key(ObjectKind::batch, path, {.directory = object, .position = 0}),
                [](const ObjectPtr&) {}, FetchFor::guess);
        }
    }

    Cache& cache;
    std::atomic<std::uint32_t> directories_in_a_row = 0;  // since a program read a file
    Guarded<Plan> plan;
};

Walk::Walk(Cache& cache) : state_(std::make_shared<State>(cache)) {}

Walk::~Walk() = default;

void Walk::file_read() {
    if (state_->directories_in_a_row.load(std::memory_order_relaxed) != 0) {
        state_->directories_in_a_row = 0;
    }
}

void Walk::listed(const std::string& directory, const ObjectPtr& object) {
    const std::uint32_t in_a_row = ++state_->directories_in_a_row;
    if (object->directory() == nullptr) {
        return;
    }
    std::vector<std::string> paths;
    {
        auto plan = state_->plan.lock();
        if (in_a_row == 1) {
            *plan = {};
        }
        if (plan->ahead.erase(directory) != 0) {
            plan->window = std::min(plan->window + 1, window_max);
        } else if (plan->candidates.erase(directory) != 0) {
            plan->window = in_a_row > noticed_after ? std::max(plan->window, window_min) : 0;
        } else {
            *plan = {};  // the program came from elsewhere and may not want what was fetched
        }
        plan->place = directory;
        State::add_candidates(*plan, directory, object->directory()->names);
        paths = State::next(*plan);
    }
    state_->fetch(paths);
}

}  // namespace copper
