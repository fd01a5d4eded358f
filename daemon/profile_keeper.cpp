#include "daemon/profile_keeper.hpp"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.hpp"
#include "profile/profile_file.hpp"

namespace copper {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds record_every{60000};
constexpr milliseconds write_time_max{2000};
// An answer has room for these, however short the paths are.
constexpr std::size_t answer_bytes_max = answer_text_bytes_max / 2;

}  // namespace

bool is_asked_for_uses(Rank rank, std::uint32_t nodes) {
    const std::uint32_t step = (nodes + nodes_asked_max - 1) / nodes_asked_max;
    return rank.value % step == 0;
}

// "COUNT PROFILE": with these uses, the node has told COUNT. So one can ask for more before the profile is
// decoded.
std::string answer_uses(const UseLog& log, Rank self, const std::string& argument) {
    const auto first = read_json(argument, [self](const json& known) {
        return known.value(std::to_string(self.value), std::size_t{0});
    });
    if (!first) {
        return {};
    }
    auto uses = log.since(*first, answer_bytes_max);
    const std::string count = std::to_string(*first + uses.size());
    return count + " " + encode({.uses = std::move(uses)});
}

ProfileKeeper::ProfileKeeper(Options options, const Trees& trees, ProgressLoop& loop, Cache& cache,
                             const UseLog& log)
    : options_(std::move(options)), trees_(trees), loop_(loop), cache_(cache), log_(log) {}

ProfileKeeper::~ProfileKeeper() = default;

void ProfileKeeper::in_thread(std::function<void()> work) {
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
    in_thread([this] { read(); });
    record_now_and_then();
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
    for (const auto& [rank, uses] : told_) {
        known[std::to_string(rank.value)] = uses;
    }
    std::vector<Rank> whom = loop_.membership().alive();
    std::erase_if(whom,
                  [nodes = loop_.membership().size()](Rank rank) { return !is_asked_for_uses(rank, nodes); });
    loop_.ask(whom, uses_verb, known.dump(), options_.patience, [this](ProgressLoop::Parts parts) {
        is_collecting_ = false;
        if (take(std::move(parts)) && waiting_bytes_ < options_.waiting_bytes_max) {
            collect();
        } else {
            record();
        }
    });
}

// True if a node told something new.
bool ProfileKeeper::take(ProgressLoop::Parts parts) {
    ProgressLoop::Parts news;
    for (Answer::Part& part : parts) {
        if (part.text.empty()) {
            continue;  // it does not record, or could not read the question
        }
        const std::size_t told = std::strtoull(part.text.c_str(), nullptr, 10);
        if (auto& known = told_[part.rank]; told > known) {
            known = std::min(told, UseLog::uses_max);
            waiting_bytes_ += part.text.size();
            news.push_back(std::move(part));
        }
    }
    const bool is_news = !news.empty();
    in_thread([this, news = std::move(news)] { join(news); });
    return is_news;
}

void ProfileKeeper::record() {
    in_thread([this, nodes = told_.size()] { write(static_cast<std::uint32_t>(nodes)); });
}

void ProfileKeeper::finish(Others others) {
    if (others == Others::are_there) {
        collect();
        return;
    }
    // This node's answer to a call that goes on must not count twice.
    const std::size_t first = std::exchange(told_[Rank{0}], UseLog::uses_max);
    in_thread([this, first] { used_.add(log_.since(first)); });
    record();
}

void ProfileKeeper::wait_until_written() {
    if (is_collecting_) {
        record();  // what has come so far
    }
    auto written = std::make_shared<std::promise<void>>();
    in_thread([written] { written->set_value(); });
    written->get_future().wait_for(write_time_max);
}

void ProfileKeeper::read() {
    std::vector<std::string> files = options_.substitutes;
    files.insert(files.begin(), options_.file);
    const auto file = std::ranges::find_if(files, [](const std::string& path) {
        struct stat found = {};
        return ::stat(path.c_str(), &found) == 0 || errno != ENOENT;
    });
    if (file == files.end()) {
        return;
    }
    auto found = read_profile(*file);
    if (!found) {
        spdlog::warn("profile {}; nothing is fetched ahead, and this job records anew", found.error());
        return;
    }
    spdlog::info("profile {}: {} uses", *file, found->uses.size());
    const auto outside = std::erase_if(
        found->uses, [this](const Profile::Use& use) { return !trees_.contains(use.key.path); });
    if (outside != 0) {
        spdlog::warn("profile {}: {} uses lie outside the trees, and are ignored", options_.file, outside);
    }
    earlier_ = std::move(*found);
    std::shared_ptr<Replay> replay = Replay::of_profile(
        cache_, options_.replay, [this](Replay::Task task) { loop_.post(std::move(task)); }, *earlier_, log_);
    loop_.post([this, replay] { replay_ = replay; });
}

void ProfileKeeper::join(const ProgressLoop::Parts& news) {
    for (const Answer::Part& part : news) {
        const std::string_view text(part.text);
        if (const auto told = decode_profile(text.substr(text.find(' ') + 1))) {
            used_.add(told->uses);
        }
        waiting_bytes_ -= part.text.size();
    }
}

void ProfileKeeper::write(std::uint32_t nodes_asked) {
    Profile run = used_.profile(nodes_asked);
    if (run.uses.empty()) {
        return;
    }
    run.trees = trees_.roots();
    const auto done =
        write_profile(options_.file, earlier_ ? merged(*earlier_, std::move(run)) : std::move(run));
    if (!done) {
        spdlog::warn("what this job used cannot be recorded: {}", done.error());
    }
}

}  // namespace copper
