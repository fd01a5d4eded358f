#include "tools/copper/stop/cleanup.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error_text.hpp"
#include "base/fuse_access.hpp"
#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/unique_fd.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"

namespace copper::cli {

namespace {

using std::chrono::milliseconds;

// For a daemon to unmount and exit after it was told to, and then for its launcher.
constexpr milliseconds sigterm_patience{5000};
constexpr milliseconds unmount_patience{10000};
// For root's clean-up of one user.
constexpr milliseconds user_patience{60000};

bool names(const CleanScope& scope, const std::string& mount) {
    return !scope.mount || mount == *scope.mount || local_node(mount, *scope.mount);
}

// An instance or a launch.
template <typename Record>
bool is_of_other_job(const CleanScope& scope, const Record& record) {
    return are_different_jobs(record.batch_job, scope.batch_job.value_or("")) &&
           !scope.jobs_over.contains(record.batch_job);
}

template <typename Record>
bool is_of_others(const CleanScope& scope, const Record& record) {
    return is_of_other_job(scope, record) ||
           (!scope.launch.empty() && !record.launch.empty() && record.launch != scope.launch);
}

// Ends the kernel's connection to the daemon. A daemon without a record that serves this mount, and processes
// that wait for it, then get an error at once. Best effort: it needs fusectl, and does nothing that
// unmounting would not do.
void abort_connection(const CopperMount& mount) {
    std::ofstream("/sys/fs/fuse/connections/" + mount.minor + "/abort") << "1";
}

std::string mount_id_of(int fd) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
    for (std::string key, value; info >> key >> value;) {
        if (key == "mnt_id:") {
            return value;
        }
    }
    return {};
}

// A user may be able to change the path. So it is opened once, compared with the intended mount, and
// unmounted by descriptor. O_PATH does not ask the daemon, so a dead one does not matter.
std::string unmount_as_root(const CopperMount& mount) {
    const UniqueFd fd(::open(mount.point.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
        return error_text();
    }
    if (mount_id_of(fd.get()) != mount.id) {
        return "something else is there now";
    }
    const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
    return ::umount2(link.c_str(), MNT_DETACH) == 0 ? std::string() : error_text();
}

std::string unmount_as_user(const CopperMount& mount) {
    const auto output = capture({fuse_helper, "-u", "-z", "--", mount.point}, unmount_patience);
    if (!output) {
        return output.error().reason;
    }
    return succeeded(*output) ? std::string() : output->text.substr(0, output->text.find('\n'));
}

void unmount(const CopperMount& mount, CleanReport& report) {
    abort_connection(mount);
    const auto problem = ::geteuid() == 0 ? unmount_as_root(mount) : unmount_as_user(mount);
    if (problem.empty()) {
        report.done.push_back("unmounted " + mount.point);
    } else {
        report.problems.push_back("cannot unmount " + mount.point + ": " + problem);
    }
}

// Signals all processes before it waits for the first.
void end_all(const std::vector<ProcessName>& processes, milliseconds patience, CleanReport& report) {
    std::vector<ProcessName> told;
    for (const auto& process : processes) {
        if (send_signal(process, SIGTERM)) {
            send_signal(process, SIGCONT);
            told.push_back(process);
        }
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (const auto& process : told) {
        const auto left =
            std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
        const bool ended = wait_for_end(process, left) || end_process(process, milliseconds(0));
        auto& where = ended ? report.done : report.problems;
        where.push_back((ended ? "ended process " : "process did not end: ") + std::to_string(process.pid));
    }
}

bool is_scratch(const std::string& directory) {
    return std::filesystem::path(directory).filename() == scratch_name;
}

struct Own {
    std::vector<std::string> directories;  // of instances
    std::vector<InstanceRecord> instances;
    std::vector<LaunchRecord> launches;
    std::set<std::string> spared_mounts;  // of instances and launches out of scope
};

Own find_own(const CleanScope& scope) {
    Own own;
    const uid_t user = ::geteuid();
    for (const auto& directory : find_instances(user)) {
        if (is_scratch(directory)) {
            continue;
        }
        const auto record = read_instance(directory);
        if (record &&
            (!names(scope, record->mount) || (is_of_others(scope, *record) && is_running(*record)))) {
            own.spared_mounts.insert(record->mount);
            continue;
        }
        if (record) {
            own.instances.push_back(*record);
        } else if (scope.mount && directory != instance_directory(user, *scope.mount)) {
            continue;
        }
        own.directories.push_back(directory);
    }
    for (auto& launch : find_launches()) {
        if (is_of_others(scope, launch) && is_running(launch.process)) {
            own.spared_mounts.insert(launch.mount);
        } else if (names(scope, launch.mount)) {
            own.launches.push_back(std::move(launch));
        }
    }
    return own;
}

// Daemons and their supervisors first: after them, the launcher ends without a signal.
void end_processes(const Own& own, CleanReport& report) {
    std::vector<ProcessName> daemons, launchers;
    for (const auto& instance : own.instances) {
        daemons.push_back({instance.supervisor, instance.supervisor_started});
    }
    for (const auto& instance : own.instances) {
        daemons.push_back({instance.pid, instance.pid_started});
    }
    end_all(daemons, sigterm_patience, report);
    for (const auto& launch : own.launches) {
        launchers.push_back(launch.process);
    }
    if (!own.instances.empty()) {
        for (const auto& launcher : launchers) {
            wait_for_end(launcher, daemons.empty() ? milliseconds(0) : sigterm_patience);
        }
    }
    end_all(launchers, sigterm_patience, report);
}

void remove_made_directories(const InstanceRecord& instance, CleanReport& report) {
    for (const auto& directory : instance.made_directories) {
        // Only if empty. If others have put files there, or could make the directory, it stays.
        if (!others_can_make(directory) && ::rmdir(directory.c_str()) != 0 && errno != ENOENT &&
            errno != ENOTEMPTY && errno != EEXIST) {
            report.problems.push_back("cannot remove " + directory + ": " + error_text());
        }
    }
}

// Does not follow links, and stays on one device.
void remove_below(int directory, dev_t device) {
    const UniqueFd list(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::error_code error;
    const std::filesystem::path path = "/proc/self/fd/" + std::to_string(list.get());
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
        const auto name = entry.path().filename().string();
        if (::unlinkat(directory, name.c_str(), 0) == 0) {
            continue;
        }
        const UniqueFd inner(
            ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        struct stat status = {};
        if (inner && ::fstat(inner.get(), &status) == 0 && status.st_dev == device) {
            remove_below(inner.get(), device);
            ::unlinkat(directory, name.c_str(), AT_REMOVEDIR);
        }
    }
}

// Removes the caches that programs wrote below scratch_directory() after this user's last instance is gone.
// Never if something is mounted in there.
void remove_scratch(const std::string& scratch, CleanReport& report) {
    const UniqueFd fd(::open(scratch.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status = {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_uid != ::geteuid()) {
        return;
    }
    const auto mounts = read_mounts();
    if (std::any_of(mounts.begin(), mounts.end(),
                    [&](const Mount& m) { return is_within(m.point, scratch); })) {
        report.problems.push_back(scratch + ": left alone, something is mounted there");
        return;
    }
    remove_below(fd.get(), status.st_dev);
    if (::rmdir(scratch.c_str()) == 0) {
        report.done.push_back("removed " + scratch);
    }
}

void remove_files(const Own& own, CleanReport& report) {
    for (const auto& instance : own.instances) {
        remove_made_directories(instance, report);
    }
    for (const auto& directory : own.directories) {
        remove_instance(directory);
        if (!read_instance(directory)) {
            report.done.push_back("removed " + directory);
        }
    }
    for (const auto& launch : own.launches) {
        remove_launch(launch.mount);
        report.done.push_back("removed the launch record of " + launch.mount);
    }
    if (remove_dead_launches()) {
        report.done.push_back("removed the files of a launch that was killed");
    }
    const auto rest = find_own({});
    for (const auto& directory : private_directories(::geteuid())) {
        if (rest.directories.empty() && rest.launches.empty()) {
            remove_scratch(directory.path + "/" + scratch_name, report);
        }
    }
}

// Exit codes of the child that cleans up with a user's rights. It prints all details itself.
enum ChildExit : int { child_found_nothing = 0, child_failed = 1, child_cleaned = 2 };

[[noreturn]] void clean_as(uid_t user, const CleanScope& scope) {
    const passwd* entry = ::getpwuid(user);
    const gid_t group = entry != nullptr ? entry->pw_gid : static_cast<gid_t>(user);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 ||
        ::setresuid(user, user, user) != 0 || ::chdir("/") != 0) {
        say("user " + std::to_string(user) + ": cannot take this user's rights: " + error_text());
        ::_exit(child_failed);
    }
    const auto report = clean_own(scope);
    for (const auto& line : report.done) {
        say("user " + std::to_string(user) + ": " + line);
    }
    for (const auto& line : report.problems) {
        say("user " + std::to_string(user) + ": " + line);
    }
    const int found = report.done.empty() ? child_found_nothing : child_cleaned;
    ::_exit(report.problems.empty() ? found : child_failed);
}

ChildExit clean_in_child(uid_t user, const CleanScope& scope) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        clean_as(user, scope);
    }
    if (pid < 0) {
        return child_failed;
    }
    const auto child = process_named(pid);
    if (child.started != 0 && !wait_for_end(child, user_patience)) {
        send_signal(child, SIGKILL);
    }
    int status = 0;
    retry_eintr([&] { return ::waitpid(pid, &status, 0); });
    return WIFEXITED(status) ? static_cast<ChildExit>(WEXITSTATUS(status)) : child_failed;
}

// All users who have instances or mounts here.
std::set<uid_t> users_with_copper() {
    std::set<uid_t> users;
    for (const auto& mount : copper_mounts()) {
        users.insert(mount.user);
    }
    for (const auto& directory : private_directories(std::nullopt)) {
        std::error_code error;
        if (!std::filesystem::is_empty(directory.path, error)) {  // they stay, for ever
            users.insert(directory.user);
        }
    }
    return users;
}

void clean_user(uid_t user, const CleanScope& scope, CleanReport& report) {
    if (user == ::geteuid()) {
        auto own = clean_own(scope);
        report.done.insert(report.done.end(), own.done.begin(), own.done.end());
        report.problems.insert(report.problems.end(), own.problems.begin(), own.problems.end());
        return;
    }
    auto result = clean_in_child(user, scope);
    // What the user could not do (for instance without fusermount3).
    for (const auto& mount : copper_mounts()) {
        const auto record = read_instance(instance_directory(user, mount.point));
        const bool spared = record && is_of_others(scope, *record) && is_running(*record);
        if (mount.user == user && !spared) {
            unmount(mount, report);
            result = child_failed;
        }
    }
    if (result == child_cleaned) {
        report.done.push_back("cleaned up for user " + std::to_string(user));
    } else if (result == child_failed && clean_in_child(user, scope) == child_failed) {
        report.problems.push_back("user " + std::to_string(user) + ": something is left");
    }
}

}  // namespace

std::vector<Spared> spared_mirrors(const std::optional<uid_t>& user, const CleanScope& scope) {
    std::vector<Spared> spared;
    for (const uid_t one : user ? std::set<uid_t>{*user} : users_with_copper()) {
        for (const auto& directory : find_instances(one)) {
            const auto record = read_instance(directory);
            if (record && names(scope, record->mount) && is_of_other_job(scope, *record) &&
                is_running(*record)) {
                spared.push_back({record->mount, record->batch_job});
            }
        }
    }
    // Without a daemon here: the job was launched from this node to others.
    for (const auto& launch : find_launches()) {
        const bool is_known = std::ranges::any_of(
            spared, [&](const Spared& each) { return each.batch_job == launch.batch_job; });
        if (!is_known && names(scope, launch.mount) && is_of_other_job(scope, launch) &&
            is_running(launch.process)) {
            spared.push_back({launch.mount, launch.batch_job});
        }
    }
    return spared;
}

CleanReport clean_own(const CleanScope& scope) {
    CleanReport report;
    const Own own = find_own(scope);
    end_processes(own, report);
    for (const auto& mounted : copper_mounts()) {
        if (mounted.user == ::geteuid() && names(scope, mounted.point) &&
            !own.spared_mounts.contains(mounted.point)) {
            unmount(mounted, report);
        }
    }
    remove_files(own, report);
    if (scope.mount && own.launches.empty() && !own.spared_mounts.contains(*scope.mount)) {
        remove_launch(*scope.mount);  // a log without a record
    }
    return report;
}

std::vector<std::string> clean_command(const CleanScope& scope) {
    std::vector<std::string> command = {own_program(), "stop", "--local", "--tell-host"};
    for (const auto& [option, value] :
         {std::pair("--mount", scope.mount.value_or("")),
          std::pair("--batch-job", scope.batch_job.value_or(any_job)), std::pair("--launch", scope.launch)}) {
        if (!value.empty()) {
            command.insert(command.end(), {option, value});
        }
    }
    return command;
}

CleanReport clean_users(const std::optional<uid_t>& user, const CleanScope& scope) {
    CleanReport report;
    const auto users = user ? std::set<uid_t>{*user} : users_with_copper();
    for (const uid_t one : users) {
        clean_user(one, scope, report);
    }
    return report;
}

}  // namespace copper::cli
