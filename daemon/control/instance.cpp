#include "daemon/control/instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error_text.hpp"
#include "base/json_text.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/fingerprint.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/private_directory.hpp"
#include "daemon/control/python_module.hpp"

namespace copper {
namespace {

constexpr const char* record_name = "record.json";
constexpr const char* new_suffix = ".new";
constexpr const char* socket_name = "control";
constexpr const char* lock_name = "lock";
constexpr const char* python_name = "python";
constexpr std::uint64_t room_bytes_min = 16U << 20;
constexpr std::uint64_t room_files_min = 256;
constexpr std::size_t record_bytes_max = 1U << 20;
// `copper stop` may remove a dead instance while this daemon claims it; so many tries.
constexpr int claim_attempts_max = 8;

// The private directory that contains an instance's directory.
std::string base_of(const std::string& directory) {
    return std::filesystem::path(directory).parent_path();
}

bool is_name_of_instance(std::string_view name) {
    return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

nlohmann::json to_json(const InstanceRecord& record) {
    return {{"mount", record.mount},
            {"pid", record.pid},
            {"pid_started", record.pid_started},
            {"supervisor", record.supervisor},
            {"supervisor_started", record.supervisor_started},
            {"is_alone", record.is_alone},
            {"user", record.user},
            {"job", record.job},
            {"batch_job", record.batch_job},
            {"batch_run", record.batch_run},
            {"launch", record.launch},
            {"rank", record.rank},
            {"nodes", record.nodes},
            {"trees", record.trees},
            {"has_default_trees", record.has_default_trees},
            {"made_directories", record.made_directories},
            {"run_everywhere", record.run_everywhere},
            {"log_dir", record.log_dir},
            {"no_view", record.no_view},
            {"without_mirror", record.without_mirror}};
}

InstanceRecord record_from(const nlohmann::json& json) {
    InstanceRecord record;
    json.at("mount").get_to(record.mount);
    record.pid = whole_number<pid_t>(json.at("pid"));
    record.pid_started = whole_number<std::uint64_t>(json.at("pid_started"));
    record.supervisor = whole_number<pid_t>(json.at("supervisor"));
    record.supervisor_started = whole_number<std::uint64_t>(json.at("supervisor_started"));
    json.at("is_alone").get_to(record.is_alone);
    record.user = whole_number<uid_t>(json.at("user"));
    json.at("job").get_to(record.job);
    json.at("batch_job").get_to(record.batch_job);
    record.rank = whole_number<std::uint32_t>(json.at("rank"));
    record.nodes = whole_number<std::uint32_t>(json.at("nodes"));
    json.at("trees").get_to(record.trees);
    json.at("made_directories").get_to(record.made_directories);
    json.at("run_everywhere").get_to(record.run_everywhere);
    // Earlier versions have none.
    record.has_default_trees = json.value("has_default_trees", false);
    record.log_dir = json.value("log_dir", "");
    record.no_view = json.value("no_view", "");
    record.without_mirror = json.value("without_mirror", false);
    record.launch = json.value("launch", "");
    record.batch_run = json.value("batch_run", "");
    return record;
}

bool write_whole(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t put = retry_eintr([&] { return ::write(fd, text.data(), text.size()); });
        if (put <= 0) {
            return false;
        }
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
}

// Writes the file atomically: nobody can read half of it.
bool write_file(int directory, const std::string& name, std::string_view text) {
    const std::string draft = name + new_suffix;
    const UniqueFd file(
        ::openat(directory, draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    return file && write_whole(file.get(), text) &&
           ::renameat(directory, draft.c_str(), directory, name.c_str()) == 0;
}

tl::expected<void, std::string> write_record(int directory, const InstanceRecord& record) {
    if (!write_file(directory, record_name, to_text(record))) {
        return tl::make_unexpected("cannot write the instance record: " + error_text());
    }
    return {};
}

tl::expected<void, std::string> write_python_module(int directory) {
    const auto python = open_private_directory(directory, python_name, ::geteuid(), Missing::make);
    if (!python) {
        return tl::make_unexpected(python.error());
    }
    if (!write_file(python->get(), "sitecustomize.py", python_module_text)) {
        return tl::make_unexpected("cannot write the Python module: " + error_text());
    }
    return {};
}

struct Opened {
    UniqueFd base;
    UniqueFd directory;
};

// Checks that both levels belong to the user, so that root can act on them safely.
tl::expected<Opened, std::string> open_instance(const std::string& directory, Missing missing) {
    const auto user = owner_named_by(base_of(directory));
    if (!user) {
        return tl::make_unexpected(directory + ": not an instance directory");
    }
    auto base = open_private_directory(AT_FDCWD, base_of(directory), *user, missing);
    if (!base) {
        return tl::make_unexpected(base.error());
    }
    auto inner =
        open_private_directory(base->get(), std::filesystem::path(directory).filename(), *user, missing);
    if (!inner) {
        return tl::make_unexpected(inner.error());
    }
    return Opened{.base = std::move(*base), .directory = std::move(*inner)};
}

// The lock. Nothing if the directory or its lock vanished meanwhile: try again.
tl::expected<std::optional<UniqueFd>, std::string> lock_instance(int directory,
                                                                 Instance::Predecessor predecessor) {
    UniqueFd lock(::openat(directory, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!lock) {
        if (errno == ENOENT) {
            return std::nullopt;
        }
        return tl::make_unexpected("cannot make the lock file: " + error_text());
    }
    if (retry_eintr([&] { return ::flock(lock.get(), LOCK_EX | LOCK_NB); }) != 0) {
        if (predecessor == Instance::Predecessor::killed) {
            ::unlinkat(directory, lock_name, 0);
            return std::nullopt;
        }
        return tl::make_unexpected(error_text());
    }
    struct stat held = {};
    struct stat named = {};
    if (::fstat(lock.get(), &held) != 0 ||
        ::fstatat(directory, lock_name, &named, AT_SYMLINK_NOFOLLOW) != 0 || held.st_ino != named.st_ino) {
        return std::nullopt;
    }
    return lock;
}

}  // namespace

std::string mount_flag(const std::string& mount) {
    return mount == canonical_mount(default_mount()) ? "" : " --mount " + shell_quote(mount);
}

std::string stop_command(const std::string& mount, StopSpan span) {
    return std::string("'copper stop") + (span == StopSpan::this_node ? " --local" : "") + mount_flag(mount) +
           "'";
}

std::string stop_command_for(const std::string& batch_job, const std::string& mount) {
    return "'copper stop --batch-job " + shell_quote(batch_job) + mount_flag(mount) + "'";
}

bool are_different_jobs(const std::string& one, const std::string& other) {
    return !one.empty() && !other.empty() && one != other;
}

bool is_within_job(const std::string& inner, const std::string& job) {
    return !job.empty() && is_within(inner, job);
}

bool is_earlier_run(const std::string& run, const std::string& own_run) {
    return !run.empty() && !own_run.empty() && own_run != batch_job_first_run && run != own_run;
}

std::string already_served(const InstanceRecord& served, const std::string& batch_job) {
    const std::string text = served.mount + ": already served, by process " + std::to_string(served.pid);
    if (served.batch_job.empty() || served.batch_job == batch_job) {
        return text + "; end it with " + stop_command(served.mount);
    }
    const std::string elsewhere =
        "give this job another place with --mount DIR (and COPPER_MOUNT=DIR for the other commands), or ";
    return is_within_job(batch_job, served.batch_job)
               ? text + ", for job " + served.batch_job + " around this one; " + elsewhere + "use that mirror"
               : text + ", for job " + served.batch_job + "; " + elsewhere + "end that mirror with " +
                     stop_command_for(served.batch_job, served.mount);
}

std::string to_text(const InstanceRecord& record) {
    return json_line(to_json(record));
}

std::optional<InstanceRecord> parse_instance_record(std::string_view text) {
    return read_json(text, record_from);
}

tl::expected<void, std::string> check_room() {
    struct statvfs tmp = {};
    if (::statvfs("/tmp", &tmp) != 0) {
        return {};
    }
    const auto bytes = tmp.f_bavail * tmp.f_frsize;
    const bool has_files = tmp.f_files == 0 || tmp.f_favail >= room_files_min;  // 0: without a limit
    if (bytes >= room_bytes_min && has_files) {
        return {};
    }
    const auto left = has_files ? std::to_string(bytes) + " bytes" : std::to_string(tmp.f_favail) + " files";
    return tl::make_unexpected("/tmp: no space left (" + left +
                               "; a daemon and its MPI need some): remove what is not needed there");
}

std::string name_of_instance(const std::string& mount) {
    return fingerprint_of(mount);
}

std::string instance_directory(uid_t user, const std::string& mount) {
    const std::string name = name_of_instance(mount);
    std::optional<std::string> first;
    for (const auto& base : private_directories(user)) {
        struct stat found = {};
        const std::string directory = base.path + "/" + name;
        if (::lstat(directory.c_str(), &found) != 0) {
            continue;
        }
        if (const auto record = read_instance(directory); record && is_running(*record)) {
            return directory;
        }
        first = first.value_or(directory);
    }
    return first.value_or(private_directory(user) + "/" + name);
}

std::string python_module_directory(uid_t user, const std::string& mount) {
    return instance_directory(user, mount) + "/" + python_name;
}

std::string scratch_directory(uid_t user, const std::string& mount) {
    return base_of(instance_directory(user, mount)) + "/" + scratch_name;
}

tl::expected<Instance, std::string> Instance::claim(InstanceRecord record, const std::string& base,
                                                    Predecessor predecessor) {
    const std::string directory = base + "/" + name_of_instance(record.mount);
    for (int attempt = 0; attempt < claim_attempts_max; ++attempt) {
        if (const auto made = make_private_directory(base); !made) {
            return tl::make_unexpected(made.error());
        }
        auto opened = open_instance(directory, Missing::make);
        if (!opened) {
            return tl::make_unexpected(opened.error());
        }
        auto lock = lock_instance(opened->directory.get(), predecessor);
        if (!lock) {
            const auto served = read_instance(directory);
            return tl::make_unexpected(served ? already_served(*served, record.batch_job)
                                              : record.mount + ": already served");
        }
        if (!*lock) {
            continue;
        }
        ::unlinkat(opened->directory.get(), socket_name, 0);  // left by a daemon that was killed
        auto written = write_record(opened->directory.get(), record);
        if (written) {
            written = write_python_module(opened->directory.get());
        }
        if (!written) {
            return tl::make_unexpected(directory + ": " + written.error());
        }
        return Instance(directory, std::move(**lock));
    }
    return tl::make_unexpected(record.mount + ": another process keeps removing its record");
}

Instance::Instance(Instance&& other) noexcept
    : directory_(std::exchange(other.directory_, {})), lock_(std::move(other.lock_)) {}

tl::expected<void, std::string> Instance::update(const InstanceRecord& record) {
    return open_instance(directory_, Missing::refuse).and_then([&record](const Opened& opened) {
        return write_record(opened.directory.get(), record);
    });
}

Instance::~Instance() {
    if (!directory_.empty()) {
        remove_instance(directory_);
    }
}

std::optional<InstanceRecord> read_instance(const std::string& directory) {
    const auto opened = open_instance(directory, Missing::refuse);
    if (!opened) {
        return std::nullopt;
    }
    const auto text = read_regular_file(opened->directory.get(), record_name, record_bytes_max);
    return text ? parse_instance_record(*text) : std::nullopt;
}

std::vector<std::string> find_instances(uid_t user) {
    std::vector<std::string> found;
    for (const auto& base : private_directories(user)) {
        std::error_code unreadable;
        for (const auto& inner : std::filesystem::directory_iterator(base.path, unreadable)) {
            // A mount point may lie here, too, which must not be opened: its daemon may hang.
            if (is_name_of_instance(inner.path().filename().string()) &&
                open_instance(inner.path(), Missing::refuse)) {
                found.push_back(inner.path());
            }
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

bool is_running(const InstanceRecord& record) {
    return is_running(record.pid, record.pid_started) ||
           is_running(record.supervisor, record.supervisor_started);
}

std::optional<InstanceRecord> find_live_instance(uid_t user, const std::string& mount) {
    auto record = read_instance(instance_directory(user, mount));
    return record && is_running(record->pid, record->pid_started) ? record : std::nullopt;
}

void remove_instance(const std::string& directory) {
    const auto opened = open_instance(directory, Missing::refuse);
    if (!opened) {
        return;
    }
    // Includes files that Python may have compiled there. Named by the open directory, so that it is the
    // checked one.
    const auto held = "/proc/self/fd/" + std::to_string(opened->directory.get());
    std::error_code error;
    std::filesystem::remove_all(std::filesystem::path(held) / python_name, error);
    // The lock goes last: until then, nobody else can claim the directory.
    for (const std::string& name : {std::string(socket_name), std::string(record_name),
                                    std::string(record_name) + new_suffix, std::string(lock_name)}) {
        ::unlinkat(opened->directory.get(), name.c_str(), 0);
    }
    ::unlinkat(opened->base.get(), std::filesystem::path(directory).filename().c_str(), AT_REMOVEDIR);
}

}  // namespace copper
