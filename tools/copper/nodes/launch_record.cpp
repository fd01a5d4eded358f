#include "tools/copper/nodes/launch_record.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/answer_in_time.hpp"
#include "base/error_text.hpp"
#include "base/json_text.hpp"
#include "base/own_files.hpp"
#include "daemon/control/instance.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/private_directory.hpp"

namespace copper::cli {

namespace {

constexpr const char* record_prefix = "launch-";
constexpr const char* record_suffix = ".json";
constexpr const char* lock_suffix = ".lock";
constexpr int open_attempts_max = 8;
constexpr std::chrono::seconds lock_patience{1};  // remove_dead_launches() holds it for a moment
constexpr std::size_t log_bytes_max = 64U << 20;
constexpr std::size_t record_bytes_max = 16U << 20;  // it names up to a million hosts

nlohmann::json to_json(const std::vector<Trouble>& left_out) {
    auto list = nlohmann::json::array();
    for (const auto& [host, reason, answers] : left_out) {
        list.push_back({{"host", host}, {"reason", reason}, {"answers", answers}});
    }
    return list;
}

std::vector<Trouble> left_out_from(const nlohmann::json& list) {
    std::vector<Trouble> left_out;
    for (const auto& node : list) {
        left_out.push_back({.host = node.at("host").get<std::string>(),
                            .reason = node.at("reason").get<std::string>(),
                            .answers = node.at("answers").get<bool>()});
    }
    return left_out;
}

nlohmann::json to_json(const LaunchRecord& record) {
    const auto& launcher = record.launcher;
    return {{"mount", record.mount},
            {"job", record.job},
            {"batch_job", record.batch_job},
            {"batch_run", record.batch_run},
            {"launch", record.launch},
            {"pid", record.process.pid},
            {"started", record.process.started},
            {"family", name_of(launcher.family)},
            {"program", launcher.program},
            {"mpi_plugin", launcher.mpi_plugin},
            {"as_root", launcher.as_root},
            {"has_library_path", launcher.has_library_path},
            {"extra", launcher.extra},
            {"keep_env", launcher.keep_env},
            {"components", launcher.components},
            {"hosts", record.hosts},
            {"left_out", to_json(record.left_out)},
            {"on_this_machine", record.on_this_machine},
            {"log_dir", record.log_dir}};
}

LaunchRecord from_json(const nlohmann::json& json) {
    LaunchRecord record;
    json.at("mount").get_to(record.mount);
    json.at("job").get_to(record.job);
    json.at("batch_job").get_to(record.batch_job);
    record.batch_run = json.value("batch_run", "");
    record.launch = json.value("launch", "");
    record.process.pid = whole_number<pid_t>(json.at("pid"));
    record.process.started = whole_number<std::uint64_t>(json.at("started"));
    record.launcher.family = family_named(json.at("family").get<std::string>());
    json.at("program").get_to(record.launcher.program);
    record.launcher.mpi_plugin = json.value("mpi_plugin", "");
    json.at("as_root").get_to(record.launcher.as_root);
    json.at("has_library_path").get_to(record.launcher.has_library_path);
    json.at("extra").get_to(record.launcher.extra);
    record.launcher.keep_env = json.value("keep_env", std::vector<std::string>());
    record.launcher.components = json.value("components", std::vector<std::vector<std::string>>());
    json.at("hosts").get_to(record.hosts);
    record.left_out = left_out_from(json.value("left_out", nlohmann::json::array()));
    record.on_this_machine = whole_number<std::uint32_t>(json.at("on_this_machine"));
    record.log_dir = json.value("log_dir", "");
    return record;
}

std::optional<LaunchRecord> read_record(const std::string& path) {
    const auto text = read_regular_file(AT_FDCWD, path, record_bytes_max);
    return text ? parse_launch_record(*text) : std::nullopt;
}

LaunchFiles files_in(const std::string& directory, const std::string& mount) {
    const auto stem = directory + "/" + record_prefix + name_of_instance(mount);
    return {.record = stem + record_suffix,
            .log = stem + ".log",
            .hosts = stem + ".hosts",
            .lock = stem + lock_suffix};
}

}  // namespace

Launcher launcher_from_here(const LaunchRecord& record) {
    auto launcher = record.launcher;
    if (record.batch_job != batch_job_id()) {
        launcher.other_job = record.batch_job;
    }
    return launcher;
}

std::string to_text(const LaunchRecord& record) {
    return json_line(to_json(record)) + "\n";
}

std::optional<LaunchRecord> parse_launch_record(std::string_view text) {
    return read_json(text, from_json);
}

LaunchFiles launch_files(const std::string& mount) {
    return files_in(private_directory(::geteuid()), mount);
}

std::vector<LaunchRecord> find_launches() {
    std::vector<LaunchRecord> found;
    for (const auto& directory : private_directories(::geteuid())) {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(directory.path, error)) {
            const auto name = entry.path().filename().string();
            if (name.starts_with(record_prefix) && name.ends_with(record_suffix)) {
                if (auto record = read_record(entry.path())) {
                    found.push_back(std::move(*record));
                }
            }
        }
    }
    return found;
}

std::optional<LaunchRecord> read_launch(const std::string& mount) {
    for (const auto& directory : private_directories(::geteuid())) {
        if (auto record = read_record(files_in(directory.path, mount).record)) {
            return record;
        }
    }
    return std::nullopt;
}

std::vector<std::string> launched_hosts(const std::string& mount) {
    const auto launch = read_launch(mount);
    return launch ? launch->hosts : std::vector<std::string>();
}

Result<void> write_launch(const LaunchRecord& record) {
    return write_file(launch_files(record.mount).record, to_text(record));
}

void remove_launch(const std::string& mount) {
    for (const auto& directory : private_directories(::geteuid())) {
        const auto files = files_in(directory.path, mount);
        for (const auto& path : {files.record, files.log, files.hosts}) {
            ::unlink(path.c_str());
        }
    }
}

bool remove_dead_launches() {
    bool removed = false;
    for (const auto& directory : private_directories(::geteuid())) {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(directory.path, error)) {
            auto stem = entry.path();
            stem.replace_extension();
            if (!stem.filename().string().starts_with(record_prefix) ||
                std::filesystem::exists(stem.string() + record_suffix, error)) {
                continue;
            }
            const auto lock = stem.string() + lock_suffix;
            const UniqueFd fd(::open(lock.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
            if (!fd || ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) {
                removed = ::unlink(entry.path().c_str()) == 0 || removed;
            }
        }
    }
    return removed;
}

void keep_launch_log(const std::string& mount, const std::string& log_dir) {
    const auto text = read_regular_file(AT_FDCWD, launch_files(mount).log, log_bytes_max);
    if (log_dir.empty() || !text) {
        return;
    }
    if (const auto written = write_file(log_dir + "/launch.log", *text); !written) {
        say("warning: the launcher's output is lost: " + written.error().reason);
    }
}

Result<LaunchLock> LaunchLock::take(const std::string& mount) {
    const auto path = launch_files(mount).lock;
    for (int attempt = 0; attempt < open_attempts_max; ++attempt) {
        auto fd = open_own_file(AT_FDCWD, path, 0600);
        if (!fd) {
            return failed(fd.error());
        }
        if (!lock_in_time(fd->get(), lock_patience)) {
            break;
        }
        struct stat held = {};
        struct stat named = {};
        if (::fstat(fd->get(), &held) == 0 && ::lstat(path.c_str(), &named) == 0 &&
            held.st_ino == named.st_ino) {
            return LaunchLock(path, std::move(*fd));
        }  // else its last holder has just removed it
    }
    return failed(mount + ": another 'copper launch' is starting it");
}

LaunchLock::~LaunchLock() {
    if (fd_) {
        ::unlink(path_.c_str());
    }
}

Result<UniqueFd> open_log(const std::string& path) {
    auto fd = open_own_file(AT_FDCWD, path, 0600);
    if (fd) {
        ::unlink(path.c_str());
        fd = open_own_file(AT_FDCWD, path, 0600);
    }
    return fd ? Result<UniqueFd>(std::move(*fd)) : failed(fd.error());
}

Result<void> write_file(const std::string& path, std::string_view text) {
    auto fd = open_log(path);
    if (!fd) {
        return tl::make_unexpected(fd.error());
    }
    while (!text.empty()) {
        const auto count = retry_eintr([&] { return ::write(fd->get(), text.data(), text.size()); });
        if (count < 0) {
            return failed(path + ": " + error_text());
        }
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
}

}  // namespace copper::cli
