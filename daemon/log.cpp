#include "daemon/log.hpp"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/host_name.hpp"
#include "base/own_files.hpp"

namespace copper {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::none:
            return spdlog::level::off;
        case LogLevel::fatal:
            return spdlog::level::critical;
        case LogLevel::error:
            return spdlog::level::err;
        case LogLevel::warning:
            return spdlog::level::warn;
        case LogLevel::info:
            return spdlog::level::info;
        case LogLevel::debug:
            return spdlog::level::debug;
    }
    return spdlog::level::warn;
}

}  // namespace

tl::expected<void, std::string> start_log(const DaemonOptions& options) {
    const std::string& directory = options.log_dir;
    try {
        std::vector<spdlog::sink_ptr> sinks;
        if (directory.empty() || options.log_to_output) {
            sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
        }
        if (!directory.empty()) {
            std::filesystem::create_directories(directory);
            const auto name =
                directory + "/" + host_name() + "-" + std::to_string(::getpid()) + "-output.log";
            const auto file = open_own_file(AT_FDCWD, name, 0666);
            if (!file) {
                return tl::make_unexpected("cannot write the log: " + file.error());
            }
            // Opens the same file again.
            sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path_of(*file)));
        }
        auto logger = std::make_shared<spdlog::logger>("copperd", sinks.begin(), sinks.end());
        logger->set_level(spdlog_level(options.log_level));
        logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n[%P] %l: %v");
        logger->flush_on(spdlog::level::info);
        spdlog::set_default_logger(std::move(logger));
    } catch (const std::exception& error) {  // from spdlog or std::filesystem
        return tl::make_unexpected(directory + ": cannot write the log there: " + error.what());
    }
    return {};
}

}  // namespace copper
