#include "daemon/mount_point.hpp"
#include "daemon/control/option_defaults.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/control/instance.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/private_directory.hpp"

namespace copper {
namespace {

namespace fs = std::filesystem;

class MountPointTest : public testing::Test {
  protected:
    MountPointTest() {
        std::string name = fs::temp_directory_path() / "copper-mount-point-XXXXXX";
        base_ = fs::canonical(::mkdtemp(name.data()));
    }
    ~MountPointTest() override { fs::remove_all(base_); }

    static std::string error_of(const std::string& mount) {
        const auto made = prepare_mount_point(mount);
        return made ? "" : made.error();
    }

    std::string base_;
};

TEST_F(MountPointTest, AnEmptyDirectoryWillDo) {
    fs::create_directory(base_ + "/m");
    EXPECT_EQ(error_of(base_ + "/m"), "");
    EXPECT_TRUE(fs::exists(base_ + "/m"));  // it was there before
}

TEST_F(MountPointTest, MadeAndRemoved) {
    {
        const auto made = prepare_mount_point(base_ + "/m");
        ASSERT_TRUE(made) << made.error();
        EXPECT_EQ(made->paths(), std::vector<std::string>{base_ + "/m"});
        EXPECT_TRUE(fs::is_directory(base_ + "/m"));
        EXPECT_EQ(fs::status(base_ + "/m").permissions(), fs::perms(0700));
    }
    EXPECT_FALSE(fs::exists(base_ + "/m"));
}

TEST_F(MountPointTest, OtherUsersPassIfTheMirrorIsForThem) {
    const auto made = prepare_mount_point(base_ + "/m", Audience::everyone);
    ASSERT_TRUE(made) << made.error();
    EXPECT_EQ(fs::status(base_ + "/m").permissions(), fs::perms(0711));
    EXPECT_EQ(closed_directory_above(base_ + "/m"), base_);
    fs::permissions(base_, fs::perms(0711));
    EXPECT_EQ(closed_directory_above(base_ + "/m"), "");
}

TEST_F(MountPointTest, WhatIsNotEmptyIsNeverRemoved) {
    {
        const auto made = prepare_mount_point(base_ + "/m");
        ASSERT_TRUE(made);
        std::ofstream(base_ + "/m/precious") << "x";
    }
    EXPECT_TRUE(fs::exists(base_ + "/m/precious"));
}

TEST_F(MountPointTest, TheParentIsMadeForTheDefaultOnly) {
    EXPECT_EQ(error_of(base_ + "/x/m"),
              base_ + "/x/m: its parent directory does not exist; make it, or choose another --mount");

    const std::string user = ::getenv("USER") != nullptr ? ::getenv("USER") : "";
    const std::string nobody = "copper-mount-point-test-" + std::to_string(::getpid());
    ::setenv("USER", nobody.c_str(), 1);
    {
        const auto made = prepare_mount_point(default_mount());
        ASSERT_TRUE(made) << made.error();
        EXPECT_EQ(made->paths(), (std::vector<std::string>{"/tmp/" + nobody + "/copper", "/tmp/" + nobody}));
    }
    EXPECT_FALSE(fs::exists(default_mount()));
    // It stays, and others cannot make it.
    EXPECT_TRUE(fs::remove("/tmp/" + nobody));
    user.empty() ? ::unsetenv("USER") : ::setenv("USER", user.c_str(), 1);
}

TEST_F(MountPointTest, NotADirectory) {
    std::ofstream(base_ + "/file") << "x";
    EXPECT_EQ(error_of(base_ + "/file"),
              base_ + "/file: a file, not a directory; a mount point must be an empty directory");
    fs::create_directory_symlink(base_, base_ + "/link");
    EXPECT_NE(error_of(base_ + "/link").find("a symbolic link"), std::string::npos);
    EXPECT_NE(error_of(base_ + "/file/m"), "");
}

TEST_F(MountPointTest, PlacesWhereNothingCanBeMounted) {
    EXPECT_NE(error_of("/"), "");
    EXPECT_NE(error_of("relative"), "");
    for (const char* kernel : {"/proc/self", "/sys/kernel", "/dev/shm/m"}) {
        EXPECT_NE(error_of(kernel).find("inside a filesystem of the kernel"), std::string::npos) << kernel;
    }
}

TEST_F(MountPointTest, AlreadyServed) {
    fs::create_directory(base_ + "/m");
    const auto instance = Instance::claim({.mount = base_ + "/m",
                                           .pid = ::getpid(),
                                           .pid_started = start_time_of(::getpid()),
                                           .user = ::geteuid()},
                                          usual_private_directory(::geteuid()));
    ASSERT_TRUE(instance);
    EXPECT_EQ(error_of(base_ + "/m"), base_ + "/m: already served, by process " + std::to_string(::getpid()) +
                                          "; end it with 'copper stop --mount " + base_ + "/m'");
}

}  // namespace
}  // namespace copper
