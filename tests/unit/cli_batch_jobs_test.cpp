#include "tools/copper/nodes/batch_jobs.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "daemon/control/option_defaults.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper::cli {
namespace {

JobLife pbs(int exit_code, std::string_view text) {
    return life_from(Scheduler::pbs, "17.server", exit_code, text);
}
JobLife slurm(int exit_code, std::string_view text) {
    return life_from(Scheduler::slurm, "17", exit_code, text);
}
JobLife flux(int exit_code, std::string_view text) {
    return life_from(Scheduler::flux, "f2oL", exit_code, text);
}
JobLife lsf(int exit_code, std::string_view text) {
    return life_from(Scheduler::lsf, "17", exit_code, text);
}
JobLife grid_engine(int exit_code, std::string_view text) {
    return life_from(Scheduler::grid_engine, "17", exit_code, text);
}

TEST(BatchJobs, AJobIsOverOnlyIfTheBatchSystemSaysSo) {
    EXPECT_EQ(pbs(153, "qstat: Unknown Job Id 17.server\n"), JobLife::over);
    EXPECT_EQ(
        pbs(35, "qstat: 17.server Job has finished, use -x or -H to obtain historical job information\n"),
        JobLife::over);
    EXPECT_EQ(pbs(0, "Job Id: 17.server\n    Job_Name = a\n    job_state = R\n"), JobLife::alive);
    EXPECT_EQ(pbs(0, "Job Id: 17.server\n    job_state = E\n"), JobLife::alive);
    EXPECT_EQ(pbs(0, "Job Id: 17.server\n    job_state = C\n"), JobLife::over);  // TORQUE
    EXPECT_EQ(pbs(0, "Job Id: 17[2].server\n    job_state = X\n"), JobLife::over);
    EXPECT_EQ(pbs(255, "Connection refused\nqstat: cannot connect to server\n"), JobLife::unknown);
    EXPECT_EQ(pbs(0, ""), JobLife::unknown);

    EXPECT_EQ(slurm(1, "slurm_load_jobs error: Invalid job id specified\n"), JobLife::over);
    EXPECT_EQ(slurm(0, ""), JobLife::over);
    EXPECT_EQ(slurm(0, "17 RUNNING\n"), JobLife::alive);
    EXPECT_EQ(slurm(0, "17 COMPLETING\n"), JobLife::alive);
    EXPECT_EQ(slurm(0, "17 SUSPENDED\n"), JobLife::alive);
    EXPECT_EQ(slurm(0, "17 CANCELLED\n"), JobLife::over);
    EXPECT_EQ(slurm(0, "17 PENDING\n"), JobLife::over) << "put back into the queue";
    for (const auto* state :
         {"BOOT_FAIL", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REQUEUE_FED",
          "REQUEUE_HOLD", "RESV_DEL_HOLD", "REVOKED", "SPECIAL_EXIT", "TIMEOUT"}) {
        EXPECT_EQ(slurm(0, std::string("17 ") + state + "\n"), JobLife::over) << state;
    }
    for (const auto* state :
         {"CONFIGURING", "REQUEUED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "NEW_STATE"}) {
        EXPECT_EQ(slurm(0, std::string("17 ") + state + "\n"), JobLife::alive) << state;
    }
    EXPECT_EQ(slurm(0, "18 RUNNING\n19 RUNNING\n"), JobLife::over) << "others of its array";
    EXPECT_EQ(slurm(1, "slurm_load_jobs error: Unable to contact slurm controller\n"), JobLife::unknown);

    EXPECT_EQ(flux(0, "RUN\n"), JobLife::alive);
    EXPECT_EQ(flux(0, "CLEANUP\n"), JobLife::alive);
    EXPECT_EQ(flux(0, "INACTIVE\n"), JobLife::over);
    EXPECT_EQ(flux(1, "flux-jobs: ERROR: JobID f2oL unknown\n"), JobLife::unknown) << "of another instance";

    EXPECT_EQ(lsf(0, "RUN\n"), JobLife::alive);
    EXPECT_EQ(lsf(0, "EXIT\n"), JobLife::over);
    EXPECT_EQ(lsf(255, "Job <17> is not found\n"), JobLife::over);
    EXPECT_EQ(lsf(255, "Failed in LSF library call\n"), JobLife::unknown);

    EXPECT_EQ(grid_engine(0, "====\njob_number: 17\n"), JobLife::alive);
    EXPECT_EQ(grid_engine(1, "Following jobs do not exist: \n17\n"), JobLife::over);
    EXPECT_EQ(grid_engine(1, "error: unable to contact qmaster\n"), JobLife::unknown);
}

TEST(BatchJobs, OnlyIdsOfTheSameBatchSystemAreAskedFor) {
    EXPECT_EQ(question_about(Scheduler::slurm, "17").back(), "17");
    EXPECT_TRUE(question_about(Scheduler::slurm, "17.server").empty());
    EXPECT_TRUE(question_about(Scheduler::slurm, "--all").empty());
    EXPECT_EQ(question_about(Scheduler::pbs, "17[2].server").back(), "17[2].server");
    EXPECT_TRUE(question_about(Scheduler::pbs, "f2oL").empty());
    EXPECT_EQ(question_about(Scheduler::flux, "f2oL").back(), "f2oL");
    EXPECT_TRUE(question_about(Scheduler::flux, "17").empty());
    EXPECT_EQ(question_about(Scheduler::lsf, "17[2]").back(), "17[2]");
    EXPECT_EQ(question_about(Scheduler::grid_engine, "17.2").back(), "17");
    EXPECT_TRUE(question_about(Scheduler::grid_engine, "x").empty());
}

class FluxJobs : public testing::Test {
  protected:
    ~FluxJobs() override { enter({}); }

    static void enter(const std::map<std::string, std::string>& variables) {
        for (const char* name : {"FLUX_ENCLOSING_ID", "FLUX_JOB_ID", "FLUX_JOB_ID_PATH"}) {
            const auto variable = variables.find(name);
            variable == variables.end() ? ::unsetenv(name) : ::setenv(name, variable->second.c_str(), 1);
        }
    }
    static std::string job_of(const std::map<std::string, std::string>& variables) {
        enter(variables);
        return batch_job_id();
    }
    // Without what follows the options of flux(1).
    static std::string asked_about(const std::string& job) {
        std::string text;
        for (const auto& word : question_about(Scheduler::flux, job)) {
            text += word == "-n" || word == "-o" || word == "{state}" ? "" : word + " ";
        }
        return text;
    }
};

TEST_F(FluxJobs, ArePaths) {
    EXPECT_EQ(job_of({{"FLUX_ENCLOSING_ID", "f2b"}}), "f2b");
    EXPECT_EQ(job_of({{"FLUX_ENCLOSING_ID", "f2b"}, {"FLUX_JOB_ID_PATH", "/f1a/f2b"}}), "f1a/f2b");
    EXPECT_EQ(job_of({{"FLUX_JOB_ID", "f3"}, {"FLUX_JOB_ID_PATH", "/f1a/f2b/f3"}}), "f1a/f2b");
    EXPECT_EQ(job_of({{"FLUX_JOB_ID", "f3"}, {"FLUX_JOB_ID_PATH", "/f3"}}), "f3")
        << "a run in the site's Flux";
    EXPECT_EQ(job_of({{"FLUX_ENCLOSING_ID", "f2b"}, {"FLUX_JOB_ID_PATH", "/"}}), "f2b");
}

TEST_F(FluxJobs, AreTheSameInEachLocale) {
    EXPECT_EQ(job_of({{"FLUX_ENCLOSING_ID", "\u01922b"}}), "f2b");
    EXPECT_EQ(job_of({{"FLUX_ENCLOSING_ID", "f2b"}, {"FLUX_JOB_ID_PATH", "/\u01921a/\u01922b"}}), "f1a/f2b");
}

TEST_F(FluxJobs, AreAskedForWhereTheyRun) {
    enter({{"FLUX_ENCLOSING_ID", "f2b"}, {"FLUX_JOB_ID_PATH", "/f1a/f2b"}});
    EXPECT_EQ(asked_about("f1a/f2b/f4"), "flux jobs f4 ");
    EXPECT_EQ(asked_about("f1a/f9"), "flux --parent jobs f9 ");
    EXPECT_EQ(asked_about("f8/f9"), "flux --parent --parent jobs f8 ") << "f9 ends with it";
    EXPECT_EQ(asked_about("f1a/f2b"), "flux --parent jobs f2b ")
        << "a daemon asks whether its own job is over";
    EXPECT_EQ(asked_about("f1a"), "flux --parent --parent jobs f1a ");
    enter({});
    EXPECT_EQ(asked_about("f8/f9"), "flux jobs f8 ");
    EXPECT_EQ(asked_about("f8/-a"), "");
    EXPECT_EQ(asked_about("f8/"), "flux jobs f8 ");
    EXPECT_EQ(asked_about("/f8"), "");
}

TEST(BatchJobs, AllQuestionsTogetherHaveOneTimeLimit) {
    const test::TemporaryDirectory directory;
    const auto program = directory.path() + "/squeue";
    std::ofstream(program) << "#!/bin/sh\necho >>\"$0.asked\"\nexec sleep 30\n";
    ::chmod(program.c_str(), 0755);
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (directory.path() + ":" + path).c_str(), 1);
    ::setenv("SLURM_JOB_ID", "1", 1);
    const auto begin = std::chrono::steady_clock::now();
    JobQuestions questions(std::chrono::milliseconds(300));
    for (int job = 10; job < 40; ++job) {
        const auto& answer = questions.ask(std::to_string(job));
        EXPECT_EQ(answer.life, JobLife::unknown);
        EXPECT_NE(answer.reason.find("whether job " + std::to_string(job) + " still runs is unknown: squeue"),
                  std::string::npos)
            << answer.reason;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(questions.answers().size(), 30U);
    EXPECT_EQ(std::filesystem::file_size(program + ".asked"), 1U);
    ::unsetenv("SLURM_JOB_ID");
    ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace copper::cli
