// Asks the batch system whether another job still runs.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

// A job is over if none of its processes can be running: it has ended, or waits to start again.
enum class JobLife { over, alive, unknown };

struct JobAnswer {
    JobLife life = JobLife::unknown;
    std::string reason = {};  // in words, for a message
};

enum class Scheduler { pbs, slurm, flux, lsf, grid_engine };
// By the variable that names this process's job, as batch_job_id() chooses.
std::optional<Scheduler> scheduler_of_this_job();

// `scheduler`: the job's, if known.
JobAnswer ask_about_job(std::optional<Scheduler> scheduler, const std::string& job,
                        std::chrono::milliseconds patience);

// Asks the batch system of this process's job about other jobs, once about each. All questions together take
// at most `patience`: a batch system that hangs holds up no clean-up of many jobs.
class JobQuestions {
  public:
    explicit JobQuestions(std::chrono::milliseconds patience = std::chrono::seconds(10)) : left_(patience) {}
    const JobAnswer& ask(const std::string& job);
    const std::map<std::string, JobAnswer>& answers() const { return answers_; }

  private:
    std::chrono::milliseconds left_;
    std::map<std::string, JobAnswer> answers_;
};

// Sets FLUX_JOB_ID_PATH, and FLUX_ENCLOSING_ID in the shell of `flux proxy`, for batch_job_id() of this
// process and its children: a script's own variables do not tell which jobs are around its job, and those of
// that shell come from outside the job that it reaches.
void enter_flux_job();

// The command that asks about a job; empty if this is no id of a job there.
std::vector<std::string> question_about(Scheduler scheduler, const std::string& job);
// From what that command printed on both streams, and its exit code. Says "over" only where the batch system
// does.
JobLife life_from(Scheduler scheduler, const std::string& job, int exit_code, std::string_view text);

}  // namespace copper::cli
