#include "base/processes.hpp"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace copper {

std::optional<std::string> find_program(const std::string& name) {
    return find_program(name, program_directories());
}

std::string program_directories() {
    const char* path = std::getenv("PATH");
    return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

std::optional<std::string> find_program(const std::string& name, const std::string& path_list) {
    const auto runs = [](const std::string& program) {
        std::error_code error;
        return std::filesystem::is_regular_file(program, error) && ::access(program.c_str(), X_OK) == 0;
    };
    if (name.find('/') != std::string::npos) {
        return runs(name) ? std::optional(name) : std::nullopt;
    }
    std::istringstream directories(path_list);
    for (std::string directory; std::getline(directories, directory, ':');) {
        if (const auto program = (directory.empty() ? "." : directory) + "/" + name; runs(program)) {
            return program;
        }
    }
    return std::nullopt;
}

namespace {

// /proc may be mounted with hidepid (proc(5)). Then a user namespace hides even the user's own processes.
bool is_hidden(pid_t pid) {
    return ::access(("/proc/" + std::to_string(pid) + "/stat").c_str(), R_OK) != 0 && ::kill(pid, 0) == 0;
}

// The fields of /proc/<pid>/stat (proc(5)) from the third one on. Field 2 is the command in parentheses and
// can contain any character. If the process ends between open and read, there are none.
std::string stat_fields(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text, '\0');
    const auto end_of_command = text.rfind(") ");
    return end_of_command != std::string::npos ? text.substr(end_of_command + 2) : "";
}

}  // namespace

std::uint64_t start_time_of(pid_t pid) {
    std::istringstream fields(stat_fields(pid));
    constexpr int first_field = 3;
    constexpr int start_time_field = 22;
    std::string field;
    for (int i = first_field; i <= start_time_field; ++i) {
        fields >> field;
        if (i == first_field && field == "Z") {
            return 0;  // a zombie
        }
    }
    std::uint64_t started = 0;
    std::from_chars(field.data(), field.data() + field.size(), started);
    return started;
}

ProcessName process_named(pid_t pid) {
    return {.pid = pid, .started = start_time_of(pid)};
}

bool is_running(const ProcessName& process) {
    return is_running(process.pid, process.started);
}

char state_letter(pid_t pid) {
    const auto fields = stat_fields(pid);
    return fields.empty() ? '?' : fields.front();
}

std::string wait_channel(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/wchan");
    std::string function;
    file >> function;
    return function == "0" ? "" : function;
}

bool is_running(pid_t pid, std::uint64_t started) {
    if (pid <= 0 || started == 0) {
        return false;
    }
    const std::uint64_t found = start_time_of(pid);
    return found == started || (found == 0 && is_hidden(pid));
}

void close_descriptors_except(const std::set<int>& kept) {
    std::vector<int> others;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
        const int descriptor = std::atoi(entry.path().filename().c_str());
        if (descriptor > STDERR_FILENO && !kept.contains(descriptor)) {
            others.push_back(descriptor);
        }
    }
    for (const int descriptor : others) {
        ::close(descriptor);  // possibly the directory's own, already closed
    }
}

}  // namespace copper
