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

#include "cache/backing/posix_backing.hpp"
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
        return backing.read({.kind = kind, .path = path});
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
            EXPECT_FALSE(first->lifetime);
            EXPECT_GE(took, milliseconds(1000)) << "it waited for the next second";
            EXPECT_FALSE(read(fresh, ObjectKind::directory, point)->lifetime);
        }
        static_cast<void>(backing);
    });
}

// There, and only there, listing takes a look at the entries.
TEST_F(BackingFaults, AFilesystemThatDoesNotTellTypesIsAskedForThem) {
    run_with_filesystem([&](test::FaultyFilesystem::Faults&, PosixBacking& backing) {
        write_file(source + "/file", "");
        ASSERT_EQ(::mkdir((source + "/sub").c_str(), 0755), 0);
        ASSERT_EQ(::symlink("file", (source + "/link").c_str()), 0);
        std::this_thread::sleep_for(milliseconds(240));
        const auto object = read(backing, ObjectKind::directory, point);
        ASSERT_NE(object->directory(), nullptr);
        const Listing& names = object->directory()->names;
        ASSERT_EQ(names.size(), 3U);
        EXPECT_EQ(names.at(0).attributes.mode, static_cast<std::uint32_t>(S_IFREG));
        EXPECT_EQ(names.at(1).attributes.mode, static_cast<std::uint32_t>(S_IFLNK));
        EXPECT_EQ(names.at(2).attributes.mode, static_cast<std::uint32_t>(S_IFDIR));
        EXPECT_EQ(backing.within_trees().listings, 1U);
        // The directory is looked at before and after; before once more, since nobody knows the filesystem's
        // clock.
        EXPECT_EQ(backing.within_trees().stats, 3U + 3U);
    });
}

TEST_F(BackingFaults, AFilesystemThatKnowsNoHolesHasDataEverywhere) {
    run_with_filesystem([&](test::FaultyFilesystem::Faults&, PosixBacking& backing) {
        write_file(source + "/hole", "");
        ASSERT_EQ(::truncate((source + "/hole").c_str(), 100000), 0);
        const auto object = read(backing, ObjectKind::data_map, point + "/hole");
        ASSERT_NE(object->data_map(), nullptr) << object->error().message();
        EXPECT_EQ(object->data_map()->segments, (std::vector<DataMap::Segment>{{0, 100000}}));
    });
}

TEST_F(BackingFaults, AnUnreadableAttributeIsNoMissingOne) {
    run_with_filesystem([&](test::FaultyFilesystem::Faults& faults, PosixBacking& backing) {
        write_file(source + "/file", "");
        ASSERT_EQ(::setxattr((source + "/file").c_str(), "user.one", "1", 1, 0), 0);
        const auto ask = [&] { return read(backing, ObjectKind::xattrs, point + "/file"); };
        for (const int error : {EIO, ESTALE, ETIMEDOUT, ENOMEM}) {
            faults.xattr_value = error;
            EXPECT_EQ(ask()->error().value(), error);
            EXPECT_EQ(ask()->lifetime, error_lifetime);
        }
        // Removed meanwhile, or not for this user.
        for (const int error : {ENODATA, EPERM, EOPNOTSUPP}) {
            faults.xattr_value = error;
            ASSERT_NE(ask()->xattrs(), nullptr) << error;
            EXPECT_EQ(ask()->xattrs()->size(), 0U);
        }
        faults.xattr_value = EACCES;  // of a file that this user may not read
        ASSERT_NE(ask()->xattrs(), nullptr);
        EXPECT_EQ(*ask()->xattrs(), (Xattrs{{"user.one", ""}}));
        faults.xattr_value = 0;
        EXPECT_EQ(*ask()->xattrs(), (Xattrs{{"user.one", "1"}}));
        faults.xattr_names = EIO;
        EXPECT_EQ(ask()->error().value(), EIO);
        // A filesystem without any says so, as long as the job runs.
        const auto listed = read(backing, ObjectKind::directory, point);
        for (const int error : {EOPNOTSUPP, ENOSYS}) {
            faults.xattr_names = error;
            const auto batch =
                backing.read({ObjectKind::xattr_batch, point, 0, listed->directory()->version});
            for (const ObjectPtr& none : {ask(), batch}) {
                EXPECT_EQ(none->error().value(), EOPNOTSUPP);
                EXPECT_FALSE(none->lifetime);
            }
        }
    });
}

// A list for the file's owner, one more user, the group and others, as setfacl(1) writes it.
std::string some_acl() {
    std::string acl("\2\0\0\0", 4);
    const auto add = [&acl](char tag, char rights, const std::string& id = std::string(4, '\xff')) {
        acl.append({tag, 0, rights, 0}).append(id);
    };
    add(0x01, 6);
    add(0x02, 4, std::string("\x39\x30\0\0", 4));
    add(0x04, 0);
    add(0x10, 4);
    add(0x20, 0);
    return acl;
}

TEST_F(BackingFaults, AccessControlListsThatAreNotListedAreAskedForByName) {
    run_with_filesystem([&](test::FaultyFilesystem::Faults& faults, PosixBacking& backing) {
        faults.hides_acls = true;
        for (const std::string name : {"file", "other"}) {
            write_file(source + "/" + name, "");
        }
        ASSERT_EQ(::symlink("file", (source + "/link").c_str()), 0);
        const std::string acl = some_acl();
        ASSERT_EQ(::setxattr((source + "/file").c_str(), acl_names[0], acl.data(), acl.size(), 0), 0);
        EXPECT_EQ(read(backing, ObjectKind::xattrs, point + "/file")->xattrs()->size(), 0U);

        const auto& counted = backing.within_trees().xattrs;
        std::uint64_t before = counted;
        const auto ask = [&](const std::string& name, AclType type = AclType::access) {
            return backing.read({ObjectKind::acl, point + name, static_cast<std::uint32_t>(type)});
        };
        ASSERT_NE(ask("/file")->xattrs(), nullptr);
        EXPECT_EQ(*ask("/file")->xattrs(), (Xattrs{{"system.posix_acl_access", acl}}));
        EXPECT_EQ(ask("/other")->xattrs()->size(), 0U);
        EXPECT_EQ(ask("", AclType::defaults)->xattrs()->size(), 0U);
        EXPECT_EQ(counted - before, 4U) << "one operation each";

        const auto listed = read(backing, ObjectKind::directory, point);
        const auto ask_all = [&] {
            return backing.read({ObjectKind::acl_batch, point, 0, listed->directory()->version});
        };
        before = counted;
        const auto batch = ask_all();
        ASSERT_NE(batch->xattr_batch(), nullptr);
        EXPECT_EQ(*batch->xattr_batch(), (XattrBatch{{{"file", Xattrs{{acl_names[0], acl}}}, {"link", {}}}}));
        EXPECT_EQ(counted - before, 2U) << "links are not asked";

        // A list that cannot be read is there all the same. That there are none at all stays true.
        faults.xattr_value = EACCES;
        EXPECT_EQ(ask("/file")->error().value(), EACCES);
        EXPECT_EQ(ask_all()->error().value(), EACCES);
        faults.xattr_value = EOPNOTSUPP;
        for (const ObjectPtr& none : {ask("/file"), ask_all()}) {
            EXPECT_EQ(none->error().value(), EOPNOTSUPP);
            EXPECT_FALSE(none->lifetime);
        }
    });
}

// One name's trouble, or one that has much, does not keep the others from travelling together.
TEST_F(BackingFaults, ABatchOfExtendedAttributesLeavesOutWhatIsToBeAskedForAlone) {
    run_with_filesystem([&](test::FaultyFilesystem::Faults& faults, PosixBacking& backing) {
        const auto set = [&](const std::string& name, const std::string& attribute, std::size_t bytes) {
            return ::setxattr((source + "/" + name).c_str(), attribute.c_str(),
                              std::string(bytes, 'v').data(), bytes, 0);
        };
        for (int i = 0; i < 1000; ++i) {
            write_file(source + "/f" + std::to_string(1000 + i), "");
        }
        ASSERT_EQ(set("f1003", "user.one", 5), 0);
        // Which filesystem is below decides how large an attribute may be.
        const std::size_t large = set("f1200", "user.large", 60000) == 0 ? 60000 : 3000;
        for (int i = 1000; i < 1400; ++i) {
            ASSERT_EQ(set("f" + std::to_string(i), "user.large", large), 0);
        }
        const auto listed = read(backing, ObjectKind::directory, point);
        ASSERT_NE(listed->directory(), nullptr);
        const auto read_batch = [&](std::uint32_t number) {
            return backing.read({ObjectKind::xattr_batch, point, number, listed->directory()->version});
        };
        const auto object = read_batch(0);
        const XattrBatch* batch = object->xattr_batch();
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(batch->entries.size(), 400U) << "the others have none";
        EXPECT_LT(object->bytes(), 1U << 20U);
        const auto is_told = [](const auto& entry) { return entry.xattrs.has_value(); };
        const auto told = std::count_if(batch->entries.begin(), batch->entries.end(), is_told);
        EXPECT_GT(told, 0);
        EXPECT_LT(told, 400);
        const auto second = read_batch(1);
        ASSERT_NE(second->xattr_batch(), nullptr);
        EXPECT_EQ(second->xattr_batch()->entries.size(), 0U);
        EXPECT_LT(second->bytes(), 1000U) << "names without attributes cost nothing";
        faults.xattr_value = EIO;
        const auto failing = read_batch(0);
        ASSERT_NE(failing->xattr_batch(), nullptr);
        EXPECT_EQ(failing->xattr_batch()->entries.size(), 400U);
        EXPECT_FALSE(failing->xattr_batch()->entries.at(0).xattrs) << "asked for alone, it gives the error";
        faults.everything = EIO;
        EXPECT_EQ(read_batch(0)->error().value(), EIO);
    });
}

TEST_F(BackingFaults, AMountThatIsGoneIsNoEmptyDirectory) {
    run([&]() -> std::optional<std::string> {
        const std::string sub = point + "/sub";
        const auto mount = [](const std::string& where) {
            return ::mount("none", where.c_str(), "tmpfs", 0, nullptr) == 0;
        };
        if (!mount(point)) {
            return "no tmpfs";
        }
        EXPECT_EQ(::mkdir(sub.c_str(), 0700), 0);
        write_file(point + "/file", "content");
        EXPECT_TRUE(mount(sub));
        write_file(sub + "/file", "content");
        PosixBacking backing{Trees({point})};
        const auto error = [&](ObjectKind kind, const std::string& path) {
            return read(backing, kind, path)->error().value();
        };
        EXPECT_EQ(read(backing, ObjectKind::directory, sub)->directory()->entries, 1U);

        EXPECT_EQ(::umount2(sub.c_str(), 0), 0);
        for (const auto kind : {ObjectKind::directory, ObjectKind::names, ObjectKind::batch,
                                ObjectKind::entry, ObjectKind::xattrs, ObjectKind::extent}) {
            EXPECT_EQ(error(kind, sub), ESTALE) << to_string({.kind = kind, .path = sub});
            EXPECT_EQ(error(kind, sub + "/file"), ESTALE) << to_string({.kind = kind, .path = sub});
        }
        const auto above = read(backing, ObjectKind::directory, point);
        EXPECT_EQ(above->directory()->entries, 2U);
        EXPECT_EQ(above->lifetime, doubtful_lifetime) << "the attributes of sub are not those of its mount";
        EXPECT_EQ(read(backing, ObjectKind::entry, point + "/file")->listing()->size(), 1U);

        EXPECT_TRUE(mount(sub));
        EXPECT_NE(read(backing, ObjectKind::directory, sub)->directory(), nullptr) << "mounted again";
        EXPECT_EQ(::umount2(sub.c_str(), 0), 0);
        EXPECT_EQ(error(ObjectKind::directory, sub), ESTALE);

        EXPECT_EQ(::umount2(point.c_str(), 0), 0);
        EXPECT_EQ(error(ObjectKind::directory, point), ESTALE) << "the tree's root";
        EXPECT_EQ(error(ObjectKind::entry, point + "/file"), ESTALE);
        return std::nullopt;
    });
}

// A missing directory is an error: it does not tell that the name is absent.
TEST_F(BackingFaults, NothingIsAbsentFromAMissingDirectory) {
    write_file(point + "/file", "");
    PosixBacking backing{Trees({point})};
    for (const auto& [path, error] : {std::pair{"/gone/name", ENOENT}, {"/file/name", ENOTDIR}}) {
        const auto object = read(backing, ObjectKind::entry, point + path);
        EXPECT_EQ(object->error().value(), error) << path;
        EXPECT_EQ(object->lifetime, error_lifetime);
    }
    const auto absent = read(backing, ObjectKind::entry, point + "/name");
    ASSERT_NE(absent->listing(), nullptr);
    EXPECT_EQ(absent->listing()->size(), 0U);
    EXPECT_FALSE(absent->lifetime);
}

// Mounts a tmpfs with one file wherever the kernel asks it to, until it is killed. `requests` is the pipe.
[[noreturn]] void automount(const std::string& directory, const UniqueFd& requests) {
    autofs_v5_packet packet{};
    UniqueFd root;
    while (::read(requests.get(), &packet, sizeof packet) > 0) {
        if (!root) {
            root = UniqueFd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        }
        const std::string place = directory + "/" + packet.name;
        ::mkdir(place.c_str(), 0700);
        if (::mount("none", place.c_str(), "tmpfs", 0, nullptr) == 0) {
            write_file(place + "/file", "content");
        }
        ::ioctl(root.get(), AUTOFS_IOC_READY, static_cast<unsigned long>(packet.wait_queue_token));
    }
    ::_exit(0);
}

TEST_F(BackingFaults, WhatAnAutomounterUnmountsIsNotLost) {
    run([&]() -> std::optional<std::string> {
        int ends[2];
        if (::pipe(ends) != 0) {
            return "no pipe";
        }
        UniqueFd requests(ends[0]);
        UniqueFd kernels(ends[1]);
        const auto automounter = ::fork();
        if (automounter == 0) {
            ::setpgid(0, 0);
            kernels.reset();
            automount(point, requests);
        }
        ::setpgid(automounter, automounter);
        const auto options = "fd=" + std::to_string(kernels.get()) + ",pgrp=" + std::to_string(automounter) +
                             ",minproto=5,maxproto=5,indirect";
        const bool is_mounted = ::mount("automounter", point.c_str(), "autofs", 0, options.c_str()) == 0;
        const std::string host = point + "/host";
        if (is_mounted) {
            PosixBacking backing{Trees({host})};
            for (int round = 0; round < 3; ++round) {
                const auto listed = read(backing, ObjectKind::directory, host);
                EXPECT_TRUE(listed->directory() != nullptr && listed->directory()->entries == 1)
                    << listed->error().message();
                EXPECT_FALSE(listed->lifetime);
                EXPECT_EQ(::umount2(host.c_str(), 0), 0) << "idle for long";
                EXPECT_EQ(read(backing, ObjectKind::entry, host)->listing()->size(), 1U);
                EXPECT_FALSE(read(backing, ObjectKind::directory, point)->lifetime);
            }
        }
        ::kill(automounter, SIGKILL);
        ::waitpid(automounter, nullptr, 0);
        return is_mounted ? std::nullopt : std::optional<std::string>("no autofs");
    });
}

}  // namespace
}  // namespace copper
