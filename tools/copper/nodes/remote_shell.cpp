#include "tools/copper/nodes/remote_shell.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/launcher_choice.hpp"

namespace copper::cli {

namespace {

// A host that cannot be reached is known by then, or `copper launch` finds it out itself (NodeLooks).
constexpr std::chrono::seconds start_max{10};
constexpr int exit_of_ssh = 255;  // if it fails itself: ssh(1)
constexpr std::string_view agent = "plm_rsh_agent";

// Empty if there is none.
std::vector<std::string> first_that_exists(const std::string& agents) {
    std::istringstream list(agents);
    for (std::string text; std::getline(list, text, ':');) {
        if (auto words = split_words(text); words && !words->empty() && find_program(words->front())) {
            return *words;
        }
    }
    return {};
}

// Open MPI splits the value at blanks, whatever is quoted.
bool holds_blank(const std::vector<std::string>& words) {
    return std::ranges::any_of(words,
                               [](const std::string& word) { return word.find(' ') != std::string::npos; });
}

}  // namespace

int run_remote_shell(const std::vector<std::string>& words) {
    const auto begin = std::chrono::steady_clock::now();
    const auto pid = spawn({.argv = words, .environment = {}});
    if (!pid) {
        say(pid.error().reason);
        return exit_of_ssh;
    }
    int status = 0;
    retry_eintr([&] { return ::waitpid(*pid, &status, 0); });
    const bool had_started = std::chrono::steady_clock::now() - begin > start_max;
    return had_started ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : exit_of_ssh;
}

std::vector<std::string> with_remote_shell(const Launcher& launcher, const std::string& usual) {
    auto extra = launcher.extra;
    auto found = std::ranges::find(extra, agent);
    const bool is_named = found != extra.end() && found + 1 != extra.end();
    auto words = first_that_exists(is_named ? *(found + 1) : usual);
    if (words.empty()) {
        return extra;
    }
    if (words.size() == 1 && std::filesystem::path(words.front()).filename() == "ssh") {
        words.emplace_back("-x");  // as Open MPI does: no X11
    }
    words.insert(words.begin(), {own_program(), std::string(remote_shell_command)});
    if (holds_blank(words)) {
        return extra;
    }
    if (is_named) {
        *(found + 1) = joined(words, " ");
    } else {
        extra.insert(extra.end(), {"--mca", std::string(agent), joined(words, " ")});
    }
    return extra;
}

std::vector<std::string> with_remote_shell(const Launcher& launcher) {
    // Grid Engine has a shell of its own, and Open MPI uses it of its own accord.
    if (launcher.family != Family::open_mpi_4 || batch_system() == BatchSystem::grid_engine) {
        return launcher.extra;
    }
    // Of the same installation. A file or a variable may name another shell.
    const auto info =
        (std::filesystem::path(place_of(launcher.program)).parent_path() / "ompi_info").string();
    const auto said = capture({info, "--param", "plm", "rsh", "--level", "9", "--parsable"},
                              question_patience, variables_of_application(launcher.keep_env));
    const auto values = lines_behind(std::string(agent) + ":value:", said ? said->text : "");
    if (values.empty()) {
        return launcher.extra;
    }
    auto usual = values.front();
    std::erase(usual, '"');
    return with_remote_shell(launcher, usual);
}

}  // namespace copper::cli
