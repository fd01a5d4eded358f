#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error_text.hpp"
#include "base/path.hpp"
#include "base/shell_quote.hpp"
#include "base/unique_fd.hpp"
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

// For the trace; removed at the end.
class TraceFile {
  public:
    TraceFile() : fd_(::mkostemp(path_.data(), O_CLOEXEC)) {}
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;
    ~TraceFile() {
        if (fd_) {
            ::unlink(path_.c_str());
        }
    }
    bool is_there() const { return static_cast<bool>(fd_); }
    const std::string& path() const { return path_; }

  private:
    std::string path_ = "/tmp/copper-check-XXXXXX";
    UniqueFd fd_;
};

// ---- Watching.

// Every byte of a path in hexadecimal digits (-xx), and numbers for flags (-X raw), are easy to read. With
// -I4, no signal ends strace before the command. With --seccomp-bpf, only these calls stop a program: an
// import of scipy.stats takes 15% longer.
Words strace_words(const std::string& output) {
    return split_words(
               "strace -f -y -xx -X raw -s 1048576 -qq -I4 --seccomp-bpf -e signal=none "
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

// ---- Running the command.

// The tracer's child, or the tracer until it has one.
pid_t command_of(pid_t tracer) {
    const auto id = std::to_string(tracer);
    pid_t command = 0;
    std::ifstream("/proc/" + id + "/task/" + id + "/children") >> command;
    return command > 0 ? command : tracer;
}

// ---- What was seen.

// Without the calls of this program itself, which becomes the command.
std::vector<Call> calls_in(const std::string& trace, const std::string& own) {
    std::ifstream file(trace);
    std::vector<Call> calls;
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
    return calls;
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
    if (!can_strace()) {
        return lacking(
            "needs strace(1), and the right to watch programs with it (in a container: --cap-add "
            "SYS_PTRACE)");
    }
    const TraceFile trace;
    if (!trace.is_there()) {
        return failed("cannot make a file in /tmp: " + error_text());
    }
    const auto own = own_program();
    auto words = strace_words(trace.path());
    words.insert(words.end(), {own, "run", "--view", "paths"});  // nothing goes around a view
    words.insert(words.end(), options.run_options.begin(), options.run_options.end());
    words.emplace_back("--");
    words.insert(words.end(), options.command.begin(), options.command.end());
    const auto status =
        Foreground().run({.words = words, .output_to_errors = options.json, .to_signal = command_of});
    if (!status) {
        return tl::make_unexpected(status.error());
    }
    // What strace opens itself, and what is no filesystem of a job.
    const Surroundings surroundings{
        .mirror = environment->mirror,
        .apart = {"/proc", "/sys", "/dev", trace.path(), private_directory(::getuid())},
        .resolve = resolve_path,
        .read = read_beginning};
    const CheckReport report{.command = options.command,
                             .status = *status,
                             .mount = environment->mirror.mount,
                             .trees = environment->mirror.trees,
                             .judgement = judge(calls_in(trace.path(), own), surroundings)};
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
    command->add_flag("--all", options->all, "All files, not only ten");
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
