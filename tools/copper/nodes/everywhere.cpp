#include "tools/copper/nodes/everywhere.hpp"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "base/host_name.hpp"
#include "base/own_files.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/launcher_choice.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

constexpr std::size_t hosts_at_once_max = 128;
constexpr std::chrono::milliseconds reach_patience{10000};
constexpr std::size_t reason_bytes_max = 300;

// Empty if it succeeded and said what it should. Otherwise what the program said, in one line, without the
// frames that Open MPI draws.
std::string why_failed(const Result<Output>& output, const std::string& says) {
    if (!output) {
        return output.error().reason;
    }
    if (succeeded(*output) && output->text.find(says) != std::string::npos) {
        return {};
    }
    std::istringstream lines(output->text);
    std::string reason;
    for (std::string line; std::getline(lines, line) && reason.size() < reason_bytes_max;) {
        if (line.find_first_not_of("- ") != std::string::npos) {
            reason.append(reason.empty() ? "" : " ").append(line);
        }
    }
    // Open MPI's mpirun ends with 0 if a program does not exist and it was told to go on after losses.
    return !reason.empty()      ? reason.substr(0, reason_bytes_max)
           : succeeded(*output) ? "no answer"
                                : describe_status(output->status);
}

// As the daemons are started: what shapes the steps of the application would make these fail, too.
std::set<std::string> variables_without(const Launcher& launcher) {
    return variables_of_application(launcher.keep_env);
}

// The hosts, if they are too many for a command line. Removed at the end.
class HostFile {
  public:
    static Result<HostFile> make(const std::vector<std::string>& hosts) {
        if (hosts.size() <= hosts_on_command_line_max) {
            return HostFile("");
        }
        const auto directory = private_directory(::geteuid());
        if (const auto there = make_private_directory(directory); !there) {
            return failed(there.error());
        }
        HostFile made(directory + "/asked-" + std::to_string(::getpid()));
        if (const auto written = replace_file(made.path(), joined(hosts, "\n") + "\n"); !written) {
            return failed(written.error());
        }
        return made;
    }
    HostFile(HostFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    HostFile& operator=(HostFile&&) = delete;
    ~HostFile() {
        if (!path_.empty()) {
            ::unlink(path_.c_str());
        }
    }
    const std::string& path() const { return path_; }

  private:
    explicit HostFile(std::string path) : path_(std::move(path)) {}
    std::string path_;
};

struct Commands {
    std::function<std::vector<std::string>(const std::string& host)> of;
    std::set<std::string> without;  // variables
};

// Runs the command of each host, several at a time, and none after each_patience.
std::vector<Result<Output>> outputs(const std::vector<std::string>& hosts, std::chrono::milliseconds patience,
                                    const Commands& commands) {
    std::vector<Result<Output>> outputs(hosts.size(), failed("not asked: others took too long"));
    std::atomic<std::size_t> next = 0;
    const auto end = std::chrono::steady_clock::now() + each_patience;
    const auto work = [&] {
        for (std::size_t i = next++; i < hosts.size() && std::chrono::steady_clock::now() < end; i = next++) {
            outputs[i] = capture(commands.of(hosts[i]), patience, commands.without);
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < std::min(hosts.size(), hosts_at_once_max); ++i) {
        threads.emplace_back(work);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    return outputs;
}

Commands through(const Launcher& launcher, const std::vector<std::string>& command) {
    return {.of = [&](const std::string& host) { return reach_hosts(launcher, {host}, command); },
            .without = variables_without(launcher)};
}

enum class Late { is_trouble, is_none };

// Returns the hosts where it fails, in order.
std::vector<Trouble> failing(const std::vector<std::string>& hosts, std::chrono::milliseconds patience,
                             Late late, const std::string& says, const Commands& commands) {
    const auto all = outputs(hosts, patience, commands);
    std::vector<Trouble> troubles;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (!all[i] && late == Late::is_none) {
            continue;
        }
        if (auto reason = why_failed(all[i], says); !reason.empty()) {
            troubles.push_back({.host = hosts[i], .reason = std::move(reason)});
        }
    }
    return troubles;
}

}  // namespace

std::string own_program() {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::vector<std::string> hosts_of(const std::vector<Trouble>& troubles) {
    std::vector<std::string> hosts;
    for (const auto& trouble : troubles) {
        hosts.push_back(trouble.host);
    }
    return hosts;
}

std::vector<Trouble> run_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                  const std::vector<std::string>& command) {
    if (hosts.empty() || launcher.family == Family::alone) {
        return {};
    }
    const auto output = ask_all(launcher, hosts, command);
    std::vector<std::string> done;
    for (const auto& line : lines_behind(done_prefix, output ? output->text : "")) {
        done.push_back(line.substr(0, line.find(' ')));
    }
    // Launchers that survive the loss of a process may call a failure a success.
    if (output && succeeded(*output) && done.size() >= hosts.size()) {
        return {};
    }
    return failing(hosts_without(hosts, done), host_patience, Late::is_trouble, {},
                   through(launcher, command));
}

std::vector<std::string> lines_behind(std::string_view prefix, const std::string& text) {
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        // A launcher may put something in front of a line.
        if (const auto start = line.find(prefix); start != std::string::npos) {
            found.push_back(line.substr(start + prefix.size()));
        }
    }
    return found;
}

Result<Output> ask_all(const Launcher& launcher, const std::vector<std::string>& hosts,
                       const std::vector<std::string>& command, std::chrono::milliseconds patience) {
    const auto file = HostFile::make(hosts);
    if (!file) {
        return tl::make_unexpected(file.error());
    }
    return capture_until(patience, reach_hosts(launcher, hosts, command, file->path()),
                         variables_without(launcher));
}

std::string said_by_all(const Launcher& launcher, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& command, std::chrono::milliseconds patience) {
    if (hosts.empty() || launcher.family == Family::alone) {
        return {};
    }
    const auto output = ask_all(launcher, hosts, command, patience);
    return output ? output->text : "";
}

std::string said_by_each(const Launcher& launcher, const std::vector<std::string>& hosts,
                         const std::vector<std::string>& command) {
    std::string text;
    for (const auto& output : outputs(hosts, host_patience, through(launcher, command))) {
        text += output ? output->text + "\n" : "";
    }
    return text;
}

std::vector<Trouble> troubles_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& command, const std::string& says) {
    const auto others = hosts_without(hosts, {host_name()});
    auto suspected = others;
    std::map<std::string, std::string> reasons;  // by host; a remote shell is plainer than a launcher
    if (has_remote_shell(launcher.family)) {
        const auto by_shell = [&](const std::string& host) {
            auto words = reach_command(launcher.extra, batch_system());
            words.push_back(host);
            words.insert(words.end(), command.begin(), command.end());
            return words;
        };
        const auto failed_there = failing(suspected, reach_patience, Late::is_none, says,
                                          {.of = by_shell, .without = variables_without(launcher)});
        suspected.clear();
        for (const auto& trouble : failed_there) {
            suspected.push_back(trouble.host);
            reasons[trouble.host] = trouble.reason;
        }
    }
    // If no node has a remote shell, that is not why one fails. Where the shell plainly fails, a launcher may
    // wait for ever.
    const bool shell_tells = !reasons.empty() && reasons.size() < others.size();
    auto troubles = failing(suspected, reach_patience, shell_tells ? Late::is_trouble : Late::is_none, says,
                            through(launcher, command));
    for (auto& trouble : troubles) {
        if (shell_tells) {
            trouble.reason = reasons[trouble.host];
        }
    }
    return troubles;
}

}  // namespace copper::cli
