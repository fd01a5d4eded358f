#include "daemon/refreshes.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/answer_in_time.hpp"
#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "base/path.hpp"
#include "daemon/control/control.hpp"

namespace copper {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::milliseconds patience_to_name{5000};
// How often to look whether what a refresh waits for is a filesystem that does not answer.
constexpr std::chrono::milliseconds look_interval{1000};

std::string answer_with(const std::string& error, bool is_under_way = false) {
    return json_line({{"host", host_name()}, {"error", error}, {"is_under_way", is_under_way}});
}

// The one answer of this node: of whoever has the first one.
class Answering {
  public:
    explicit Answering(ProgressLoop::Later later) : later_(std::move(later)) {}

    bool is_over() const { return is_over_; }
    void answer(std::string text) {
        if (!is_over_.exchange(true)) {
            later_(std::move(text));
        }
    }

  private:
    std::atomic<bool> is_over_ = false;
    const ProgressLoop::Later later_;
};

// `paths`: of the refresh
void watch(ProgressLoop& loop, const std::shared_ptr<Answering>& answering, std::vector<std::string> paths) {
    loop.at(std::chrono::steady_clock::now() + look_interval, [&loop, answering, paths = std::move(paths)] {
        if (answering->is_over()) {
            return;
        }
        const auto silent = loop.silent_filesystems();
        const auto waited_for = std::ranges::find_if(silent, [&](const auto& one) {
            return std::ranges::any_of(paths, [&](const std::string& path) {
                return is_within(one.first, parent_path(path)) || is_within(path, one.first);
            });
        });
        if (waited_for == silent.end()) {
            watch(loop, answering, paths);
            return;
        }
        const auto& [filesystem, time] = *waited_for;
        answering->answer(answer_with(filesystem + " has not answered for " + std::to_string(time.count()) +
                                          " s; what waits for it follows when it answers",
                                      true));
    });
}

// Directories in which programs are, and which have lost their name with the kernel's other names.
std::set<std::string> nameless_directories(const std::string& mount) {
    constexpr std::string_view nameless = " (deleted)";  // proc(5)
    std::set<std::string> found;
    std::error_code error;
    for (fs::directory_iterator process("/proc", error), end; !error && process != end;
         process.increment(error)) {
        std::error_code is_others;
        std::string directory = fs::read_symlink(process->path() / "cwd", is_others);
        if (directory.ends_with(nameless)) {
            directory.resize(directory.size() - nameless.size());
            // In a view, it is the original's path.
            found.insert(is_within(directory, mount) ? directory : mount + directory);
        }
    }
    return found;
}

// Until somebody looks up such a directory, it has no path: getcwd(2) fails there.
void name_again(const std::string& mount, const std::vector<std::string>& trees) {
    auto directories = nameless_directories(mount);
    for (const std::string& tree : trees) {
        directories.insert(mount + tree);  // what the view shows
    }
    if (directories.empty()) {
        return;
    }
    // A process of its own: this one must not wait for the mirror. If this one is lost, it must not keep
    // the supervisor from seeing that.
    const auto look = [&] {
        struct stat found = {};
        for (const std::string& directory : directories) {
            static_cast<void>(::lstat(directory.c_str(), &found));
        }
        return std::string();
    };
    answer_in_time(patience_to_name, look, Holds::nothing);
}

}  // namespace

std::string Refreshes::with_ids(std::vector<Refreshed> refreshed) {
    std::random_device random;
    std::uniform_int_distribution<std::uint64_t> any_id(1);
    json text = json::array();
    for (const Refreshed& one : refreshed) {
        text.push_back(
            {{"path", one.path}, {"one_level", one.reach == Reach::one_level}, {"id", any_id(random)}});
    }
    return json_line(text);
}

tl::expected<std::string, std::string> Refreshes::with_ids(const std::string& paths) {
    const auto wanted =
        read_json(paths, [](const json& read) { return read.get<std::vector<std::string>>(); });
    if (!wanted || wanted->empty() || wanted->size() > refreshed_paths_max) {
        return tl::make_unexpected("a refresh takes 1 to " + std::to_string(refreshed_paths_max) + " paths");
    }
    std::vector<Refreshed> refreshed;
    for (const std::string& path : *wanted) {
        if (!is_normalised_path(path)) {
            return tl::make_unexpected(path + ": not an absolute path");
        }
        refreshed.push_back({.path = path});
    }
    return with_ids(std::move(refreshed));
}

bool Refreshes::is_done_in_the_end(const Answer::Part& answer) {
    return read_json(
               answer.text,
               [](const json& read) { return read.at("error") == "" || read.at("is_under_way").get<bool>(); })
        .value_or(false);
}

std::optional<std::string> Refreshes::answer(const std::string& argument, ProgressLoop& loop,
                                             const ProgressLoop::Later& later) {
    auto refreshed = read_json(argument, [](const json& read) {
        std::vector<Refreshed> all;
        for (const json& one : read) {
            all.push_back(
                {.path = one.at("path").get<std::string>(),
                 .reach = one.at("one_level").get<bool>() ? Reach::one_level : Reach::everything_below,
                 .id = one.at("id").get<std::uint64_t>()});
        }
        return all;
    });
    if (!refreshed) {
        return answer_with("a refresh that makes no sense");
    }
    std::erase_if(*refreshed, [](const Refreshed& one) { return !is_normalised_path(one.path); });
    for (const Refreshed& one : *refreshed) {
        cache_.refresh(one);
    }
    if (session_ == nullptr) {
        return answer_with("");
    }
    std::vector<std::string> trees = trees_.roots();
    std::erase_if(trees, [&](const std::string& tree) {
        return std::ranges::none_of(*refreshed, [&](const auto& one) { return is_within(tree, one.path); });
    });
    std::vector<std::string> paths;
    std::ranges::transform(*refreshed, std::back_inserter(paths), &Refreshed::path);
    const auto answering = std::make_shared<Answering>(later);
    const auto done = [answering, mount = mount_, trees = std::move(trees)] {
        name_again(mount, trees);
        answering->answer(answer_with(""));
    };
    if (!session_->refresh(std::move(*refreshed), done)) {
        return answer_with("too many refreshes at once");
    }
    watch(loop, answering, std::move(paths));
    return std::nullopt;
}

}  // namespace copper
