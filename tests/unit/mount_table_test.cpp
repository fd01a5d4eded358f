#include "base/mount_table.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/support/child_process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

using Walk = MountMap::Walk;

constexpr std::string_view table =
    "1 1 0:2 / / rw - rootfs rootfs rw\n"
    "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "22 27 0:21 / /proc rw - proc proc rw\n"
    "23 27 0:22 / /sys rw shared:2 master:3 - sysfs sysfs rw\n"
    "24 27 0:6 / /dev rw - devtmpfs devtmpfs rw\n"
    "25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw\n"
    "30 27 0:50 / /home/with\\040space\\134\\012 rw - nfs4 server:/home rw\n"
    "31 27 0:51 / /tmp/me/copper ro,nosuid - fuse.copper copperd rw\n"
    "32 27 0:52 / /home/my\\040copper ro - fuse.copper copperd rw\n"
    "33 27 0:53 / /jail/proc rw - proc proc rw\n"
    "34 27 0:54 / /home/auto rw - autofs systemd-1 rw\n"
    "35 27 0:55 / /data rw - fuse.sshfs host: rw\n";

TEST(MountTable, ParsesTheKernelsText) {
    const auto mounts = parse_mounts(table);
    ASSERT_EQ(mounts.size(), 12U);
    EXPECT_EQ(mounts[1].point, "/");
    EXPECT_EQ(mounts[1].type, "ext4");
    EXPECT_EQ(mounts[3].type, "sysfs");
    EXPECT_EQ(mounts[6].point, "/home/with space\\\n");
    EXPECT_EQ(mounts[6].id, 30);
    EXPECT_EQ(mounts[6].parent, 27);
    EXPECT_EQ(mounts[7].type, copper_filesystem_type);
}

TEST(MountTable, LeavesOutWhatItDoesNotUnderstand) {
    EXPECT_TRUE(parse_mounts("").empty());
    EXPECT_TRUE(parse_mounts("\n\n").empty());
    EXPECT_TRUE(parse_mounts("garbage").empty());
    EXPECT_TRUE(parse_mounts("1 2 3:4 / /a rw ext4 x rw").empty()) << "no separator";
    EXPECT_TRUE(parse_mounts("1 2 3:4 / /a rw -").empty()) << "cut off";
    EXPECT_TRUE(parse_mounts("x 2 3:4 / /a rw - ext4 x rw").empty());
    for (const char* point : {"a", "//a", "/a/../b"}) {
        EXPECT_TRUE(parse_mounts("1 2 3:4 / " + std::string(point) + " rw - ext4 x rw").empty()) << point;
    }
    EXPECT_EQ(parse_mounts("1 2 3:4 / /a\\04 rw - ext4 x rw").at(0).point, "/a\\04");
}

TEST(MountTable, TrustsTheNumbersOfFewFuseClients) {
    const MountMap mounts(
        parse_mounts("1 0 8:1 / / rw - ext4 x rw\n"
                     "2 1 0:5 / /squash ro - fuse.squashfuse squashfuse rw\n"
                     "3 1 0:6 / /mfs rw - fuse mfs#master:9421 rw\n"
                     "4 1 0:7 / /other rw - fuse other rw\n"
                     "5 1 0:8 / /block rw - fuseblk /dev/sdb rw\n"
                     "6 1 0:9 / /ceph rw - fuse.ceph-fuse ceph-fuse rw\n"
                     "7 1 0:10 / /lustre rw - lustre x rw\n"
                     "8 1 0:11 /a/.snap/v1 /bound ro - fuse.ceph-fuse ceph-fuse rw\n"));
    for (const char* path : {"/a", "/mfs/a", "/ceph/a", "/ceph/a.snap", "/lustre/a", "/lustre/.snap/a"}) {
        EXPECT_TRUE(mounts.numbers_files(path)) << path;
    }
    // (A client of CephFS numbers snapshots in the order in which it meets them.)
    for (const char* path :
         {"/squash/a", "/other/a", "/block/a", "/ceph/.snap", "/ceph/a/.snap/v1/a", "/bound/a"}) {
        EXPECT_FALSE(mounts.numbers_files(path)) << path;
    }
}

TEST(MountTable, KnowsWhereAFilesystemBegins) {
    const auto mounts = parse_mounts(
        "1 0 8:1 / / rw - ext4 x rw\n"
        "2 1 0:5 / /lustre rw - lustre x rw\n"
        "3 2 0:5 /a /lustre/bound rw - lustre x rw\n"
        "4 2 0:6 / /lustre/inner rw - nfs x rw\n");
    EXPECT_EQ(filesystem_root_of("/usr/lib", mounts), "/");
    EXPECT_EQ(filesystem_root_of("/lustre", mounts), "/lustre");
    EXPECT_EQ(filesystem_root_of("/lustre2/a", mounts), "/");
    EXPECT_EQ(filesystem_root_of("/lustre/inner/x", mounts), "/lustre/inner");
    EXPECT_EQ(filesystem_root_of("/lustre/bound/x", mounts), "/lustre") << "the same filesystem goes on";
    EXPECT_EQ(filesystem_root_of("/lustre", {}), "/");
}

TEST(MountTable, NamesTheFilesystemOfAPath) {
    const MountMap map(
        parse_mounts("1 0 8:1 / / rw - ext4 x rw\n"
                     "2 1 0:5 / /lustre rw - lustre x rw\n"
                     "3 1 0:5 /home /home rw - lustre x rw\n"
                     "4 2 0:6 / /lustre/inner rw - nfs x rw\n"
                     "5 4 0:7 / /lustre/inner rw - tmpfs x rw\n"));
    EXPECT_EQ(map.filesystem_of("/usr/lib"), "/");
    EXPECT_EQ(map.filesystem_of("/dev/shm"), "/");
    EXPECT_EQ(map.filesystem_of("/lustre/a"), "/lustre");
    EXPECT_EQ(map.filesystem_of("/lustre2"), "/");
    EXPECT_EQ(map.filesystem_of("/home/user"), "/lustre") << "mounted in two places, it hangs in both";
    EXPECT_EQ(map.filesystem_of("/lustre/inner/x"), "/lustre/inner");
    EXPECT_EQ(MountMap({}).filesystem_of("/lustre"), "/");
}

TEST(MountTable, KnowsWhereNotToWalk) {
    const MountMap map(parse_mounts(table));
    const auto kind = [&](std::string_view path) {
        const auto obstacle = map.obstacle(path);
        return obstacle ? obstacle->kind : Walk::allowed;
    };
    for (const auto* path :
         {"/proc", "/proc/1/maps", "/sys", "/dev", "/dev/null", "/dev/shm/x", "/jail/proc/1"}) {
        EXPECT_EQ(kind(path), Walk::kernel_filesystem) << path;
    }
    for (const auto* path : {"/tmp/me/copper", "/tmp/me/copper/usr/lib", "/home/my copper/x"}) {
        EXPECT_EQ(kind(path), Walk::copper_mount) << path;
    }
    for (const auto* path : {"/", "/tmp", "/tmp/me", "/tmp/me/copper2", "/home", "/processes", "/jail",
                             "/home/auto/x", "/data/x", "/a/proc"}) {
        EXPECT_EQ(kind(path), Walk::allowed) << path;
    }
    EXPECT_EQ(map.obstacle("/tmp/me/copper/usr/lib")->point, "/tmp/me/copper");
}

TEST(MountTable, KernelDirectoriesNeedNoMount) {
    const MountMap map({});
    EXPECT_EQ(map.obstacle("/proc/self")->kind, Walk::kernel_filesystem);
    EXPECT_EQ(map.obstacle("/sys")->kind, Walk::kernel_filesystem);
    EXPECT_EQ(map.obstacle("/dev")->kind, Walk::kernel_filesystem);
    EXPECT_FALSE(map.obstacle("/"));
    EXPECT_EQ(map.obstacles_in("/").size(), 3U);
}

TEST(MountTable, ListsObstaclesOfADirectory) {
    const MountMap map(parse_mounts(table));
    using Names = std::vector<std::pair<std::string, Walk>>;
    EXPECT_EQ(map.obstacles_in("/tmp/me"), (Names{{"copper", Walk::copper_mount}}));
    EXPECT_EQ(map.obstacles_in("/jail"), (Names{{"proc", Walk::kernel_filesystem}}));
    EXPECT_TRUE(map.obstacles_in("/tmp").empty());
    EXPECT_TRUE(map.obstacles_in("/dev").empty()) << "already inside one";
    EXPECT_EQ(map.obstacles_in("/").size(), 3U);
}

TEST(MountTable, AMountThatAnotherHidesIsNoObstacle) {
    const MountMap hidden_below(
        parse_mounts("1 0 8:1 / / rw - ext4 x rw\n"
                     "2 1 8:2 / /tmp/copper rw - fuse.copper x rw\n"
                     "3 1 8:3 / /tmp rw - tmpfs x rw\n"));
    EXPECT_FALSE(hidden_below.obstacle("/tmp/copper/a"));
    const MountMap stacked(
        parse_mounts("1 0 8:1 / / rw - ext4 x rw\n"
                     "2 1 8:2 / /a rw - fuse.copper x rw\n"
                     "3 2 8:3 / /a rw - tmpfs x rw\n"));
    EXPECT_FALSE(stacked.obstacle("/a"));
    const MountMap on_top(
        parse_mounts("1 0 8:1 / / rw - ext4 x rw\n"
                     "3 2 8:3 / /a rw - fuse.copper x rw\n"
                     "2 1 8:2 / /a rw - tmpfs x rw\n"));
    ASSERT_TRUE(on_top.obstacle("/a"));
    EXPECT_EQ(on_top.obstacle("/a/b")->kind, Walk::copper_mount);
}

// Others mount and unmount all the time; an opened file is still the one that the table described.
TEST(MountTable, TwoAgreeOnPlacesThatNoOtherMountLeadsTo) {
    const std::string before =
        "1 0 8:1 / / rw - ext4 x rw\n"
        "2 1 8:2 / /a rw - ext4 x rw\n";
    const MountMap map(parse_mounts(before));
    const MountMap more(parse_mounts(before + "3 2 8:3 / /a/b rw - tmpfs x rw\n"));
    for (const auto* place : {"/", "/a", "/a/bc", "/a/c/d", "/b"}) {
        EXPECT_TRUE(map.agrees(more, place) && more.agrees(map, place)) << place;
    }
    for (const auto* place : {"/a/b", "/a/b/c", "/a/b/c/d"}) {
        EXPECT_FALSE(map.agrees(more, place) || more.agrees(map, place)) << place;
    }
    const MountMap mounted_again(
        parse_mounts("1 0 8:1 / / rw - ext4 x rw\n"
                     "7 1 8:2 / /a rw - ext4 x rw\n"));
    EXPECT_TRUE(map.agrees(mounted_again, "/b"));
    EXPECT_FALSE(map.agrees(mounted_again, "/a/c"));
}

// It took the square of their number for each place, and so never ended.
TEST(MountTable, ManyMountsThatNoWalkReachesTakeNoTime) {
    constexpr int mounts = 6000;
    std::string text = "1 0 8:1 / / rw - ext4 x rw\n";
    for (int i = 0; i < mounts; ++i) {
        const auto id = std::to_string(10 + i);
        text += "1" + id + " 1" + id + "0 8:2 / / rw - ext4 x rw\n";
        text += "2" + id + " 1 8:3 / /a" + id + " rw - ext4 x rw\n";
    }
    text += "9 1 8:4 / /copper rw - fuse.copper x rw\n";
    EXPECT_TRUE(MountMap(parse_mounts(text)).obstacle("/copper"));
}

TEST(MountTable, InAChrootTheRootIsNoMount) {
    const MountMap map(parse_mounts("22 27 0:21 / /tmp/copper rw - fuse.copper x rw\n"));
    EXPECT_EQ(map.obstacle("/tmp/copper/a")->kind, Walk::copper_mount);
}

TEST(MountTable, SeesThisMachinesMounts) {
    const auto mounts = read_mounts();
    EXPECT_FALSE(mounts.empty());
    EXPECT_EQ(MountTable().walk("/proc/self"), Walk::kernel_filesystem);
    EXPECT_EQ(MountTable().walk("/usr"), Walk::allowed);
}

TEST(MountTable, FollowsChanges) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "mounting needs root";
    }
    const test::TemporaryDirectory directory;
    const auto reason = test::run_in_child([&]() -> std::optional<std::string> {
        if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
            return "no right to mount";
        }
        MountTable mounts;
        const auto path = directory.path() + "/x";
        EXPECT_EQ(mounts.walk(path), Walk::allowed);
        EXPECT_EQ(mounts.current(), mounts.current()) << "an unchanged table is parsed once";
        EXPECT_EQ(::mount("proc", directory.path().c_str(), "proc", 0, nullptr), 0);
        EXPECT_EQ(mounts.walk(path), Walk::kernel_filesystem);
        EXPECT_EQ(::umount2(directory.path().c_str(), 0), 0);
        EXPECT_EQ(mounts.walk(path), Walk::allowed);
        return std::nullopt;
    });
    if (reason) {
        GTEST_SKIP() << *reason;
    }
}

}  // namespace
}  // namespace copper
