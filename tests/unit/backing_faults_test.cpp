// What PosixBacking makes of a filesystem that fails, goes away, or has a clock of its own.
#include <gtest/gtest.h>
#include <linux/auto_fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "cache/backing.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/coarse_filesystem.hpp"
#include "tests/support/faulty_filesystem.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;
using test::write_file;

class BackingFaults : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(::mkdir(source.c_str(), 0700), 0);
        ASSERT_EQ(::mkdir(point.c_str(), 0700), 0);
    }

    // `part` runs in a process with mounts of its own.
    template <typename Part>
    void run(Part part) {
        const auto reason = test::run_in_child([&]() -> std::optional<std::string> {
            ::alarm(60);
            auto missing = test::leave_mount_namespace();
            return missing ? missing : part();
        });
        if (reason) {
            ASSERT_FALSE(test::must_not_skip()) << *reason;
            GTEST_SKIP() << *reason;
        }
    }

    // `part` gets the filesystem, which is mounted at `point` and shows `source`.
    template <typename Part>
    void run_with_filesystem(Part part) {
        run([&]() -> std::optional<std::string> {
            test::FaultyFilesystem filesystem(source, point);
            if (!filesystem.is_mounted()) {
                return "no /dev/fuse";
            }
            PosixBacking backing{Trees({point})};
            part(filesystem.faults(), backing);
            return std::nullopt;
        });
    }

    static ObjectPtr read(PosixBacking& backing, ObjectKind kind, const std::string& path) {
        return backing.read({.kind = kind, .path = path}, nullptr);
    }

    const test::TemporaryDirectory directory;
    const std::string source = directory / "source";
    const std::string point = directory / "point";
};

// A server whose clock is minutes behind: what changed just now looks old. It is not kept until two readings,
// some time apart, have found it unchanged.
TEST_F(BackingFaults, AServersClockIsNotThisNodes) {
    run_with_filesystem([&](test::FaultyFilesystem::Faults& faults, PosixBacking& backing) {
        write_file(source + "/file", "1");
        faults.whole_seconds = true;
        for (const long ahead : {-200L, 0L, 200L}) {
            faults.seconds_ahead = ahead;
            PosixBacking fresh{Trees({point})};
            write_file(source + "/file", "2");
            const auto before = std::chrono::steady_clock::now();
            const auto first = read(fresh, ObjectKind::extent, point + "/file");
            const auto took = std::chrono::steady_clock::now() - before;
            ASSERT_NE(first->extent(), nullptr);
            if (ahead < 0) {
                EXPECT_EQ(first->lifetime, unproven_lifetime);
                EXPECT_EQ(read(fresh, ObjectKind::listing, point)->lifetime, unproven_lifetime);
                std::this_thread::sleep_for(milliseconds(1100));
            } else {
                EXPECT_FALSE(first->lifetime);
                EXPECT_GE(took, milliseconds(1000)) << "it waited for the next second";
            }
            EXPECT_FALSE(read(fresh, ObjectKind::extent, point + "/file")->lifetime);
        }
        static_cast<void>(backing);
    });
}

}  // namespace
}  // namespace copper
