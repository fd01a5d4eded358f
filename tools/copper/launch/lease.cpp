#include "tools/copper/launch/lease.hpp"

#include "tools/copper/nodes/batch_jobs.hpp"
#include "tools/copper/nodes/everywhere.hpp"

namespace copper::cli {

namespace {

constexpr std::chrono::seconds patience{30};

}  // namespace

bool is_over(const std::string& job) {
    return ask_about_job(Scheduler::pbs, job, patience).life == JobLife::over;
}

std::vector<std::string> lease_of(const Launcher& launcher, const std::string& batch_job) {
    const bool is_needed = scheduler_of_this_job() == Scheduler::pbs && has_remote_shell(launcher.family) &&
                           !question_about(Scheduler::pbs, batch_job).empty();
    return is_needed ? std::vector<std::string>{own_program(), std::string(if_over_command), batch_job,
                                                "stop", "--batch-job=" + batch_job}
                     : std::vector<std::string>();
}

}  // namespace copper::cli
