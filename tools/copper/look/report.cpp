#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/json_text.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/metrics.hpp"
#include "daemon/control/profile_files.hpp"
#include "daemon/control/sum.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/look/page.hpp"
#include "tools/copper/look/statistics.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

struct ReportOptions {
    std::string mount;
    std::string statistics;  // a file, or a folder that has it
    std::string page = "copper-report.html";
};

Result<json> kept_statistics(std::string path) {
    if (std::error_code error; std::filesystem::is_directory(path, error)) {
        path += "/stats.json";
    }
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) {
        return failed(path + ": cannot be read (a job's 'copper stop' says where it keeps statistics)");
    }
    auto statistics = read_json(text.view(), [](const json& read) { return read; });
    return statistics ? Result<json>(std::move(*statistics)) : failed(path + ": is no JSON");
}

// The latest that `copper stop` has kept without --log-dir; empty if there are none.
std::string latest_kept() {
    std::error_code error;
    std::filesystem::path latest;
    auto time = std::filesystem::file_time_type::min();
    for (const auto& file : std::filesystem::directory_iterator(statistics_directory(), error)) {
        const auto written = file.last_write_time(error);
        if (!error && file.path().extension() == ".json" && written > time) {
            latest = file.path();
            time = written;
        }
    }
    return latest;
}

Failure with_kept(Failure failure) {
    if (const auto kept = latest_kept(); !kept.empty()) {
        failure.reason += "\n  of the job that was stopped last: 'copper report " + shell_quote(kept) + "'";
    }
    return failure;
}

Result<json> live_statistics(const std::string& flag) {
    const auto mount = mount_named(flag);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    warn_of_other_job(*mount);
    const auto found = instances_of_job(*mount);
    const auto job = ask_sum(*mount, found, reported_paths, "report");
    if (!job) {
        const bool is_over = found.empty() && !read_launch(*mount);
        return tl::make_unexpected(is_over ? with_kept(job.error()) : job.error());
    }
    return statistics_json({.job = job->job, .nodes = job->lost}, *job, job->sum);
}

Result<void> write_report(const ReportOptions& options) {
    const auto statistics =
        options.statistics.empty() ? live_statistics(options.mount) : kept_statistics(options.statistics);
    if (!statistics) {
        return tl::make_unexpected(statistics.error());
    }
    std::string page;
    try {
        page = report_page(*statistics);
    } catch (const std::exception& error) {
        return failed((options.statistics.empty() ? "the daemons' answer" : options.statistics) +
                      ": these are no statistics of Copper: " + error.what());
    }
    if (options.page == "-") {
        std::cout << page;
        return {};
    }
    return write_file(options.page, page).map([&] { std::cout << "wrote " << options.page << "\n"; });
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
    auto options = std::make_shared<ReportOptions>();
    auto* command =
        app.add_subcommand("report", "Write a page (HTML) that shows what Copper did for the job");
    auto* mount = add_mount_option(*command, options->mount);
    command
        ->add_option("statistics", options->statistics,
                     "Of a job that has ended: its --log-dir, or the file that 'copper stop' named (default: "
                     "those of the running job)")
        ->type_name("PATH")
        ->excludes(mount);
    command->add_option("-o,--output", options->page, "The file to write; - for standard output")
        ->type_name("FILE")
        ->capture_default_str();
    command->footer(
        "The page needs no network and nothing else.\n\nExamples:\n  copper report\n"
        "  copper report -o report.html ~/copper-logs/1234");
    command->callback([options, &action] { action = [options] { return write_report(*options); }; });
}

}  // namespace copper::cli
