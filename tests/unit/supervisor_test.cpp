#include "daemon/supervisor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "daemon/control/instance.hpp"
#include "daemon/control/private_directory.hpp"

namespace copper {
namespace {

namespace fs = std::filesystem;

// Processes that are no daemons, but are lost as daemons are. Nothing is mounted.
class SupervisorTest : public testing::Test {
  protected:
    // What the processes leave comes to this one.
    SupervisorTest() {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        fs::create_directories(made_);
    }
    ~SupervisorTest() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 0);
        remove_instance(directory());
        fs::remove_all(root_);
    }

    std::string directory() const { return instance_directory(::geteuid(), mount_); }

    InstanceRecord record() const {
        return {.mount = mount_,
                .pid = ::getpid(),
                .pid_started = start_time_of(::getpid()),
                .user = ::geteuid(),
                .made_directories = {made_}};
    }

    static void keep_nothing(SupervisorLink& link, const std::string& mount) {
        link.keep({.device = UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)),
                   .memory = UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))},
                  {.rank = 2, .nodes = 3}, mount);
    }

    // A daemon that is killed after `life`, and its successors, each of which ends after `succeed`. Returns
    // when they and the supervisor have ended.
    static void lose_daemon(const std::function<void(Supervised&)>& life,
                            const std::function<void(Supervised&)>& succeed) {
        if (::fork() == 0) {
            auto supervised = supervise(DaemonOptions());
            if (!supervised) {
                ::_exit(1);
            }
            if (supervised->succession) {
                succeed(*supervised);
                ::_exit(0);
            }
            life(*supervised);
            ::kill(::getpid(), SIGKILL);
        }
        while (::wait(nullptr) > 0 || errno == EINTR) {
        }
    }

    // What the first successor is told of its predecessor's end.
    std::string why_lost(const std::function<void()>& end) {
        lose_daemon(
            [&](Supervised& daemon) {
                keep_nothing(daemon.link, mount_);
                daemon.link.begin();
                daemon.vitals->note_end_of_this_process();
                end();
            },
            [this](Supervised& successor) {
                std::ofstream(successor_) << successor.succession->why;
                successor.link.dismiss();
            });
        std::string why;
        std::getline(std::ifstream(successor_), why);
        return why;
    }

    const std::string root_ = "/tmp/copper-supervisor-test-" + std::to_string(::getpid());
    const std::string mount_ = root_ + "/made/m";
    const std::string made_ = root_ + "/made";
    const std::string successor_ = root_ + "/successor";
    const std::function<void(Supervised&)> write_down_ = [this](Supervised& supervised) {
        std::ofstream(successor_) << supervised.succession->place.rank << ' '
                                  << static_cast<bool>(supervised.succession->hand_over.device)
                                  << static_cast<bool>(supervised.succession->hand_over.memory);
        supervised.link.dismiss();
    };
};

TEST_F(SupervisorTest, ALostDaemonHasASuccessorWithWhatItKept) {
    lose_daemon(
        [this](Supervised& daemon) {
            keep_nothing(daemon.link, mount_);
            daemon.link.begin();
        },
        write_down_);
    std::string text;
    std::getline(std::ifstream(successor_), text);
    EXPECT_EQ(text, "2 11");
}

TEST_F(SupervisorTest, ASuccessorIsToldWhyItsPredecessorEnded) {
    EXPECT_EQ(why_lost([] {
                  ::kill(::getpid(), SIGSEGV);
                  ::pause();
              }),
              "crashed: signal 11 (Segmentation fault)");
    EXPECT_EQ(why_lost([] { std::abort(); }), "crashed: signal 6 (Aborted)");
    EXPECT_EQ(why_lost([] {
                  ::kill(::getpid(), SIGUSR1);
                  ::pause();
              }),
              "killed: signal 10 (User defined signal 1)");
    EXPECT_EQ(why_lost([] { std::exit(7); }), "exited with status 7");
    EXPECT_EQ(why_lost([] {}), "killed without notice (SIGKILL, perhaps by the kernel for lack of memory)");
}

TEST_F(SupervisorTest, ADaemonThatIsLostAfterItsUnmountLeavesNothing) {
    lose_daemon(
        [this](Supervised& daemon) {
            auto instance = Instance::claim(record(), usual_private_directory(::geteuid()));
            keep_nothing(daemon.link, mount_);
            daemon.link.begin();
            daemon.link.release();
            ::kill(::getpid(), SIGKILL);
        },
        write_down_);
    EXPECT_FALSE(fs::exists(successor_));
    EXPECT_FALSE(fs::exists(directory()));
    EXPECT_FALSE(fs::exists(made_));
}

TEST_F(SupervisorTest, ADaemonThatIsLostBeforeTheOthersServeLeavesNothing) {
    lose_daemon(
        [this](Supervised& daemon) {
            auto instance = Instance::claim(record(), usual_private_directory(::geteuid()));
            keep_nothing(daemon.link, mount_);
            ::kill(::getpid(), SIGKILL);
        },
        write_down_);
    EXPECT_FALSE(fs::exists(successor_));
    EXPECT_FALSE(fs::exists(directory()));
}

TEST_F(SupervisorTest, ASignalEndsTheMountAlsoIfTheJobBeginsLater) {
    lose_daemon(
        [this](Supervised& daemon) {
            auto instance = Instance::claim(record(), usual_private_directory(::geteuid()));
            keep_nothing(daemon.link, mount_);
            // Its answer means that it takes signals.
            daemon.link.keep({.mount_namespace = UniqueFd(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)),
                              .user_namespace = UniqueFd()});
            ::kill(daemon.link.pid(), SIGTERM);
            daemon.link.begin();
            ::kill(::getpid(), SIGKILL);
        },
        write_down_);
    EXPECT_FALSE(fs::exists(successor_));
    EXPECT_FALSE(fs::exists(directory()));
}

TEST_F(SupervisorTest, ADaemonThatUnmountedHasNoSuccessorIfTheJobBeginsLater) {
    lose_daemon(
        [this](Supervised& daemon) {
            keep_nothing(daemon.link, mount_);
            daemon.link.release();
            daemon.link.begin();
        },
        write_down_);
    EXPECT_FALSE(fs::exists(successor_));
}

TEST_F(SupervisorTest, ALaterJobAtTheSamePlaceIsLeftAlone) {
    const auto later = Instance::claim(record(), usual_private_directory(::geteuid()));
    ASSERT_TRUE(later);
    lose_daemon(
        [this](Supervised& daemon) {
            keep_nothing(daemon.link, mount_);
            daemon.link.begin();
            daemon.link.release();
        },
        write_down_);
    EXPECT_FALSE(fs::exists(successor_));
    EXPECT_TRUE(find_live_instance(::geteuid(), mount_));
    EXPECT_TRUE(fs::exists(made_));
}

}  // namespace
}  // namespace copper
