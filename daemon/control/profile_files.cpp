#include "daemon/control/profile_files.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "daemon/control/fingerprint.hpp"

namespace copper {
namespace {

constexpr std::size_t program_bytes_max = 64;

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

// The script that a shell or another interpreter runs, or the process itself (proc(5): cmdline).
std::string script_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/cmdline", std::ios::binary);
    std::string program;
    std::string first;
    std::getline(file, program, '\0');
    std::getline(file, first, '\0');
    return first.empty() || first.front() == '-' ? program : first;
}

// For the name of a file.
std::string plain_name(const std::string& path) {
    std::string name = path.substr(path.rfind('/') + 1).substr(0, program_bytes_max);
    std::replace_if(
        name.begin(), name.end(),
        [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_' && c != '-'; }, '_');
    name.erase(0, std::min(name.find_first_not_of(".-"), name.size()));
    return name.empty() ? any_program : name;
}

std::string cache_directory(const char* part) {
    std::string cache = variable("XDG_CACHE_HOME");
    if (cache.empty() || cache.front() != '/') {  // the specification: ignore it if it is relative
        std::string home = variable("HOME");
        if (const passwd* entry = home.empty() ? ::getpwuid(::geteuid()) : nullptr; entry != nullptr) {
            home = entry->pw_dir;
        }
        cache = home.empty() || home.front() != '/' ? "" : home + "/.cache";
    }
    return cache.empty() ? "" : cache + "/copper/" + part;
}

}  // namespace

std::string profiles_directory() {
    return cache_directory("profiles");
}

std::string statistics_directory() {
    return cache_directory("statistics");
}

std::string program_of_job() {
    for (const char* name : {"PBS_JOBNAME", "SLURM_JOB_NAME"}) {
        if (const auto job = variable(name); !job.empty()) {
            return plain_name(job);
        }
    }
    return plain_name(script_of(::getppid()));
}

std::string profile_name(const std::string& program, std::vector<std::string> trees) {
    std::sort(trees.begin(), trees.end());
    std::string all;
    for (const auto& tree : trees) {
        all += tree + '\0';
    }
    return program + "-" + fingerprint_of(all) + profile_suffix;
}

}  // namespace copper
