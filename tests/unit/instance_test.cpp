#include "daemon/control/instance.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "daemon/control/private_directory.hpp"

namespace copper {
namespace {

namespace fs = std::filesystem;

// Mounts that nobody has, so that tests and daemons on this machine do not meet.
InstanceRecord a_record(const std::string& name) {
    return {.mount = "/tmp/copper-instance-test-" + std::to_string(::getpid()) + "/" + name,
            .pid = ::getpid(),
            .pid_started = start_time_of(::getpid()),
            .user = ::geteuid(),
            .job = "17",
            .batch_job = "17.server",
            .batch_run = "1",
            .launch = "5eed",
            .rank = 2,
            .nodes = 4,
            .trees = {"/lus/sw", "/home"},
            .made_directories = {"/tmp/x"},
            .run_everywhere = {"srun", "-N4"},
            .log_dir = "/home/u/logs"};
}

tl::expected<Instance, std::string> claim(const InstanceRecord& record) {
    return Instance::claim(record, usual_private_directory(::geteuid()));
}

TEST(Instance, TheRecordIsThereAsLongAsItsOwner) {
    const InstanceRecord record = a_record("a");
    std::string directory;
    {
        const auto instance = claim(record);
        ASSERT_TRUE(instance) << instance.error();
        directory = instance->directory();
        EXPECT_EQ(directory, instance_directory(::geteuid(), record.mount));
        struct stat found = {};
        ASSERT_EQ(::stat(directory.c_str(), &found), 0);
        EXPECT_EQ(found.st_mode & 0777U, 0700U);

        const auto read = find_live_instance(::geteuid(), record.mount);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->mount, record.mount);
        EXPECT_EQ(read->pid, record.pid);
        EXPECT_EQ(read->job, record.job);
        EXPECT_EQ(read->rank, record.rank);
        EXPECT_EQ(read->nodes, record.nodes);
        EXPECT_EQ(read->made_directories, record.made_directories);
        EXPECT_EQ(read->run_everywhere, record.run_everywhere);
        EXPECT_EQ(read->batch_job, record.batch_job);
        EXPECT_EQ(read->batch_run, record.batch_run);
        EXPECT_EQ(read->launch, record.launch);
        EXPECT_EQ(read->log_dir, record.log_dir);

        const auto found_all = find_instances(::geteuid());
        EXPECT_NE(std::find(found_all.begin(), found_all.end(), directory), found_all.end());
    }
    EXPECT_FALSE(fs::exists(directory));
    EXPECT_FALSE(read_instance(directory));
}

TEST(Instance, AMountHasOneLiveInstance) {
    const InstanceRecord record = a_record("b");
    auto first = claim(record);
    ASSERT_TRUE(first);
    const auto second = claim(record);
    ASSERT_FALSE(second);
    const std::string served = record.mount + ": already served, by process " + std::to_string(::getpid());
    EXPECT_EQ(second.error(), served + "; end it with 'copper stop --mount " + record.mount + "'");
    InstanceRecord of_other_job = record;
    of_other_job.batch_job = "18.server";
    EXPECT_EQ(
        claim(of_other_job).error(),
        served +
            ", for job 17.server; give this job another place with --mount DIR (and "
            "COPPER_MOUNT=DIR for the other commands), or end that mirror with 'copper stop --batch-job "
            "17.server --mount " +
            record.mount + "'");
    InstanceRecord within = record;
    within.batch_job = "17.server/f2b";
    EXPECT_EQ(claim(within).error(),
              served +
                  ", for job 17.server around this one; give this job another place with --mount DIR (and "
                  "COPPER_MOUNT=DIR for the other commands), or use that mirror");
    EXPECT_TRUE(claim(a_record("c")));
    {
        const Instance moved = std::move(*first);
        EXPECT_FALSE(claim(record));
    }
    EXPECT_TRUE(claim(record));
}

TEST(Instance, JobsDifferIfBothAreNamed) {
    EXPECT_TRUE(are_different_jobs("17.server", "18.server"));
    EXPECT_TRUE(are_different_jobs("17[1].server", "17[2].server"));
    EXPECT_FALSE(are_different_jobs("17.server", "17.server"));
    EXPECT_FALSE(are_different_jobs("17.server", ""));
    EXPECT_FALSE(are_different_jobs("", "17.server"));
    EXPECT_FALSE(are_different_jobs("", ""));
}

TEST(Instance, AJobIsWithinThoseAroundIt) {
    EXPECT_TRUE(is_within_job("f1a", "f1a"));
    EXPECT_TRUE(is_within_job("f1a/f2b", "f1a"));
    EXPECT_FALSE(is_within_job("f1a", "f1a/f2b"));
    EXPECT_FALSE(is_within_job("f1ab", "f1a"));
    EXPECT_FALSE(is_within_job("f1a", ""));
}

TEST(Instance, RunsOfAJobDifferIfBothAreKnown) {
    EXPECT_TRUE(is_earlier_run("0", "1"));
    EXPECT_TRUE(is_earlier_run("1", "2"));
    EXPECT_FALSE(is_earlier_run("1", "1"));
    EXPECT_FALSE(is_earlier_run("1", "0")) << "Slurm does not tell the count to all processes";
    EXPECT_FALSE(is_earlier_run("", "1"));
    EXPECT_FALSE(is_earlier_run("1", ""));
}

TEST(Instance, WhatAKilledDaemonLeftIsTakenOver) {
    InstanceRecord record = a_record("d");
    const pid_t child = ::fork();
    if (child == 0) {
        record.pid = ::getpid();
        record.pid_started = start_time_of(record.pid);
        const auto instance = claim(record);
        std::ofstream(instance->socket_path()) << "";
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const std::string directory = instance_directory(::geteuid(), record.mount);
    const auto left = read_instance(directory);
    ASSERT_TRUE(left);
    EXPECT_EQ(left->pid, child);
    EXPECT_FALSE(is_running(left->pid, left->pid_started));
    EXPECT_FALSE(find_live_instance(::geteuid(), record.mount));

    const auto instance = claim(record);
    ASSERT_TRUE(instance) << instance.error();
    EXPECT_FALSE(fs::exists(instance->socket_path()));
}

TEST(Instance, TheLeftoversOfADeadOneCanBeRemoved) {
    InstanceRecord record = a_record("e");
    const pid_t child = ::fork();
    if (child == 0) {
        const auto instance = claim(record);
        ::_exit(instance ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    const std::string directory = instance_directory(::geteuid(), record.mount);
    ASSERT_TRUE(fs::exists(directory));
    remove_instance(directory);
    EXPECT_FALSE(fs::exists(directory));
    remove_instance(directory);  // idempotent
}

TEST(Instance, OnlyInstanceDirectoriesAreEverRemoved) {
    std::string name = "/tmp/copper-elsewhere-XXXXXX";
    const fs::path elsewhere = ::mkdtemp(name.data());
    std::ofstream(elsewhere / "control") << "precious";
    remove_instance(elsewhere);
    EXPECT_TRUE(fs::exists(elsewhere / "control"));
    EXPECT_FALSE(read_instance(elsewhere));

    // A link in the place of an instance leads nowhere.
    const auto other = claim(a_record("f"));
    ASSERT_TRUE(other);
    const fs::path link = instance_directory(::geteuid(), a_record("g").mount);
    fs::create_directory_symlink(elsewhere, link);
    remove_instance(link);
    EXPECT_TRUE(fs::exists(elsewhere / "control"));
    EXPECT_FALSE(claim(a_record("g")));
    fs::remove(link);
    fs::remove_all(elsewhere);
}

TEST(Instance, ADirectoryOpenToOthersIsRefused) {
    const auto keeps_base = claim(a_record("h"));
    ASSERT_TRUE(keeps_base);
    const fs::path directory = instance_directory(::geteuid(), a_record("i").mount);
    fs::create_directory(directory);
    fs::permissions(directory, fs::perms(0755));
    const auto instance = claim(a_record("i"));
    ASSERT_FALSE(instance);
    EXPECT_NE(instance.error().find("is open to other users"), std::string::npos);
    fs::remove(directory);
}

TEST(Instance, AnotherUsersDirectoryIsRefused) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "needs root, to give a directory away";
    }
    const auto keeps_base = claim(a_record("j"));
    ASSERT_TRUE(keeps_base);
    const fs::path directory = instance_directory(::geteuid(), a_record("k").mount);
    fs::create_directory(directory);
    fs::permissions(directory, fs::perms(0700));
    constexpr uid_t nobody = 65534;
    ASSERT_EQ(::chown(directory.c_str(), nobody, nobody), 0);
    const auto instance = claim(a_record("k"));
    ASSERT_FALSE(instance);
    EXPECT_NE(instance.error().find("belongs to user 65534"), std::string::npos);
    fs::remove(directory);
}

TEST(Instance, ThePrivateDirectoryIsTheGivenOneOrNone) {
    const auto place = another_private_directory();
    EXPECT_NE(place, another_private_directory());
    const auto nowhere = make_private_directory("/no-such-directory/copper");
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().find("remove it"), std::string::npos) << nowhere.error();
    EXPECT_NE(why_directory_is_taken("/proc/version"), "");
    EXPECT_EQ(why_directory_is_taken("/no-such-directory/copper"), "");
    EXPECT_EQ(owner_named_by(place), ::geteuid());
    const auto record = a_record("o");
    {
        const auto instance = Instance::claim(record, place);
        ASSERT_TRUE(instance) << instance.error();
        EXPECT_TRUE(instance->directory().starts_with(place + "/"));
        EXPECT_EQ(instance_directory(::geteuid(), record.mount), instance->directory());
        EXPECT_EQ(scratch_directory(::geteuid(), record.mount), place + "/scratch");
        EXPECT_TRUE(python_module_directory(::geteuid(), record.mount).starts_with(place + "/"));
    }
    // Processes may still have its name: nobody else must be able to make it.
    EXPECT_TRUE(fs::is_empty(place));
    fs::permissions(place, fs::perms(0755));
    const auto refused = Instance::claim(record, place);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), place + ": is open to other users; its mode must be 0700; remove it");
    fs::remove(place);
}

TEST(Instance, TheOneThatRunsCounts) {
    auto record = a_record("p");
    const auto places = {another_private_directory(), another_private_directory()};
    for (const auto& living : places) {
        std::vector<Instance> instances;
        for (const auto& place : places) {
            record.pid_started = start_time_of(::getpid()) + (place == living ? 0 : 1);
            auto instance = Instance::claim(record, place);
            ASSERT_TRUE(instance) << instance.error();
            instances.push_back(std::move(*instance));
        }
        EXPECT_TRUE(instance_directory(::geteuid(), record.mount).starts_with(living + "/"));
    }
    for (const auto& place : places) {
        fs::remove(place);
    }
}

TEST(Instance, ABrokenRecordIsNone) {
    const auto instance = claim(a_record("l"));
    ASSERT_TRUE(instance);
    for (const char* text : {"", "{", "[]", "{\"mount\":1}", "{\"mount\":\"/x\"}"}) {
        std::ofstream(instance->directory() + "/record.json") << text;
        EXPECT_FALSE(read_instance(instance->directory())) << text;
    }
}

TEST(Instance, ARecordComesBackAsText) {
    const auto record = a_record("m");
    EXPECT_EQ(parse_instance_record(to_text(record)), record);
}

TEST(Instance, ARecordCanStayWithoutADaemon) {
    auto record = a_record("without");
    record.pid = 0;
    record.without_mirror = true;
    std::string directory;
    {
        auto instance = claim(record);
        ASSERT_TRUE(instance);
        directory = instance->directory();
        instance->abandon();
    }
    EXPECT_EQ(read_instance(directory), record);
    EXPECT_FALSE(is_running(record));
    EXPECT_TRUE(claim(a_record("without")));  // a later daemon takes the place
    EXPECT_FALSE(read_instance(directory));
}

TEST(Instance, NumbersOutOfTheirRangeMakeNoRecord) {
    auto record = a_record("n");
    record.pid = 4711;
    const std::string text = to_text(record);
    const auto at = text.find("4711");
    ASSERT_NE(at, std::string::npos);
    for (const char* number : {"4711.5", "4294972007", "1e300"}) {
        EXPECT_FALSE(parse_instance_record(std::string(text).replace(at, 4, number))) << number;
    }
}

TEST(Instance, ProcessesAreToldApartByTheirStart) {
    const auto started = start_time_of(::getpid());
    EXPECT_NE(started, 0U);
    EXPECT_TRUE(is_running(::getpid(), started));
    EXPECT_FALSE(is_running(::getpid(), started + 1));
    EXPECT_FALSE(is_running(0, 0));
    EXPECT_EQ(start_time_of(0), 0U);
}

}  // namespace
}  // namespace copper
