#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error_text.hpp"
#include "base/path.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/foreground.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/programs/check_report.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct CheckOptions {
    MirrorOptions mirror;
    Words run_options;  // the same as words, for `copper run`
    Words command;
    bool all = false;
    bool json = false;
};

// A directory for the traces, removed at the end.
class Scratch {
  public:
    Scratch() : path_("/tmp/copper-check-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) {
            path_.clear();
        }
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }

    std::vector<fs::path> files(const std::string& prefix) const {
        std::vector<fs::path> found;
        std::error_code error;
        for (const auto& entry : fs::directory_iterator(path_, error)) {
            if (entry.path().filename().string().starts_with(prefix)) {
                found.push_back(entry.path());
            }
        }
        return found;
    }

  private:
    std::string path_;
};

// ---- The two ways to watch.

// Every byte of a path in hexadecimal digits (-xx), and numbers for flags (-X raw), are easy to read. -v
// shows the environment. With -I4, no signal ends strace before the command. With --seccomp-bpf, only these
// calls stop a program: an import of scipy.stats takes 15% longer.
Words strace_words(const std::string& output) {
    return split_words(
               "strace -f -y -xx -X raw -v -s 1048576 -qq -I4 --seccomp-bpf -e signal=none "
               "-e trace=?open,openat,?openat2,execve,?execveat -o " +
               shell_quote(output) + " --")
        .value();
}

// Containers and security modules may forbid ptrace(2), and older versions lack some options. So try it.
bool can_strace() {
    constexpr std::chrono::seconds patience{10};
    auto words = strace_words("/dev/null");
    words.emplace_back("true");
    const auto tried = capture(words, patience);
    return tried && succeeded(*tried);
}

// Beside this program where it was built; below its prefix where it is installed.
Result<std::string> find_preload(const std::string& own) {
    const auto directory = fs::path(own).parent_path();
    for (const char* place : {"libcopper_check.so", "../" COPPER_LIBDIR "/copper/libcopper_check.so"}) {
        if (const auto found = resolve_path(directory / place)) {
            return *found;
        }
    }
    return lacking("needs strace, or libcopper_check.so, which is not beside " + own);
}

struct Watch {
    Watcher watcher = Watcher::strace;
    Words prefix;                    // of the command
    std::vector<std::string> apart;  // what the watcher opens itself, and what is no filesystem of a job
};
// Also sets variables of this process, which the command gets.
Result<Watch> prepare_watch(const Scratch& scratch, const std::string& own) {
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    Watch watch{.prefix = {},
                .apart = {"/proc", "/sys", "/dev", scratch.path(), private_directory(::getuid())}};
    if (can_strace()) {
        watch.prefix = strace_words(scratch.path() + "/trace");
    } else {
        const auto preload = find_preload(own);
        if (!preload) {
            return tl::make_unexpected(preload.error());
        }
        const auto others = read_variable("LD_PRELOAD");
        set("LD_PRELOAD", *preload + (others ? ":" + *others : ""));
        set("COPPER_CHECK_DIRECTORY", scratch.path());
        watch.watcher = Watcher::preload;
        watch.apart.push_back(*preload);
    }
    set("LD_DEBUG", "libs");
    set("LD_DEBUG_OUTPUT", scratch.path() + "/libraries");
    return watch;
}

// ---- Running the command.

// The child, if it is no tracer; otherwise the tracer's child.
pid_t command_of(pid_t child, Watcher watcher) {
    const auto id = std::to_string(child);
    pid_t command = 0;
    if (watcher == Watcher::strace) {
        std::ifstream("/proc/" + id + "/task/" + id + "/children") >> command;
    }
    return command > 0 ? command : child;
}

// ---- What was seen.

// Without the calls of this program itself, which becomes the command.
void add_calls(const fs::path& trace, const std::string& own, std::vector<Call>& calls) {
    std::ifstream file(trace);
    for (auto& [process, its_calls] : read_calls(file)) {
        bool is_own = false;
        for (auto& call : its_calls) {
            if (call.kind == Call::Kind::exec && !call.is_absent) {
                const auto path = call.absolute_path();
                is_own = path && resolve_path(*path) == own;
            }
            if (!is_own) {
                calls.push_back(std::move(call));
            }
        }
    }
}

Evidence evidence_of(const Scratch& scratch, const std::string& own, Watcher watcher) {
    Evidence evidence;
    for (const auto& trace : scratch.files("trace")) {
        add_calls(trace, own, evidence.calls);
    }
    for (const auto& log : scratch.files("libraries.")) {
        std::ifstream file(log);
        read_libraries(file, evidence.libraries);
    }
    if (watcher == Watcher::strace) {
        evidence.libraries.loaded.clear();  // their opens were seen
    }
    return evidence;
}

std::string read_beginning(const std::string& path, std::size_t bytes_max) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
        return {};
    }
    std::string bytes(bytes_max, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(file.gcount()));
    return bytes;
}

// Nothing to tell beyond the report, but an exit code.
int exit_code_of(const CheckReport& report) {
    return report.judgement.around.empty() ? shell_exit_code(report.status) : exit_failed;
}

Result<void> check(const CheckOptions& options) {
    const auto environment = mirror_environment(options.mirror, {.name = "check", .arguments = "-- ..."});
    if (!environment) {
        return tl::make_unexpected(environment.error());
    }
    if (!find_program(options.command.front())) {
        return not_found(options.command.front());
    }
    const Scratch scratch;
    if (scratch.path().empty()) {
        return failed("cannot make a directory in /tmp: " + error_text());
    }
    const auto own = own_program();
    auto watch = prepare_watch(scratch, own);
    if (!watch) {
        return tl::make_unexpected(watch.error());
    }
    auto& words = watch->prefix;
    words.insert(words.end(), {own, "run", "--view", "paths"});  // nothing goes around a view
    words.insert(words.end(), options.run_options.begin(), options.run_options.end());
    words.emplace_back("--");
    words.insert(words.end(), options.command.begin(), options.command.end());
    const auto status = Foreground().run(
        {.words = words, .output_to_errors = options.json, .to_signal = [&watch](pid_t child) {
             return command_of(child, watch->watcher);
         }});
    if (!status) {
        return tl::make_unexpected(status.error());
    }
    const Surroundings surroundings{.mirror = environment->mirror,
                                    .apart = watch->apart,
                                    .resolve = resolve_path,
                                    .read = read_beginning};
    const CheckReport report{.command = options.command,
                             .status = *status,
                             .watcher = watch->watcher,
                             .mount = environment->mirror.mount,
                             .trees = environment->mirror.trees,
                             .judgement = judge(evidence_of(scratch, own, watch->watcher), surroundings)};
    if (options.json) {
        std::cout << check_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
        std::cout << check_text(report, options.all ? Examples::all : Examples::few);
    }
    const int code = exit_code_of(report);
    return code == exit_done ? Result<void>() : tl::make_unexpected(Failure{code, ""});
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
    auto options = std::make_shared<CheckOptions>();
    auto* command = app.add_subcommand(
        "check", "Run a command like 'copper run', and tell which files it opened around the mirror");
    add_environment_options(*command, options->mirror);
    const auto shared = command->get_options();
    command->add_flag("--all", options->all, "All files, not only three of each group");
    command->add_flag("--json", options->json,
                      "As JSON on standard output; the command's output goes to standard error");
    command->add_option("CMD", options->command, "The command and its arguments, after --")->required();
    command->footer(
        "Exit code: 1 if a file or directory below the trees was opened around the mirror, otherwise that "
        "of\n"
        "the command (128 + N for signal N); 127 if it was not found. Files that the command writes do not\n"
        "count. Only processes on this node are watched.\n\n"
        "Examples:\n"
        "  copper check -- python -c 'import torch'\n"
        "  copper check --all -- torchrun train.py");
    command->callback([options, shared, &action] {
        options->run_options = words_given(shared);
        action = [options] { return check(*options); };
    });
}

}  // namespace copper::cli
