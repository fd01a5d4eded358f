#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "daemon/control/private_directory.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {
namespace {

using Words = std::vector<std::string>;

Launcher launcher_of(Family family, const std::string& program) {
    return {.family = family, .program = program, .extra = {"--x"}};
}

const Words command = {"copperd", "--mount=/m"};

const Placement two = {.hosts = {"a", "b"}, .host_file = ""};
const Placement two_here = {.hosts = {}, .host_file = "", .on_this_machine = 2};
const Placement two_in_file = {.hosts = {"a", "b"}, .host_file = "/h"};

constexpr std::array families = {Family::alone, Family::open_mpi_4, Family::open_mpi_5,
                                 Family::hydra, Family::intel,      Family::pals,
                                 Family::slurm, Family::flux,       Family::unknown};

TEST(LauncherFamily, FromItsVersion) {
    EXPECT_EQ(family_of("mpirun (Open MPI) 4.1.4\n\nReport bugs"), Family::open_mpi_4);
    EXPECT_EQ(family_of("mpirun (Open MPI) 5.0.7\n"), Family::open_mpi_5);
    EXPECT_EQ(family_of("mpirun (Open MPI) 10.0.0\n"), Family::open_mpi_5);
    EXPECT_EQ(family_of("HYDRA build details:\n    Version: 4.0.2\n"), Family::hydra);
    // github.com/TACC/tacc-containers/issues/8
    EXPECT_EQ(family_of("Intel(R) MPI Library for Linux* OS, Version 2019 Update 7 Build 20200312 (id: "
                        "5dc2dd3e9)\nCopyright 2003-2020, Intel Corporation."),
              Family::intel);
    EXPECT_EQ(family_of("something else"), Family::unknown);
}

// PALS does not print its name: is_pals_launcher() of github.com/E3SM-Project/mache, mache/parallel/pbs.py.
TEST(LauncherFamily, IsPalsByTheFormOfItsVersionOrByItsPlace) {
    constexpr const char* place = "/opt/cray/pals/1.8/bin/mpiexec";
    EXPECT_EQ(family_of("mpiexec version 1.8.0 revision ..."), Family::pals);
    EXPECT_EQ(family_of("mpirun version 1.8.0"), Family::pals);
    EXPECT_EQ(family_of("something else", place), Family::pals);
    EXPECT_EQ(family_of("HYDRA build details:\n    Version: 4.0.2\n", "/home/pals/bin/mpiexec"),
              Family::hydra);
    for (const char* other : {"mpiexec (OpenRTE) 4.1.4", "mpiexec version", "error\nmpiexec version 1.8.0",
                              "Intel(R) MPI Library for Linux* OS, Version 2021.4"}) {
        EXPECT_NE(family_of(other), Family::pals) << other;
    }
}

TEST(LauncherFamily, IsFoundByItsName) {
    for (const Family family : families) {
        EXPECT_EQ(family_named(name_of(family)), family) << name_of(family);
    }
    EXPECT_EQ(family_named("rocket"), Family::unknown);
}

TEST(LauncherFamily, StartsItsOwnLibrary) {
    EXPECT_TRUE(can_start(Family::open_mpi_5, Mpi::open_mpi));
    EXPECT_TRUE(can_start(Family::pals, Mpi::mpich));
    EXPECT_TRUE(can_start(Family::slurm, Mpi::mpich));
    EXPECT_TRUE(can_start(Family::hydra, Mpi::unknown));
    EXPECT_FALSE(can_start(Family::hydra, Mpi::open_mpi));
    EXPECT_FALSE(can_start(Family::open_mpi_4, Mpi::mpich));
}

TEST(LauncherFamily, OfTheLibraryIsBestAndInAPbsJobPals) {
    const auto by_fitness = [](Mpi mpi, bool in_pbs_job) {
        std::vector<Family> all = {Family::unknown, Family::open_mpi_5, Family::pals, Family::hydra};
        std::erase_if(all, [&](Family family) { return fitness(family, mpi, in_pbs_job) == 0; });
        std::stable_sort(all.begin(), all.end(), [&](Family a, Family b) {
            return fitness(a, mpi, in_pbs_job) > fitness(b, mpi, in_pbs_job);
        });
        return all;
    };
    using enum Family;
    using Families = std::vector<Family>;
    EXPECT_EQ(by_fitness(Mpi::mpich, false), (Families{hydra, pals, unknown}));
    EXPECT_EQ(by_fitness(Mpi::mpich, true), (Families{pals, hydra, unknown}));
    EXPECT_EQ(by_fitness(Mpi::open_mpi, true), (Families{open_mpi_5, unknown}));
    EXPECT_EQ(by_fitness(Mpi::unknown, false), (Families{open_mpi_5, hydra, pals, unknown}));
}

// What srun prints in Debian 12, and what older versions print.
TEST(MpiPlugin, IsTheSitesUnlessTheLibraryNeedsAnother) {
    constexpr const char* debian =
        "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n"
        "specific pmix plugin versions available: pmix_v4\n";
    constexpr const char* old = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n";
    const auto of_open_mpi = [](std::string_view listed, std::string_view site_default) {
        return mpi_plugin(Mpi::open_mpi, Pmix::present, listed, site_default);
    };
    EXPECT_EQ(of_open_mpi(debian, "none"), "pmix");
    EXPECT_EQ(of_open_mpi(debian, "pmix_v4"), "");
    EXPECT_EQ(of_open_mpi(debian, "pmi2"), "pmix");
    EXPECT_EQ(of_open_mpi(old, "none"), "") << "it is not there";
    for (const Pmix pmix : {Pmix::absent, Pmix::present}) {
        EXPECT_EQ(mpi_plugin(Mpi::mpich, pmix, old, "none"), "pmi2");
        EXPECT_EQ(mpi_plugin(Mpi::mpich, pmix, debian, "cray_shasta"), "");
        EXPECT_EQ(mpi_plugin(Mpi::mpich, pmix, debian, "pmi2"), "");
        EXPECT_EQ(mpi_plugin(Mpi::unknown, pmix, debian, "none"), "");
    }
    EXPECT_EQ(mpi_plugin(Mpi::mpich, Pmix::absent, debian, "none"), "pmi2");
    EXPECT_EQ(mpi_plugin(Mpi::mpich, Pmix::absent, debian, "pmix"), "pmi2")
        << "each daemon would see only itself";
    EXPECT_EQ(mpi_plugin(Mpi::mpich, Pmix::present, debian, "none"), "pmix");
    EXPECT_EQ(mpi_plugin(Mpi::mpich, Pmix::present, debian, "pmix_v4"), "");
}

TEST(DaemonsEnvironment, LacksWhatIsForTheApplication) {
    EXPECT_TRUE(is_for_application_only("LD_PRELOAD", {}));
    EXPECT_TRUE(is_for_application_only("OMPI_MCA_btl", {"OMPI_MCA_pml"}));
    EXPECT_FALSE(is_for_application_only("OMPI_MCA_btl", {"OMPI_MCA_btl"}));
    EXPECT_FALSE(is_for_application_only("OMPI_ALLOW_RUN_AS_ROOT", {}));
    EXPECT_FALSE(is_for_application_only("PATH", {}));
    for (const auto* name :
         {"MPIR_CVAR_ENABLE_GPU", "MPICH_OFI_NIC_POLICY", "MPICH_GPU_SUPPORT_ENABLED",
          "FI_HMEM_CUDA_USE_GDRCOPY", "SLURM_NTASKS_PER_GPU", "SLURM_GPUS_PER_TASK", "SLURM_MEM_PER_CPU",
          "SLURM_STDOUTMODE", "SLURM_TIMELIMIT", "SRUN_CPUS_PER_TASK", "SRUN_CONTAINER"}) {
        EXPECT_TRUE(is_for_application_only(name, {})) << name;
        EXPECT_FALSE(is_for_application_only(name, {name})) << name;
    }
    for (const auto* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURM_MPI_TYPE",
                             "SLURM_CLUSTERS", "MPICH_VERSION_DISPLAY", "FI_PROVIDER"}) {
        EXPECT_FALSE(is_for_application_only(name, {})) << name;
    }
    EXPECT_EQ(without_conda("/opt/mpi/lib:/sw/conda/lib:/sw/conda2/lib", "/sw/conda"),
              "/opt/mpi/lib:/sw/conda2/lib");
    EXPECT_EQ(without_conda("/sw/conda/lib", "/sw/conda"), "");
    EXPECT_EQ(without_conda("/a:/b", ""), "/a:/b");
}

TEST(Start, IsWhatAUserTypes) {
    const Words hosts = {"a", "b"};
    const auto mpirun = launcher_of(Family::open_mpi_4, "mpirun");
    EXPECT_EQ(start_on_all(mpirun, hosts), (Words{"mpirun", "--host", "a,b"}));
    EXPECT_EQ(start_on_all(mpirun, {}), (Words{"mpirun"}));
    EXPECT_EQ(start_on_one(mpirun, "b"), (Words{"mpirun", "--host", "b", "-n", "1"}));
    const auto srun = launcher_of(Family::slurm, "srun");
    EXPECT_EQ(start_on_all(srun, {}), (Words{"srun"}));
    EXPECT_EQ(start_on_one(srun, "a"), (Words{"srun", "--nodelist=a", "-n", "1", "--overlap"}));
    EXPECT_EQ(start_on_one(launcher_of(Family::hydra, "mpiexec"), "a"),
              (Words{"mpiexec", "-hosts", "a", "-n", "1"}));
    EXPECT_EQ(start_on_all(launcher_of(Family::pals, "mpiexec"), hosts),
              (Words{"mpiexec", "--hosts", "a,b"}));
    const auto flux = launcher_of(Family::flux, "flux");
    EXPECT_EQ(start_on_all(flux, {}), (Words{"flux", "run"}));
    EXPECT_EQ(start_on_one(flux, "a"), (Words{"flux", "run", "--requires=hosts:a", "-n", "1"}));
    EXPECT_EQ(start_on_all(launcher_of(Family::unknown, "run-mpi"), hosts), (Words{"run-mpi"}));
}

TEST(Start, ReachesAJobFromOutside) {
    const auto outside = [](Family family, const std::string& program) {
        auto launcher = launcher_of(family, program);
        launcher.other_job = "17";
        return launcher;
    };
    const auto srun = outside(Family::slurm, "srun");
    EXPECT_EQ(start_on_all(srun, {}), (Words{"srun", "--jobid=17"}));
    EXPECT_EQ(start_on_one(srun, "a"), (Words{"srun", "--jobid=17", "--nodelist=a", "-n", "1", "--overlap"}));
    EXPECT_EQ(reach_hosts(srun, {"a"}, command)[1], "--jobid=17");
    EXPECT_EQ(start_on_one(outside(Family::flux, "flux"), "a"),
              (Words{"flux", "proxy", "17", "flux", "run", "--requires=hosts:a", "-n", "1"}));
    EXPECT_EQ(start_on_one(outside(Family::hydra, "mpiexec"), "a"),
              (Words{"mpiexec", "-hosts", "a", "-n", "1"}));
    for (const Family family : families) {
        SCOPED_TRACE(name_of(family));
        const bool has_words = family == Family::slurm || family == Family::flux;
        const bool has_no_hosts =
            family == Family::alone || family == Family::pals || family == Family::unknown;
        const auto job = has_words ? Reach::job : Reach::nothing;
        EXPECT_EQ(reach_of(outside(family, "x"), true), job);
        EXPECT_EQ(reach_of(outside(family, "x"), false), has_words || has_no_hosts ? job : Reach::hosts);
        EXPECT_EQ(reach_of(launcher_of(family, "x"), true), Reach::job);
    }
}

TEST(LaunchCommand, AloneIsTheCommandItself) {
    EXPECT_EQ(launch_command({}, {.hosts = {"a"}, .host_file = ""}, command), command);
}

TEST(LaunchCommand, OpenMpi) {
    auto four = launcher_of(Family::open_mpi_4, "mpirun");
    EXPECT_EQ(launch_command(four, {.hosts = {"a", "b"}, .host_file = ""}, command),
              (Words{"mpirun", "-np", "2", "--host", "a,b", "--map-by", "ppr:1:node", "--bind-to", "none",
                     "--enable-recovery", "--x", "copperd", "--mount=/m"}));
    four.as_root = true;
    EXPECT_EQ(launch_command(four, {.hosts = {}, .host_file = "", .on_this_machine = 4}, command),
              (Words{"mpirun", "-np", "4", "--oversubscribe", "--bind-to", "none", "--enable-recovery",
                     "--allow-run-as-root", "--x", "copperd", "--mount=/m"}));
    auto five = launcher_of(Family::open_mpi_5, "mpirun");
    five.has_library_path = true;
    EXPECT_EQ(launch_command(five, {.hosts = {"a", "b"}, .host_file = "/h"}, command),
              (Words{"mpirun", "-np", "2", "--hostfile", "/h", "--map-by", "ppr:1:node", "--bind-to", "none",
                     "--with-ft", "ulfm", "-x", "LD_LIBRARY_PATH", "--x", "copperd", "--mount=/m"}));
    five.as_root = true;
    EXPECT_EQ(launch_command(five, two_here, command),
              (Words{"mpirun", "-np", "2", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--with-ft",
                     "ulfm", "--allow-run-as-root", "--x", "copperd", "--mount=/m"}))
        << "here, LD_LIBRARY_PATH needs no help";
}

TEST(LaunchCommand, Hydra) {
    EXPECT_EQ(launch_command(launcher_of(Family::hydra, "mpiexec"), two, command),
              (Words{"mpiexec", "-n", "2", "-hosts", "a,b", "-ppn", "1", "-bind-to", "none",
                     "-disable-auto-cleanup", "--x", "copperd", "--mount=/m"}));
    EXPECT_EQ(launch_command(launcher_of(Family::hydra, "mpiexec"), two_in_file, command),
              (Words{"mpiexec", "-n", "2", "-f", "/h", "-ppn", "1", "-bind-to", "none",
                     "-disable-auto-cleanup", "--x", "copperd", "--mount=/m"}));
    EXPECT_EQ(launch_command(launcher_of(Family::hydra, "mpiexec"), two_here, command),
              (Words{"mpiexec", "-n", "2", "-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2", "-ppn", "1",
                     "-bind-to", "none", "-disable-auto-cleanup", "--x", "copperd", "--mount=/m"}));
}

// Intel MPI Developer Reference for Linux, "Job Schedulers Support".
TEST(LaunchCommand, Intel) {
    EXPECT_EQ(launch_command(launcher_of(Family::intel, "mpiexec"), two, command),
              (Words{"env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0", "mpiexec", "-n", "2", "-hosts", "a,b",
                     "-ppn", "1", "--x", "copperd", "--mount=/m"}));
    EXPECT_EQ(launch_command(launcher_of(Family::intel, "mpiexec"), two_in_file, command),
              (Words{"env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0", "mpiexec", "-n", "2", "-f", "/h", "-ppn",
                     "1", "--x", "copperd", "--mount=/m"}));
}

TEST(LaunchCommand, Pals) {
    EXPECT_EQ(launch_command(launcher_of(Family::pals, "mpiexec"), two, command),
              (Words{"mpiexec", "--np", "2", "--hosts", "a,b", "--ppn", "1", "--cpu-bind", "none",
                     "--no-abort-on-failure", "--x", "copperd", "--mount=/m"}));
    EXPECT_EQ(launch_command(launcher_of(Family::pals, "mpiexec"), two_in_file, command),
              (Words{"mpiexec", "--np", "2", "--hostfile", "/h", "--ppn", "1", "--cpu-bind", "none",
                     "--no-abort-on-failure", "--x", "copperd", "--mount=/m"}));
}

TEST(LaunchCommand, Slurm) {
    auto slurm = launcher_of(Family::slurm, "srun");
    slurm.mpi_plugin = "pmix";
    EXPECT_EQ(launch_command(slurm, two, command),
              (Words{"srun", "--ntasks=2", "--nodelist=a,b", "--nodes=2", "--ntasks-per-node=1", "--overlap",
                     "--cpu-bind=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mpi=pmix", "--x",
                     "copperd", "--mount=/m"}));
    slurm.mpi_plugin = "";
    EXPECT_EQ(launch_command(slurm, two_in_file, command),
              (Words{"srun", "--ntasks=2", "--nodelist=/h", "--nodes=2", "--ntasks-per-node=1", "--overlap",
                     "--cpu-bind=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--x", "copperd",
                     "--mount=/m"}));
    EXPECT_EQ(launch_command(slurm, two_here, command),
              (Words{"srun", "--ntasks=2", "--nodes=1", "--overlap", "--cpu-bind=none",
                     "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--x", "copperd", "--mount=/m"}));
}

TEST(LaunchCommand, SlurmOverTheComponentsOfAJob) {
    auto slurm = launcher_of(Family::slurm, "srun");
    slurm.components = {{"a", "b"}, {"c"}, {"d", "e"}};
    const auto step = [](int ntasks, const std::string& hosts, const std::string& component) {
        const auto count = std::to_string(ntasks);
        return Words{"--ntasks=" + count,
                     "--nodelist=" + hosts,
                     "--nodes=" + count,
                     "--ntasks-per-node=1",
                     "--overlap",
                     "--cpu-bind=none",
                     "--kill-on-bad-exit=0",
                     "--no-kill",
                     "--wait=0",
                     "--x",
                     "--het-group=" + component,
                     "copperd",
                     "--mount=/m"};
    };
    const auto steps = [](const std::vector<Words>& all) {
        Words words = {"srun"};
        for (const auto& one : all) {
            words.insert(words.end(), words.size() > 1 ? 1 : 0, ":");
            words.insert(words.end(), one.begin(), one.end());
        }
        return words;
    };
    EXPECT_EQ(launch_command(slurm, {.hosts = {"a", "b", "c", "d", "e"}, .host_file = "/h"}, command),
              steps({step(2, "a,b", "0"), step(1, "c", "1"), step(2, "d,e", "2")}));
    EXPECT_EQ(launch_command(slurm, {.hosts = {"e", "b"}}, command),
              steps({step(1, "b", "0"), step(1, "e", "2")}));
    EXPECT_EQ(reach_hosts(slurm, {"c.site.edu"}, command), steps({step(1, "c.site.edu", "1")}));
    // srun says that it is not in this job.
    EXPECT_EQ(launch_command(slurm, {.hosts = {"c", "x"}}, command),
              steps({step(1, "x", "0"), step(1, "c", "1")}));
    EXPECT_EQ(start_on_all(slurm, {}), (Words{"srun", "--het-group=0,1,2"}));
    EXPECT_EQ(start_on_one(slurm, "d"),
              (Words{"srun", "--het-group=2", "--nodelist=d", "-n", "1", "--overlap"}));
}

// flux-run(1), flux-shell-options(7) and flux-pmix's README. Flux takes no file of hosts.
TEST(LaunchCommand, Flux) {
    auto flux = launcher_of(Family::flux, "flux");
    const auto words = [&](const Words& pmi) {
        Words all = {"flux",
                     "run",
                     "--ntasks=2",
                     "--requires=hosts:a,b",
                     "--nodes=2",
                     "-o",
                     "cpu-affinity=off",
                     "-o",
                     "gpu-affinity=off",
                     "-o",
                     "exit-timeout=none"};
        all.insert(all.end(), pmi.begin(), pmi.end());
        all.insert(all.end(), {"--x", "copperd", "--mount=/m"});
        return all;
    };
    EXPECT_EQ(launch_command(flux, two, command), words({}));
    EXPECT_EQ(launch_command(flux, two_in_file, command), words({}));
    flux.mpi_plugin = "simple,pmix";
    EXPECT_EQ(launch_command(flux, two, command), words({"-o", "pmi=simple,pmix"}));
    EXPECT_EQ(
        launch_command(flux, two_here, command),
        (Words{"flux", "run", "--ntasks=2", "--nodes=1", "-o", "cpu-affinity=off", "-o", "gpu-affinity=off",
               "-o", "exit-timeout=none", "-o", "pmi=simple,pmix", "--x", "copperd", "--mount=/m"}));
}

TEST(LaunchCommand, UnknownLaunchersTakeWhatTheMpiStandardSuggests) {
    EXPECT_EQ(launch_command(launcher_of(Family::unknown, "run-mpi"), two, command),
              (Words{"run-mpi", "-n", "2", "--x", "copperd", "--mount=/m"}));
}

// flux-exec(1) takes the ranks of brokers, which flux-hostlist(1) finds.
TEST(ReachHosts, NeedsNoFreeProcessorOfFlux) {
    EXPECT_EQ(reach_hosts(launcher_of(Family::flux, "flux"), {"a", "b"}, {"copper", "stop"}),
              (Words{"sh", "-c",
                     R"sh(exec flux exec -n -r "$(flux hostlist --find="$0" instance | tr " " ,)" "$@")sh",
                     "a,b", "copper", "stop"}));
}

TEST(ReachHosts, IsALaunchForTheOthers) {
    for (const Family family : families) {
        const auto launcher = launcher_of(family, "launcher");
        if (family != Family::flux) {
            EXPECT_EQ(reach_hosts(launcher, two.hosts, command), launch_command(launcher, two, command));
        }
    }
}

// By their names: what they hold shows in no command.
TEST(LaunchCommand, VariablesReachEveryNode) {
    const auto words = [&](Family family, const Words& variables) {
        return launch_command(launcher_of(family, "launcher"), two, command, variables);
    };
    const auto added = [&](Family family) {
        const Words without = words(family, {});
        Words with = words(family, {"ONE", "TWO"});
        const auto start = std::mismatch(without.begin(), without.end(), with.begin(), with.end()).second;
        return Words(start, start + static_cast<std::ptrdiff_t>(with.size() - without.size()));
    };
    EXPECT_EQ(added(Family::open_mpi_4), (Words{"-x", "ONE", "-x", "TWO"}));
    EXPECT_EQ(added(Family::open_mpi_5), (Words{"-x", "ONE", "-x", "TWO"}));
    EXPECT_EQ(added(Family::slurm), (Words{"--export=ALL"}));
    EXPECT_EQ(added(Family::pals), (Words{"--envall"}));
    for (const Family family : {Family::alone, Family::hydra, Family::intel, Family::flux, Family::unknown}) {
        EXPECT_EQ(added(family), Words()) << name_of(family);
    }
}

TEST(ReachCommand, IsTheLaunchersAgent) {
    EXPECT_EQ(reach_command({"--mca", "plm_rsh_agent", "/x/agent -q : rsh"}), (Words{"/x/agent", "-q"}));
    EXPECT_EQ(reach_command({"-launcher-exec", "/x/agent"}), (Words{"/x/agent"}));
    EXPECT_EQ(reach_command({"-launcher", "ssh", "-launcher-exec", "/x/agent"}), (Words{"/x/agent"}));
    EXPECT_EQ(reach_command({"--mca", "btl", "tcp"}).front(), "ssh");
}

// The launchers' names for these remote shells: `mpiexec -help` of MPICH, Intel MPI Developer Reference
// ("-bootstrap"), blaunch(8).
TEST(BatchSystems, HaveTheirOwnRemoteShells) {
    using enum BatchSystem;
    EXPECT_EQ(reach_command(words_within(lsf, Family::open_mpi_4)), (Words{"blaunch"}));
    EXPECT_EQ(reach_command(words_within(lsf, Family::open_mpi_5)), (Words{"blaunch"}));
    EXPECT_EQ(words_within(lsf, Family::hydra), (Words{"-launcher", "lsf"}));
    EXPECT_EQ(words_within(lsf, Family::intel), (Words{"-bootstrap", "lsf"}));
    EXPECT_EQ(reach_command(words_within(lsf, Family::intel)), (Words{"blaunch"}));
    EXPECT_EQ(words_within(grid_engine, Family::hydra), (Words{"-launcher", "sge"}));
    EXPECT_EQ(reach_command(words_within(grid_engine, Family::hydra)),
              (Words{"qrsh", "-inherit", "-nostdin"}));
    EXPECT_EQ(words_within(grid_engine, Family::open_mpi_4), Words()) << "Open MPI uses qrsh itself";
    EXPECT_EQ(reach_command({"--mca", "btl", "tcp"}, grid_engine), (Words{"qrsh", "-inherit", "-nostdin"}));
    EXPECT_EQ(reach_command({"-launcher", "ssh"}, grid_engine).front(), "ssh");
    for (const Family family : families) {
        EXPECT_EQ(words_within(other, family), Words());
    }
    EXPECT_TRUE(names_remote_shell({"--mca", "plm_rsh_agent", "rsh"}));
    EXPECT_TRUE(names_remote_shell({"-launcher", "ssh"}));
    EXPECT_FALSE(names_remote_shell({"--mca", "btl", "tcp"}));
}

TEST(LaunchLock, IsHeldByOneAtATime) {
    ASSERT_TRUE(make_private_directory(usual_private_directory(::geteuid())));
    const std::string mount = "/tmp/copper-launch-lock-test-" + std::to_string(::getpid());
    {
        const auto first = LaunchLock::take(mount);
        ASSERT_TRUE(first) << first.error().reason;
        for (int i = 0; i < 2; ++i) {
            const auto second = LaunchLock::take(mount);
            ASSERT_FALSE(second);
            EXPECT_EQ(mount + ": another 'copper launch' is starting it", second.error().reason);
        }
    }
    EXPECT_TRUE(LaunchLock::take(mount));
}

TEST(LaunchRecord, ComesBackAsText) {
    const LaunchRecord record{.mount = "/tmp/u/copper",
                              .job = "17",
                              .batch_job = "17.server",
                              .launch = "5eed",
                              .process = {.pid = 4711, .started = 123456},
                              .launcher = {.family = Family::slurm, .program = "srun", .extra = {"--exact"}},
                              .hosts = {"cn0", "cn1"},
                              .left_out = {{.host = "cn2", .reason = "it's \"full\"", .answers = true}}};
    EXPECT_EQ(parse_launch_record(to_text(record)), record);
}

}  // namespace
}  // namespace copper::cli
