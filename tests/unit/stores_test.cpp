// The simulator's backing filesystem answers as the real one does, in each kind of trouble: else what is
// simulated proves nothing.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <map>
#include <sstream>
#include <thread>

#include "cache/backing/posix_backing.hpp"
#include "tests/sim/simulated_store.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/coarse_filesystem.hpp"
#include "tests/support/faulty_filesystem.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper::sim {
namespace {

std::string told(const ObjectPtr& object) {
    std::ostringstream text;
    if (const Listing* listing = object->listing()) {
        text << (listing->has_attributes() ? "entries" : "names");
        for (std::size_t i = 0; i < listing->size(); ++i) {
            text << ' ' << listing->at(i).name;
        }
    } else if (const Extent* extent = object->extent()) {
        text << "bytes " << extent->plain_bytes;
    } else if (object->xattrs() != nullptr) {
        text << "attributes " << object->xattrs()->size();
    } else if (const XattrBatch* batch = object->xattr_batch()) {
        text << "batch with attributes " << batch->entries.size();
    } else if (const Directory* directory = object->directory()) {
        text << "directory of " << directory->entries << ':';
        for (std::size_t i = 0; i < directory->names.size(); ++i) {
            text << ' ' << directory->names.at(i).name << ' ' << directory->names.at(i).attributes.mode;
        }
        for (const std::string& first : directory->first_names) {
            text << " from " << first;
        }
    } else {
        text << object->error().message();
    }
    text << (object->lifetime ? " for " + std::to_string(object->lifetime->count()) + " ms" : " for ever");
    return text.str();
}

// Both stores, and the same tree in each: the simulated one's at /pfs, the real one's at `point`.
class Stores : public testing::TestWithParam<Trouble> {
  protected:
    void SetUp() override { ASSERT_EQ(::mkdir(point.c_str(), 0755), 0); }

    static bool mount_at(const std::string& where) {
        return ::mount("none", where.c_str(), "tmpfs", 0, nullptr) == 0;
    }
    std::string real(const std::string& path) const {
        return point + path.substr(SimulatedStore::root().size());
    }
    void fill(const std::string& root, bool submount_too) const {
        const StoreShape& shape = simulated.shape();
        for (std::uint32_t d = 0; d < shape.directories; ++d) {
            const auto directory = root + simulated.directory(d).substr(SimulatedStore::root().size());
            EXPECT_TRUE(::mkdir(directory.c_str(), 0755) == 0 || errno == EEXIST);
            for (std::uint32_t f = 0; f < shape.files_per_directory && (d != 0 || submount_too); ++f) {
                const auto name = "/" + SimulatedStore::file_name(f);
                const auto size = simulated.attributes(simulated.directory(d) + name, {}).size;
                test::write_file(directory + name, std::string(size, 'x'));
            }
        }
    }

    void compare(PosixBacking& backing) const {
        std::vector<std::string> paths = {SimulatedStore::root()};
        for (const auto& directory :
             {simulated.directory(0), simulated.directory(1), SimulatedStore::root() + "/no"}) {
            for (const auto* below : {"", "/f0", "/f1", "/absent", "/absent/deeper", "/f0/below"}) {
                paths.push_back(directory + below);
            }
        }
        for (const auto& path : paths) {
            for (const auto kind :
                 {ObjectKind::directory, ObjectKind::entry, ObjectKind::extent, ObjectKind::xattrs}) {
                const bool is_entry_of_root = path == SimulatedStore::root() && kind == ObjectKind::entry;
                if (is_entry_of_root && GetParam() != Trouble::unmounted) {
                    continue;  // its name differs
                }
                EXPECT_EQ(told(simulated.read({.kind = kind, .path = path}, {}, GetParam())),
                          told(backing.read({.kind = kind, .path = real(path)})))
                    << to_string({.kind = kind, .path = path});
            }
            compare_parts(backing, path);
        }
    }
    // What a directory's version is asked with: the one that each store tells, and one that it has not. (The
    // names of an only piece travel in the directory's own object; asked for themselves, they are told, too.)
    void compare_parts(PosixBacking& backing, const std::string& path) const {
        const auto version_of = [](const ObjectPtr& object) {
            return object->directory() != nullptr ? object->directory()->version : 1;
        };
        const std::uint64_t here = version_of(simulated.read({.path = path}, {}, GetParam()));
        const std::uint64_t there = version_of(backing.read({.path = real(path)}));
        const std::uint64_t other = 77;
        for (const auto kind :
             {ObjectKind::names, ObjectKind::batch, ObjectKind::xattr_batch, ObjectKind::acl_batch}) {
            for (const bool is_right : {true, false}) {
                const ObjectKey simulated_key{kind, path, 0, is_right ? here : other};
                const ObjectKey real_key{kind, real(path), 0, is_right ? there : other};
                EXPECT_EQ(told(simulated.read(simulated_key, {}, GetParam())), told(backing.read(real_key)))
                    << to_string(simulated_key);
            }
        }
    }

    std::optional<std::string> make_trouble_and_compare() {
        const Trouble trouble = GetParam();
        const std::string submount = real(simulated.directory(0));
        if (!mount_at(point)) {
            return "no tmpfs";
        }
        const std::map<Trouble, int> errors = {
            {Trouble::stale, ESTALE}, {Trouble::io_error, EIO}, {Trouble::ticket_expired, EACCES}};
        if (const auto error = errors.find(trouble); error != errors.end()) {
            const auto source = directory / "source";
            EXPECT_EQ(::mkdir(source.c_str(), 0755), 0);
            fill(source, true);
            test::FaultyFilesystem filesystem(source, point);
            if (!filesystem.is_mounted()) {
                return "no /dev/fuse";
            }
            PosixBacking backing{Trees({point})};
            filesystem.faults().everything = error->second;
            compare(backing);
            return std::nullopt;
        }
        if (trouble != Trouble::never_mounted) {
            const bool has_submount = trouble == Trouble::submount_unmounted;
            fill(point, !has_submount && trouble != Trouble::submount_never_mounted);
            if (has_submount) {
                EXPECT_TRUE(mount_at(submount));
                fill(point, true);
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(240));  // until its stamps have settled
        PosixBacking backing{Trees({point})};
        if (trouble == Trouble::unmounted || trouble == Trouble::submount_unmounted) {
            EXPECT_EQ(::umount2(trouble == Trouble::unmounted ? point.c_str() : submount.c_str(), 0), 0);
        }
        compare(backing);
        return std::nullopt;
    }

    const test::TemporaryDirectory directory;
    const std::string point = directory / "pfs";
    const SimulatedStore simulated{{.directories = 2, .files_per_directory = 2}};
};

INSTANTIATE_TEST_SUITE_P(In, Stores,
                         testing::Values(Trouble::none, Trouble::never_mounted,
                                         Trouble::submount_never_mounted, Trouble::unmounted,
                                         Trouble::submount_unmounted, Trouble::stale, Trouble::io_error,
                                         Trouble::ticket_expired));

TEST_P(Stores, AnswerAlike) {
    const auto reason = test::run_in_child([&]() -> std::optional<std::string> {
        ::alarm(60);
        auto missing = test::leave_mount_namespace();
        return missing ? missing : make_trouble_and_compare();
    });
    if (reason) {
        ASSERT_FALSE(test::must_not_skip()) << *reason;
        GTEST_SKIP() << *reason;
    }
}

}  // namespace
}  // namespace copper::sim
