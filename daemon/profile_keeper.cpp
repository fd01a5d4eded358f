#include "daemon/profile_keeper.hpp"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.hpp"
#include "profile/profile_file.hpp"

namespace copper {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds record_every{60000};
constexpr milliseconds collect_patience{2000};
constexpr milliseconds write_time_max{2000};
// An answer has room for these, however short the paths are.
constexpr std::size_t answer_bytes_max = answer_text_bytes_max / 2;

}  // namespace

bool is_asked_for_uses(Rank rank, std::uint32_t nodes) {
    const std::uint32_t step = (nodes + nodes_asked_max - 1) / nodes_asked_max;
    return rank.value % step == 0;
}

std::string answer_uses(const UseLog& log, Rank self, const std::string& argument) {
    const auto first = read_json(argument, [self](const json& known) {
        return known.value(std::to_string(self.value), std::size_t{0});
    });
    return first ? encode({.uses = log.since(*first, answer_bytes_max)}) : std::string();
}

ProfileKeeper::ProfileKeeper(Options options, const Trees& trees, ProgressLoop& loop, Cache& cache,
                             const UseLog& log)
    : options_(std::move(options)), trees_(trees), loop_(loop), cache_(cache), log_(log) {}

ProfileKeeper::~ProfileKeeper() = default;

void ProfileKeeper::in_background(std::function<void()> work) {
    ++to_do_;
    const bool is_queued = thread_.submit([this, work = std::move(work)] {
        work();
        --to_do_;
    });
    if (!is_queued) {
        --to_do_;
    }
}

void ProfileKeeper::begin() {
    in_background([this] { loop_.post([this, found = read()] { replay(found); }); });
    record_now_and_then();
}

// Null: there is none.
std::shared_ptr<Profile> ProfileKeeper::read() const {
    std::vector<std::string> files = options_.substitutes;
    files.insert(files.begin(), options_.file);
    for (const auto& file : files) {
        struct stat found = {};
        if (::stat(file.c_str(), &found) != 0 && errno == ENOENT) {
            continue;
        }
        auto profile = read_profile(file);
        if (profile) {
            spdlog::info("profile {}: {} uses", file, profile->uses.size());
            return std::make_shared<Profile>(std::move(*profile));
        }
        spdlog::warn("profile {}; nothing is fetched ahead, and this job records anew", profile.error());
        return nullptr;
    }
    return nullptr;
}

void ProfileKeeper::replay(std::shared_ptr<Profile> found) {
    if (found == nullptr) {
        return;
    }
    const auto outside = std::erase_if(
        found->uses, [this](const Profile::Use& use) { return !trees_.contains(use.key.path); });
    if (outside != 0) {
        spdlog::warn("profile {}: {} uses lie outside the trees, and are ignored", options_.file, outside);
    }
    earlier_ = std::move(found);
    replay_ = Replay::of_profile(
        cache_, options_.replay, [this](Replay::Task task) { loop_.post(std::move(task)); }, *earlier_, log_);
}

void ProfileKeeper::record_now_and_then() {
    loop_.at(std::chrono::steady_clock::now() + record_every, [this] {
        const std::size_t uses = log_.size();
        if (std::exchange(uses_recorded_, uses) != uses) {
            collect();
        }
        record_now_and_then();
    });
}

// Asks for what is new until nothing is: an answer has room for a part only.
void ProfileKeeper::collect() {
    if (std::exchange(is_collecting_, true)) {
        return;
    }
    json known = json::object();
    for (const auto& [rank, uses] : used_) {
        known[std::to_string(rank.value)] = uses.size();
    }
    loop_.call(uses_verb, known.dump(), collect_patience, [this](const ProgressLoop::Parts& parts) {
        is_collecting_ = false;
        bool is_news = false;
        for (const auto& part : parts) {
            if (auto told = decode_profile(part.text)) {
                auto& uses = used_[part.rank];
                is_news = is_news || !told->uses.empty();
                std::move(told->uses.begin(), told->uses.end(), std::back_inserter(uses));
            }
        }
        is_news ? collect() : write();
    });
}

void ProfileKeeper::write() {
    std::vector<std::vector<Profile::Use>> nodes;
    for (const auto& [rank, uses] : used_) {
        nodes.push_back(uses);
    }
    auto written = std::make_shared<std::promise<void>>();
    written_ = written->get_future();
    in_background([this, nodes = std::move(nodes), earlier = earlier_, written] {
        Profile run = joined(nodes);
        if (!run.uses.empty()) {
            run.trees = trees_.roots();
            const auto done = write_profile(
                options_.file, earlier != nullptr ? merged(*earlier, std::move(run)) : std::move(run));
            if (!done) {
                spdlog::warn("what this job used cannot be recorded: {}", done.error());
            }
        }
        written->set_value();
    });
}

void ProfileKeeper::finish(Others others) {
    if (others == Others::are_there) {
        collect();
    } else {
        used_[Rank{0}] = log_.since(0);
        write();
    }
}

void ProfileKeeper::wait_until_written() {
    if (written_.valid()) {
        written_.wait_for(write_time_max);
    }
}

}  // namespace copper
