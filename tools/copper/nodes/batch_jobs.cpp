#include "tools/copper/nodes/batch_jobs.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/processes.hpp"
#include "daemon/control/option_defaults.hpp"
#include "tools/copper/common/process.hpp"

namespace copper::cli {

namespace {

// For what takes 10 ms, before each command.
constexpr std::chrono::milliseconds attribute_patience{3000};

const std::set<std::string_view> pbs_over = {"C", "F", "X", "Q", "H", "W"};
// squeue(1), "Job state codes". Missing here: COMPLETING, CONFIGURING, REQUEUED, RESIZING, RUNNING,
// SIGNALING, STAGE_OUT, STOPPED and SUSPENDED, in which processes may be left.
const std::set<std::string_view> slurm_over = {"BOOT_FAIL", "CANCELLED",    "COMPLETED",     "DEADLINE",
                                               "FAILED",    "NODE_FAIL",    "OUT_OF_MEMORY", "PENDING",
                                               "PREEMPTED", "REQUEUE_FED",  "REQUEUE_HOLD",  "RESV_DEL_HOLD",
                                               "REVOKED",   "SPECIAL_EXIT", "TIMEOUT"};
const std::set<std::string_view> flux_over = {"INACTIVE", "DEPEND", "PRIORITY", "SCHED"};
const std::set<std::string_view> lsf_over = {"DONE", "EXIT", "PEND", "PSUSP"};

// Grid Engine has a qstat, too, and a job's PATH may lack that of PBS.
std::string pbs_qstat() {
    const char* file = std::getenv("PBS_CONF_FILE");
    std::ifstream lines(file != nullptr ? file : "/etc/pbs.conf");
    constexpr std::string_view key = "PBS_EXEC=";
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(key)) {
            const auto program = line.substr(key.size()) + "/bin/qstat";
            return find_program(program).value_or("qstat");
        }
    }
    return "qstat";
}

bool has_only(std::string_view text, std::string_view characters) {
    return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

// Another user wrote this id if root asks. PBS would ask the server behind an '@'.
bool is_plain(const std::string& job) {
    return std::ranges::all_of(job, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '[' || c == ']';
    });
}

// The number, without what names one job of an array.
std::string number_of(const std::string& job) {
    return job.substr(0, job.find_first_of(".["));
}

// A state for each line; an array's id names all its jobs.
JobLife life_of_all(const std::vector<std::string>& states, const std::set<std::string_view>& over) {
    return std::ranges::all_of(states, [&](const std::string& state) { return over.contains(state); })
               ? JobLife::over
               : JobLife::alive;
}

// {"f1", "f2"} of "f1/f2".
std::vector<std::string> jobs_of_path(const std::string& path) {
    std::vector<std::string> found;
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, '/');) {
        found.push_back(part);
    }
    return found;
}

std::vector<std::string> words_of(std::string_view text) {
    std::istringstream words{std::string(text)};
    std::vector<std::string> found;
    for (std::string word; words >> word;) {
        found.push_back(word);
    }
    return found;
}

JobLife life_in_pbs(std::string_view text) {
    if (text.find("Unknown Job Id") != std::string_view::npos ||
        text.find("Job has finished") != std::string_view::npos) {
        return JobLife::over;
    }
    const auto words = words_of(text);
    const auto name = std::ranges::find(words, "job_state");
    if (words.end() - name < 3) {
        return JobLife::unknown;
    }
    return life_of_all({name[2]}, pbs_over);
}

JobLife life_in_slurm(const std::string& job, int exit_code, std::string_view text) {
    if (exit_code != 0) {
        return text.find("Invalid job id") != std::string_view::npos ? JobLife::over : JobLife::unknown;
    }
    // The number of an array's last job is also that of the array.
    std::vector<std::string> states;
    const auto words = words_of(text);
    for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
        if (words[i] == job) {
            states.push_back(words[i + 1]);
        }
    }
    return life_of_all(states, slurm_over);
}

JobLife life_in_lsf(int exit_code, std::string_view text) {
    if (text.find("is not found") != std::string_view::npos) {
        return JobLife::over;
    }
    const auto states = words_of(text);
    return exit_code != 0 || states.empty() ? JobLife::unknown : life_of_all(states, lsf_over);
}

}  // namespace

std::optional<Scheduler> scheduler_of_this_job() {
    if (is_set("PBS_JOBID")) {
        return Scheduler::pbs;
    }
    if (is_set("SLURM_JOB_ID")) {
        return Scheduler::slurm;
    }
    if (is_set("FLUX_ENCLOSING_ID") || is_set("FLUX_JOB_ID")) {
        return Scheduler::flux;
    }
    if (is_set("LSB_JOBID")) {
        return Scheduler::lsf;
    }
    return is_set("JOB_ID") ? std::optional(Scheduler::grid_engine) : std::nullopt;
}

namespace {

// A job ends with those around it: of f1/f2, this asks about the first one in which this process is not, or
// about the job itself.
std::vector<std::string> question_of_flux(const std::string& job) {
    const auto asked = jobs_of_path(job);
    if (asked.empty() || !std::ranges::all_of(asked, [](const std::string& id) {
            return id.starts_with("f") && is_plain(id);
        })) {
        return {};
    }
    const auto around =
        is_set("FLUX_ENCLOSING_ID") ? jobs_of_path(batch_job_id()) : std::vector<std::string>();
    const auto differs = std::ranges::mismatch(around, asked).in2;
    const auto one = differs == asked.end() ? differs - 1 : differs;
    const auto parents = static_cast<std::ptrdiff_t>(around.size()) - (one - asked.begin());
    std::vector<std::string> words = {"flux"};
    words.insert(words.end(), static_cast<std::size_t>(parents), "--parent");
    words.insert(words.end(), {"jobs", "-n", "-o", "{state}", *one});
    return words;
}

}  // namespace

std::vector<std::string> question_about(Scheduler scheduler, const std::string& job) {
    constexpr std::string_view digits = "0123456789";
    const bool is_number = is_plain(job) && has_only(number_of(job), digits);
    switch (scheduler) {
        case Scheduler::pbs:
            return is_number ? std::vector<std::string>{pbs_qstat(), "-f", job} : std::vector<std::string>();
        case Scheduler::slurm:
            return has_only(job, digits) ? std::vector<std::string>{"squeue", "-h", "-o", "%A %T", "-j", job}
                                         : std::vector<std::string>();
        case Scheduler::flux:
            return question_of_flux(job);
        case Scheduler::lsf:
            return is_number ? std::vector<std::string>{"bjobs", "-noheader", "-o", "stat", job}
                             : std::vector<std::string>();
        case Scheduler::grid_engine:
            return is_number ? std::vector<std::string>{"qstat", "-j", number_of(job)}
                             : std::vector<std::string>();
    }
    return {};
}

JobLife life_from(Scheduler scheduler, const std::string& job, int exit_code, std::string_view text) {
    switch (scheduler) {
        case Scheduler::pbs:
            return life_in_pbs(text);
        case Scheduler::slurm:
            return life_in_slurm(job, exit_code, text);
        case Scheduler::flux: {
            const auto states = words_of(text);
            return exit_code != 0 || states.size() != 1 ? JobLife::unknown : life_of_all(states, flux_over);
        }
        case Scheduler::lsf:
            return life_in_lsf(exit_code, text);
        case Scheduler::grid_engine:
            return exit_code == 0                                        ? JobLife::alive
                   : text.find("do not exist") != std::string_view::npos ? JobLife::over
                                                                         : JobLife::unknown;
    }
    return JobLife::unknown;
}

namespace {

// What a user has set for squeue's output (squeue(1), "Input environment variables"): a filter, or another
// cluster, would hide a live job.
std::set<std::string> filters() {
    std::set<std::string> names = {"SLURM_CLUSTERS"};
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text = *variable;
        if (text.starts_with("SQUEUE_")) {
            names.emplace(text.substr(0, text.find('=')));
        }
    }
    return names;
}

}  // namespace

JobAnswer ask_about_job(std::optional<Scheduler> scheduler, const std::string& job,
                        std::chrono::milliseconds patience) {
    const auto words = scheduler ? question_about(*scheduler, job) : std::vector<std::string>();
    if (words.empty()) {
        return {.life = JobLife::unknown,
                .reason = "whether job " + job + " still runs is unknown: it is no job of this batch system"};
    }
    const auto unknown = [&](const std::string& why) {
        return JobAnswer{
            .life = JobLife::unknown,
            .reason = "whether job " + job + " still runs is unknown: " + words.front() + ": " + why};
    };
    if (patience.count() <= 0) {
        return unknown("does not answer in time");
    }
    const auto output = capture(words, patience, filters());
    if (!output) {
        return unknown(output.error().reason);
    }
    const int exit_code = WIFEXITED(output->status) ? WEXITSTATUS(output->status) : -1;
    switch (const auto life = life_from(*scheduler, job, exit_code, output->text); life) {
        case JobLife::over:
            return {.life = life, .reason = "job " + job + " is over"};
        case JobLife::alive:
            return {.life = life, .reason = "job " + job + " still runs"};
        case JobLife::unknown:
            break;
    }
    return unknown(output->text.substr(0, output->text.find('\n')));
}

namespace {

// What the Flux of this process says of itself, if it does.
void set_from_flux(const char* variable, const char* attribute) {
    const auto output = capture({"flux", "getattr", attribute}, attribute_patience);
    const auto words = words_of(output && succeeded(*output) ? output->text : std::string());
    if (words.size() == 1) {
        ::setenv(variable, words.front().c_str(), 1);
    } else {
        ::unsetenv(variable);
    }
}

}  // namespace

void enter_flux_job() {
    const char* uri = std::getenv("FLUX_URI");
    if (uri == nullptr || is_set("FLUX_JOB_ID")) {
        return;
    }
    // flux-proxy(1) makes its socket in a directory of its own.
    const bool is_in_proxy = std::string_view(uri).find("/flux-proxy-") != std::string_view::npos;
    set_from_flux("FLUX_JOB_ID_PATH", "jobid-path");
    if (is_in_proxy) {
        set_from_flux("FLUX_ENCLOSING_ID", "jobid");
    }
}

const JobAnswer& JobQuestions::ask(const std::string& job) {
    const auto [answer, is_new] = answers_.try_emplace(job);
    if (is_new) {
        const auto begin = std::chrono::steady_clock::now();
        answer->second = ask_about_job(scheduler_of_this_job(), job, left_);
        left_ -=
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    }
    return answer->second;
}

}  // namespace copper::cli
