#include "tools/copper/launch_record.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "daemon/json_text.hpp"
#include "daemon/secure_directory.hpp"

namespace copper::cli {

namespace {

constexpr const char* record_prefix = "launch-";
constexpr const char* record_suffix = ".json";
constexpr int open_attempts_max = 8;

std::string error_text() {
    return std::strerror(errno);
}

Family family_named(const std::string& name) {
    for (int i = 0; i <= static_cast<int>(Family::unknown); ++i) {
        if (name == name_of(static_cast<Family>(i))) {
            return static_cast<Family>(i);
        }
    }
    return Family::unknown;
}

nlohmann::json to_json(const LaunchRecord& record) {
    const auto& launcher = record.launcher;
    return {{"mount", record.mount},
            {"job", record.job},
            {"batch_job", record.batch_job},
            {"pid", record.process.pid},
            {"started", record.process.started},
            {"family", name_of(launcher.family)},
            {"program", launcher.program},
            {"pmix", launcher.pmix},
            {"as_root", launcher.as_root},
            {"has_library_path", launcher.has_library_path},
            {"extra", launcher.extra},
            {"hosts", record.hosts},
            {"on_this_machine", record.on_this_machine}};
}

LaunchRecord from_json(const nlohmann::json& json) {
    LaunchRecord record;
    json.at("mount").get_to(record.mount);
    json.at("job").get_to(record.job);
    json.at("batch_job").get_to(record.batch_job);
    record.process.pid = whole_number<pid_t>(json.at("pid"));
    record.process.started = whole_number<std::uint64_t>(json.at("started"));
    record.launcher.family = family_named(json.at("family").get<std::string>());
    json.at("program").get_to(record.launcher.program);
    json.at("pmix").get_to(record.launcher.pmix);
    json.at("as_root").get_to(record.launcher.as_root);
    json.at("has_library_path").get_to(record.launcher.has_library_path);
    json.at("extra").get_to(record.launcher.extra);
    json.at("hosts").get_to(record.hosts);
    record.on_this_machine = whole_number<std::uint32_t>(json.at("on_this_machine"));
    return record;
}

std::optional<LaunchRecord> read_record(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return parse_launch_record(text.str());
}

// Everything below it is read only after this: nobody else can have put it there.
bool is_private(uid_t user) {
    return open_private_directory(AT_FDCWD, private_directory(user), user, Missing::refuse).has_value();
}

}  // namespace

std::string to_text(const LaunchRecord& record) {
    return to_json(record).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<LaunchRecord> parse_launch_record(std::string_view text) {
    try {
        return from_json(parse_json(text));
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

std::string private_directory(uid_t user) {
    return "/tmp/copper-" + std::to_string(user);
}

std::string scratch_directory(uid_t user) {
    return private_directory(user) + "/scratch";
}

Result<void> make_private_directory(uid_t user) {
    auto opened = open_private_directory(AT_FDCWD, private_directory(user), user, Missing::make);
    if (!opened) {
        return failed(opened.error());
    }
    return {};
}

LaunchFiles launch_files(uid_t user, const std::string& mount) {
    const auto hash = std::filesystem::path(instance_directory(user, mount)).filename().string();
    const auto stem = private_directory(user) + "/" + record_prefix + hash;
    return {.record = stem + record_suffix, .log = stem + ".log", .hosts = stem + ".hosts"};
}

std::vector<LaunchRecord> find_launches(uid_t user) {
    std::vector<LaunchRecord> found;
    if (!is_private(user)) {
        return found;
    }
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(private_directory(user), error)) {
        const auto name = entry.path().filename().string();
        if (name.starts_with(record_prefix) && name.ends_with(record_suffix)) {
            if (auto record = read_record(entry.path())) {
                found.push_back(std::move(*record));
            }
        }
    }
    return found;
}

std::optional<LaunchRecord> read_launch(uid_t user, const std::string& mount) {
    return is_private(user) ? read_record(launch_files(user, mount).record) : std::nullopt;
}

Result<void> write_launch(const LaunchRecord& record) {
    return write_file(launch_files(::getuid(), record.mount).record, to_text(record));
}

void remove_launch(uid_t user, const std::string& mount) {
    const auto files = launch_files(user, mount);
    for (const auto& path : {files.record, files.log, files.hosts}) {
        ::unlink(path.c_str());
    }
}

Result<UniqueFd> open_log(const std::string& path) {
    constexpr int flags = O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    const bool is_private = std::filesystem::path(path).parent_path() == private_directory(::getuid());
    for (int attempt = 1;; ++attempt) {
        if (UniqueFd fd(retry_eintr([&] { return ::open(path.c_str(), flags, 0600); })); fd) {
            return fd;
        }
        const int error = errno;
        // The end of another job may just have removed the directory, as long as it was empty.
        if (error != ENOENT || !is_private || attempt == open_attempts_max ||
            !make_private_directory(::getuid())) {
            return failed(path + ": " + std::strerror(error));
        }
    }
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
