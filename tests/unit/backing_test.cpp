#include "cache/backing/posix_backing.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/path.hpp"
#include "cache/backing/calls.hpp"
#include "cache/cache.hpp"
#include "cache/names.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/coarse_filesystem.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;
using test::write_file;

std::string text_of(const ObjectPtr& object) {
    const Extent* extent = object->extent();
    if (extent == nullptr) {
        ADD_FAILURE() << object->error().message();
        return {};
    }
    if (extent->coding == Coding::zeros) {
        return std::string(extent->plain_bytes, '\0');
    }
    const auto bytes = extent->blob.span();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file changed a moment ago is looked at twice; tests that count calls let it come to rest.
void let_settle() {
    std::this_thread::sleep_for(milliseconds(240));
}

void expect_same(const Attributes& attributes, const std::string& path) {
    SCOPED_TRACE(path);
    struct stat status {};
    ASSERT_EQ(::lstat(path.c_str(), &status), 0);
    EXPECT_EQ(attributes.inode, status.st_ino);
    EXPECT_EQ(attributes.size, static_cast<std::uint64_t>(status.st_size));
    EXPECT_EQ(attributes.blocks, static_cast<std::uint64_t>(status.st_blocks));
    EXPECT_EQ(attributes.device, status.st_rdev);
    EXPECT_EQ(attributes.mode, status.st_mode);
    EXPECT_EQ(attributes.links, status.st_nlink);
    EXPECT_EQ(attributes.user, status.st_uid);
    EXPECT_EQ(attributes.group, status.st_gid);
    EXPECT_EQ(attributes.block_bytes, static_cast<std::uint32_t>(status.st_blksize));
    EXPECT_EQ(attributes.modified.seconds, status.st_mtim.tv_sec);
    EXPECT_EQ(attributes.modified.nanoseconds, static_cast<std::uint32_t>(status.st_mtim.tv_nsec));
    EXPECT_EQ(attributes.changed.seconds, status.st_ctim.tv_sec);
}

class Backing : public testing::TestWithParam<PathOpener::Method> {
  protected:
    ObjectPtr read(ObjectKind kind, const std::string& path, std::uint32_t index = 0,
                   std::uint64_t version = 0) {
        return backing.read({.kind = kind, .path = path, .index = index, .version = version});
    }
    // All names of a directory, out of its pieces; nothing if one is not available.
    std::vector<std::string> names_of(PosixBacking& from, const std::string& path, const Directory& listed) {
        std::vector<std::string> names;
        for (std::uint32_t i = 0; i < listed.first_names.size(); ++i) {
            const auto piece = from.read({ObjectKind::names, path, i, listed.version});
            if (piece->listing() == nullptr || !listed.fits(i, *piece->listing())) {
                return {};
            }
            for (std::size_t j = 0; j < piece->listing()->size(); ++j) {
                names.emplace_back(piece->listing()->at(j).name);
            }
        }
        return names;
    }
    // Hard links, which are made much faster than files; sorted.
    std::vector<std::string> fill(std::size_t count, std::size_t name_bytes = 0) {
        std::vector<std::string> names;
        for (std::size_t i = 0; i < count; ++i) {
            std::string name = std::to_string(i);
            name.append(name_bytes - std::min(name_bytes, name.size()), 'x');
            if (i % 1000 == 0) {
                write_file(directory / name, "");
            } else {
                EXPECT_EQ(::link((directory / names[i / 1000 * 1000]).c_str(), (directory / name).c_str()),
                          0);
            }
            names.push_back(std::move(name));
        }
        std::sort(names.begin(), names.end());
        let_settle();
        return names;
    }
    // The names that a directory's own object holds.
    Listing names_in(const std::string& path) {
        const ObjectPtr object = read(ObjectKind::directory, path);
        EXPECT_NE(object->directory(), nullptr) << path << ": " << object->error().message();
        return object->directory() != nullptr ? object->directory()->names : Listing();
    }
    // The attributes of a directory's first entries.
    Listing batch_of(const std::string& path) {
        const ObjectPtr object = read(ObjectKind::directory, path);
        EXPECT_NE(object->directory(), nullptr) << path << ": " << object->error().message();
        const ObjectPtr batch = object->directory() != nullptr
                                    ? read(ObjectKind::batch, path, 0, object->directory()->version)
                                    : object;
        EXPECT_NE(batch->listing(), nullptr) << path << ": " << batch->error().message();
        return batch->listing() != nullptr ? *batch->listing() : Listing();
    }
    ObjectPtr read_entry(const std::string& path) { return read(ObjectKind::entry, path); }
    std::string error_of(ObjectKind kind, const std::string& path) {
        return read(kind, path)->error().message();
    }
    static std::string message(int error) { return std::generic_category().message(error); }

    bool has_open(const std::string& path) const {
        for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            if (std::filesystem::read_symlink(fd.path(), gone) == path) {
                return true;
            }
        }
        return false;
    }

    const test::TemporaryDirectory directory;
    PosixBacking backing{Trees({directory.path()}), GetParam()};
    const BackingCounters& counters = backing.within_trees();
};

INSTANTIATE_TEST_SUITE_P(Openat2, Backing, testing::Values(PathOpener::detect()));
INSTANTIATE_TEST_SUITE_P(OldKernel, Backing, testing::Values(PathOpener::Method::resolve_first));

TEST_P(Backing, ListsEveryFileTypeWithItsAttributes) {
    write_file(directory / "file", "content");
    write_file(directory / "empty", "");
    ASSERT_EQ(::link((directory / "file").c_str(), (directory / "hard").c_str()), 0);
    ASSERT_EQ(::mkdir((directory / "sub").c_str(), 0750), 0);
    ASSERT_EQ(::symlink("no where\n\xff", (directory / "link").c_str()), 0);
    ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
    ASSERT_EQ(::mknod((directory / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
    std::set<std::string> names = {"file", "empty", "hard", "sub", "link", "fifo", "socket"};
    if (::mknod((directory / "device").c_str(), S_IFCHR | 0600, ::makedev(1, 3)) == 0) {
        names.insert("device");
    }
    const auto object = read(ObjectKind::directory, directory.path());
    ASSERT_NE(object->directory(), nullptr);
    EXPECT_FALSE(object->lifetime);
    EXPECT_TRUE(object->directory()->has_all_names());
    const Listing& named = object->directory()->names;
    EXPECT_FALSE(named.has_attributes());
    const Listing listing = batch_of(directory.path());
    EXPECT_TRUE(listing.has_attributes());
    ASSERT_EQ(named.size(), names.size());
    ASSERT_EQ(listing.size(), names.size());
    for (std::size_t i = 0; i < listing.size(); ++i) {
        const auto entry = listing.at(i);
        EXPECT_EQ(named.at(i).name, entry.name);
        EXPECT_EQ(named.at(i).attributes.inode, entry.attributes.inode) << entry.name;
        EXPECT_EQ(named.at(i).attributes.mode, entry.attributes.mode & S_IFMT) << entry.name;
        EXPECT_EQ(names.erase(std::string(entry.name)), 1U) << entry.name;
        expect_same(entry.attributes, directory / entry.name);
        EXPECT_EQ(entry.target, entry.name == "link" ? "no where\n\xff" : "");
        const auto single = read_entry(directory / entry.name);
        ASSERT_EQ(single->listing()->size(), 1U);
        EXPECT_EQ(single->listing()->at(0).name, entry.name);
        EXPECT_EQ(version_of(single->listing()->at(0).attributes), version_of(entry.attributes));
        EXPECT_EQ(single->listing()->at(0).target, entry.target);
    }
}

TEST_P(Backing, NamesAreBytes) {
    const std::vector<std::string> names = {"new\nline",   " ",     "\xff\xfe",
                                            "back\\slash", "\"q\"", std::string(255, 'x')};
    for (const auto& name : names) {
        write_file(directory / name, name);
    }
    const Listing found = names_in(directory.path());
    ASSERT_EQ(found.size(), names.size());
    for (const auto& name : names) {
        EXPECT_TRUE(found.find(name)) << name;
        EXPECT_EQ(text_of(read(ObjectKind::extent, directory / name)), name);
    }
}

TEST_P(Backing, EmptyDirectory) {
    const auto object = read(ObjectKind::directory, directory.path());
    ASSERT_NE(object->directory(), nullptr);
    EXPECT_EQ(object->directory()->entries, 0U);
    EXPECT_NE(object->directory()->version, 0U);
    EXPECT_TRUE(object->directory()->has_all_names());
    EXPECT_EQ(batch_of(directory.path()).size(), 0U);
}

TEST_P(Backing, TheRootHasAnEntry) {
    const auto object = read_entry("/");
    ASSERT_EQ(object->listing()->size(), 1U);
    expect_same(object->listing()->at(0).attributes, "/");
}

TEST_P(Backing, AbsentIsAnAnswerForEntries) {
    const auto object = read_entry(directory / "absent");
    ASSERT_NE(object->listing(), nullptr);
    EXPECT_EQ(object->listing()->size(), 0U);
    EXPECT_FALSE(object->lifetime);
}

TEST_P(Backing, ErrorsAreTheFilesystems) {
    write_file(directory / "file", "");
    ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
    ASSERT_EQ(::mknod((directory / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
    ASSERT_EQ(::symlink("file", (directory / "link").c_str()), 0);
    EXPECT_EQ(error_of(ObjectKind::directory, directory / "absent"), message(ENOENT));
    EXPECT_EQ(error_of(ObjectKind::directory, directory / "file"), message(ENOTDIR));
    EXPECT_EQ(error_of(ObjectKind::directory, directory / "link"), message(ENOTDIR));
    EXPECT_EQ(error_of(ObjectKind::batch, directory / "absent"), message(ENOENT));
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "absent"), message(ENOENT));
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "file/below"), message(ENOTDIR));
    EXPECT_EQ(error_of(ObjectKind::extent, directory.path()), message(EISDIR));
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "fifo"), message(EINVAL));
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "socket"), message(ENXIO));
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "link"), message(ELOOP));
    EXPECT_EQ(error_of(ObjectKind::xattrs, directory / "absent"), message(ENOENT));
    EXPECT_FALSE(has_open(directory.path()));
    EXPECT_FALSE(has_open(directory / "fifo"));
}

TEST_P(Backing, ReadsFilesExtentByExtent) {
    std::string content(2 * extent_bytes + 1000, '\0');
    for (std::size_t i = 0; i < content.size(); ++i) {
        content[i] = static_cast<char>(i * 31 + i / 4099);
    }
    write_file(directory / "file", content);
    write_file(directory / "exact", content.substr(0, extent_bytes));
    write_file(directory / "empty", "");
    std::string joined;
    for (std::uint32_t i = 0; i < 3; ++i) {
        const auto object = read(ObjectKind::extent, directory / "file", i);
        joined += text_of(object);
        expect_same(object->extent()->attributes, directory / "file");
        EXPECT_FALSE(object->lifetime);
    }
    EXPECT_TRUE(joined == content);
    EXPECT_TRUE(text_of(read(ObjectKind::extent, directory / "exact")) == content.substr(0, extent_bytes));
    EXPECT_EQ(text_of(read(ObjectKind::extent, directory / "exact", 1)), "");
    EXPECT_EQ(text_of(read(ObjectKind::extent, directory / "empty")), "");
    EXPECT_EQ(text_of(read(ObjectKind::extent, directory / "file", 3)), "");
    EXPECT_EQ(text_of(read(ObjectKind::extent, directory / "file", 0xffffffffU)), "");
}

TEST_P(Backing, HolesReadAsZeros) {
    write_file(directory / "sparse", "x");
    ASSERT_EQ(::truncate((directory / "sparse").c_str(), 3 * extent_bytes), 0);
    EXPECT_TRUE(text_of(read(ObjectKind::extent, directory / "sparse", 1)) ==
                std::string(extent_bytes, '\0'));
    EXPECT_EQ(text_of(read(ObjectKind::extent, directory / "sparse", 0)).substr(0, 2), std::string("x\0", 2));
}

TEST_P(Backing, ExtentsOfZerosHaveNoBytes) {
    write_file(directory / "zeros", std::string(extent_bytes + 10, '\0'));
    write_file(directory / "almost", std::string(9, '\0') + "x");
    for (const std::uint32_t i : {0U, 1U}) {
        const auto object = read(ObjectKind::extent, directory / "zeros", i);
        EXPECT_EQ(object->extent()->coding, Coding::zeros);
        EXPECT_EQ(object->extent()->blob.size, 0U);
        EXPECT_EQ(text_of(object).size(), i == 0 ? extent_bytes : 10U);
    }
    EXPECT_EQ(read(ObjectKind::extent, directory / "almost")->extent()->coding, Coding::plain);
}

TEST_P(Backing, TellsTheSpaceOfAFilesystem) {
    ASSERT_EQ(::symlink("/nowhere", (directory / "link").c_str()), 0);
    struct statvfs expected {};
    ASSERT_EQ(::statvfs(directory.path().c_str(), &expected), 0);
    for (const std::string& path : {directory.path(), directory / "link"}) {
        const auto object = read(ObjectKind::space, path);
        ASSERT_NE(object->space(), nullptr) << object->error().message();
        EXPECT_EQ(object->space()->blocks, expected.f_blocks);
        EXPECT_EQ(object->space()->fragment_bytes, expected.f_frsize);
        EXPECT_EQ(object->space()->files, expected.f_files);
        EXPECT_EQ(object->space()->name_bytes_max, expected.f_namemax);
        EXPECT_EQ(object->lifetime, doubtful_lifetime);
    }
    EXPECT_EQ(error_of(ObjectKind::space, directory / "absent"), message(ENOENT));
}

std::vector<DataMap::Segment> segments_of(const ObjectPtr& object) {
    if (object->data_map() == nullptr) {
        ADD_FAILURE() << object->error().message();
        return {};
    }
    return object->data_map()->segments;
}

TEST_P(Backing, TellsWhereAFileHasData) {
    constexpr std::uint64_t page = 1U << 16U;  // no filesystem's blocks are larger
    const auto make = [&](const char* name, std::uint64_t size, std::vector<std::uint64_t> pages) {
        write_file(directory / name, "");
        const UniqueFd file(::open((directory / name).c_str(), O_WRONLY));
        for (const std::uint64_t begin : pages) {
            const std::string data(page, 'd');
            EXPECT_EQ(::pwrite(file.get(), data.data(), page, static_cast<off_t>(begin * page)),
                      static_cast<ssize_t>(page));
        }
        EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
        return read(ObjectKind::data_map, directory / name);
    };
    using Segments = std::vector<DataMap::Segment>;
    EXPECT_EQ(segments_of(make("empty", 0, {})), Segments());
    EXPECT_EQ(segments_of(make("hole", 4 * page, {})), Segments());
    EXPECT_EQ(segments_of(make("full", 2 * page - 5, {0, 1})), (Segments{{0, 2 * page - 5}}));
    EXPECT_EQ(segments_of(make("islands", 8 * page, {1, 2, 5})),
              (Segments{{page, 3 * page}, {5 * page, 6 * page}}));
    EXPECT_EQ(segments_of(make("end", 3 * page + 7, {2})), (Segments{{2 * page, 3 * page}}));
    const auto object = read(ObjectKind::data_map, directory / "islands");
    expect_same(object->data_map()->attributes, directory / "islands");
    EXPECT_FALSE(object->lifetime);
    EXPECT_EQ(counters.bytes, 0U);
    EXPECT_EQ(error_of(ObjectKind::data_map, directory.path()), message(EISDIR));
    EXPECT_EQ(error_of(ObjectKind::data_map, directory / "absent"), message(ENOENT));
}

TEST_P(Backing, AMapOfManySegmentsTakesTheRestForData) {
    constexpr std::uint64_t step = 1U << 17U;
    constexpr std::uint64_t size = (DataMap::segments_max + 10) * step;
    write_file(directory / "comb", "");
    const UniqueFd file(::open((directory / "comb").c_str(), O_WRONLY));
    for (std::uint64_t at = 0; at < size; at += step) {
        ASSERT_EQ(::pwrite(file.get(), "x", 1, static_cast<off_t>(at)), 1);
    }
    ASSERT_EQ(::ftruncate(file.get(), size), 0);
    const auto segments = segments_of(read(ObjectKind::data_map, directory / "comb"));
    ASSERT_EQ(segments.size(), DataMap::segments_max);
    EXPECT_LT(segments[0].end, step);
    EXPECT_EQ(segments.back().end, size);
}

TEST_P(Backing, CountsExactlyTheCallsMade) {
    if (GetParam() == PathOpener::Method::resolve_first) {
        GTEST_SKIP() << "path resolution adds its own readlinks";
    }
    write_file(directory / "a", "12345");
    write_file(directory / "big", std::string(extent_bytes + 1, 'b'));
    ASSERT_EQ(::symlink("a", (directory / "l").c_str()), 0);
    let_settle();
    read(ObjectKind::directory, directory.path());
    EXPECT_EQ(counters.listings, 1U);
    EXPECT_EQ(counters.stats, 2U) << "the directory before and after";
    EXPECT_EQ(counters.readlinks, 0U);
    batch_of(directory.path());
    EXPECT_EQ(counters.listings, 1U) << "it has not changed";
    EXPECT_EQ(counters.stats, 3U + 3U) << "the directory once more, and each entry";
    EXPECT_EQ(counters.readlinks, 1U);
    read(ObjectKind::extent, directory / "a");
    EXPECT_EQ(counters.file_opens, 1U);
    EXPECT_EQ(counters.reads, 1U);
    EXPECT_EQ(counters.bytes, 5U);
    EXPECT_EQ(counters.stats, 6U + 2U);
    read(ObjectKind::extent, directory / "big", 0);
    read(ObjectKind::extent, directory / "big", 1);
    EXPECT_EQ(counters.file_opens, 2U);
    EXPECT_EQ(counters.reads, 3U);
    EXPECT_EQ(counters.bytes, 5U + extent_bytes + 1);
    read_entry(directory / "a");
    read_entry(directory / "l");
    read_entry(directory / "absent");
    EXPECT_EQ(counters.stats, 8U + 4U + 3U);
    EXPECT_EQ(counters.readlinks, 2U);
    EXPECT_EQ(counters.listings, 1U);
    EXPECT_EQ(backing.outside_trees().stats, 0U);
    read_entry("/usr");
    EXPECT_EQ(backing.outside_trees().stats, 1U);
}

// However many entries it has: none of them is asked for anything.
TEST_P(Backing, AListingCostsWhatListingCosts) {
    std::size_t entries = 0;
    for (const std::size_t more : {std::size_t{1}, std::size_t{9}, std::size_t{490}, std::size_t{2500}}) {
        for (std::size_t i = 0; i < more; ++i, ++entries) {
            const std::string path = directory / ("entry" + std::to_string(entries));
            if (entries % 3 == 0) {
                ASSERT_EQ(::symlink("target", path.c_str()), 0);
            } else {
                write_file(path, "");
            }
        }
        let_settle();
        PosixBacking own(Trees({directory.path()}), GetParam());
        const ObjectPtr object = own.read({.kind = ObjectKind::directory, .path = directory.path()});
        ASSERT_NE(object->directory(), nullptr);
        EXPECT_EQ(object->directory()->entries, entries);
        EXPECT_EQ(own.within_trees().listings, 1U);
        EXPECT_EQ(own.within_trees().stats, 2U) << "of the directory itself, before and after";
        EXPECT_EQ(own.within_trees().file_opens, 0U);
        EXPECT_EQ(own.within_trees().xattrs, 0U);
        if (GetParam() != PathOpener::Method::resolve_first) {
            EXPECT_EQ(own.within_trees().readlinks, 0U);
        }
        // Again, while it has not changed.
        own.read({.kind = ObjectKind::directory, .path = directory.path()});
        EXPECT_EQ(own.within_trees().listings, 1U);
        EXPECT_EQ(own.within_trees().stats, 3U);
    }
}

// It is what evidence is asked for by: see cache/batch_evidence.hpp.
TEST_P(Backing, ALocalFilesystemAnswersAtOnce) {
    write_file(directory / "a", "");
    auto least = std::chrono::microseconds::max();
    for (int i = 0; i < 100; ++i) {
        PosixBacking own(Trees({directory.path()}), GetParam());
        const ObjectPtr object = own.read({.kind = ObjectKind::directory, .path = directory.path()});
        ASSERT_NE(object->directory(), nullptr);
        least = std::min(least, object->directory()->operation_time);
    }
    EXPECT_EQ(least.count(), 0) << "nothing is waited for";
}

TEST_P(Backing, AHugeDirectoryComesInPiecesAndBatches) {
    const auto names = fill(9000);
    const auto object = read(ObjectKind::directory, directory.path());
    ASSERT_NE(object->directory(), nullptr);
    const Directory& listed = *object->directory();
    EXPECT_EQ(listed.entries, names.size());
    EXPECT_FALSE(listed.has_all_names());
    EXPECT_EQ(names_of(backing, directory.path(), listed), names);
    EXPECT_EQ(read(ObjectKind::names, directory.path(), 0, listed.version)->listing()->at(5).attributes.mode,
              static_cast<std::uint32_t>(S_IFREG));
    EXPECT_EQ(counters.stats, 2U) << "only the directory itself";
    std::size_t seen = 0;
    for (std::uint32_t i = 0; i * batch_entries < names.size(); ++i) {
        const auto batch = read(ObjectKind::batch, directory.path(), i, listed.version);
        ASSERT_NE(batch->listing(), nullptr);
        EXPECT_TRUE(batch->listing()->has_attributes());
        for (std::size_t j = 0; j < batch->listing()->size(); ++j) {
            EXPECT_EQ(batch->listing()->at(j).name, names[seen + j]);
        }
        seen += batch->listing()->size();
    }
    EXPECT_EQ(seen, names.size());
    EXPECT_EQ(counters.stats, 2U + names.size());
    EXPECT_EQ(counters.listings, 1U);
    EXPECT_EQ(read(ObjectKind::batch, directory.path(), 1000, listed.version)->listing()->size(), 0U);
    EXPECT_TRUE(read(ObjectKind::names, directory.path(), 1000, listed.version)->error());
}

// Who has not read the directory: the next reader, after the first one is lost.
TEST_P(Backing, AnotherNodeCutsTheSamePiecesAndReadsTheDirectoryOnce) {
    const auto names = fill(20000);
    const auto object = read(ObjectKind::directory, directory.path());
    PosixBacking next(Trees({directory.path()}), GetParam());
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back(
            [&] { right += names_of(next, directory.path(), *object->directory()) == names ? 1 : 0; });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(right, 8);
    EXPECT_EQ(next.within_trees().listings, 1U);
    const auto batch = next.read({ObjectKind::batch, directory.path(), 3, object->directory()->version});
    EXPECT_EQ(batch->listing()->at(7).name, names[3 * batch_entries + 7]);
}

TEST_P(Backing, PiecesOfTwoVersionsAreNeverMixed) {
    auto names = fill(9000);
    const Directory before = *read(ObjectKind::directory, directory.path())->directory();
    ASSERT_EQ(::rename((directory / names[4000]).c_str(), (directory / "later").c_str()), 0);
    let_settle();
    EXPECT_EQ(names_of(backing, directory.path(), before), names) << "the reader keeps what it has listed";

    // Another node finds other names there.
    names[4000] = "later";
    std::sort(names.begin(), names.end());
    PosixBacking next(Trees({directory.path()}), GetParam());
    for (std::uint32_t i = 0; i < before.first_names.size(); ++i) {
        const auto piece = next.read({ObjectKind::names, directory.path(), i, before.version});
        ASSERT_NE(piece->directory(), nullptr);
        EXPECT_NE(piece->directory()->version, before.version);
        EXPECT_EQ(piece->lifetime, error_lifetime);
        EXPECT_EQ(names_of(next, directory.path(), *piece->directory()), names);
    }
    for (const auto kind : {ObjectKind::batch, ObjectKind::xattr_batch, ObjectKind::acl_batch}) {
        const auto batch = next.read({kind, directory.path(), 0, before.version});
        EXPECT_EQ(batch->error().value(), EAGAIN);
        EXPECT_EQ(batch->lifetime, error_lifetime);
    }
    EXPECT_EQ(next.within_trees().listings, 1U);
}

// A directory of several pieces that somebody writes into, and a reader that does not have the names of the
// version that a node asks for.
TEST_P(Backing, ANameThatWasMissedInAHugeDirectoryAppearsWhenTheDoubtEnds) {
    fill(piece_entries + 100);
    const ObjectPtr before = read(ObjectKind::directory, directory.path());
    ASSERT_EQ(before->directory()->first_names.size(), 2U);
    PosixBacking next(Trees({directory.path()}), GetParam());
    TimePoint time{std::chrono::hours(1)};
    Cache cache({.budget_bytes = 1U << 30U, .clock = [&] { return time; }},
                [&](const ObjectKey& key, FetchFor) { cache.deliver(key, next.read(key)); });
    cache.deliver({ObjectKind::directory, directory.path()}, before);
    const auto is_present = [&](const std::string& name) {
        std::optional<bool> found;
        find_name(cache, directory.path(), name,
                  [&](const NameFound& told) { found = std::holds_alternative<Present>(told); });
        return found.value_or(false);
    };
    {
        std::atomic<bool> is_over = false;
        std::thread writer([&] {
            for (int i = 0; !is_over; ++i) {
                write_file(directory / ("written" + std::to_string(i)), "");
                std::this_thread::sleep_for(milliseconds(3));
            }
        });
        while (!std::filesystem::exists(directory / "written0")) {
            std::this_thread::sleep_for(milliseconds(1));
        }
        EXPECT_FALSE(is_present("written-last"));
        is_over = true;
        writer.join();
    }
    write_file(directory / "written-last", "");
    let_settle();
    time += doubtful_lifetime;
    EXPECT_TRUE(is_present("written-last"));
    time += doubtful_lifetime;
    const auto listings = next.within_trees().listings.load();
    EXPECT_FALSE(is_present("absent"));
    EXPECT_EQ(next.within_trees().listings, listings) << "it is proven now, so the job keeps it";
}

TEST_P(Backing, ExtendedAttributesOfAHugeDirectoryComeByThePositionAmongItsNames) {
    fill(8500);
    const std::string with = "~last";
    write_file(directory / with, "");
    if (::setxattr((directory / with).c_str(), "user.a", "1", 1, 0) != 0) {
        GTEST_SKIP() << "no extended attributes here";
    }
    let_settle();
    const std::uint64_t version = read(ObjectKind::directory, directory.path())->directory()->version;
    for (std::uint32_t i = 0; i <= 8500 / batch_entries + 1; ++i) {
        const auto object = read(ObjectKind::xattr_batch, directory.path(), i, version);
        ASSERT_NE(object->xattr_batch(), nullptr);
        XattrBatch expected;
        if (i == 8500 / batch_entries) {
            expected.entries = {{with, Xattrs{{"user.a", "1"}}}};
        }
        EXPECT_EQ(*object->xattr_batch(), expected) << i;
    }
    EXPECT_EQ(backing.within_trees().listings, 1U);
}

TEST_P(Backing, AHugeDirectoryThatIsSmallByNow) {
    const auto names = fill(9000);
    const Directory before = *read(ObjectKind::directory, directory.path())->directory();
    for (std::size_t i = 10; i < names.size(); ++i) {
        ASSERT_EQ(::unlink((directory / names[i]).c_str()), 0);
    }
    let_settle();
    PosixBacking next(Trees({directory.path()}), GetParam());
    const auto piece = next.read({ObjectKind::names, directory.path(), 0, before.version});
    ASSERT_NE(piece->directory(), nullptr);
    EXPECT_TRUE(piece->directory()->has_all_names());
    EXPECT_EQ(piece->directory()->entries, 10U);
    EXPECT_EQ(piece->lifetime, error_lifetime);
}

// The names of an only piece are in the directory's own object; its batches have a version all the same.
TEST_P(Backing, ASmallDirectoryHasBatchesOfItsNames) {
    const auto names = fill(600);
    const Directory before = *read(ObjectKind::directory, directory.path())->directory();
    EXPECT_EQ(names_of(backing, directory.path(), before), names) << "also asked for as a piece";
    const auto batch = [&](std::uint32_t number) {
        return read(ObjectKind::batch, directory.path(), number, before.version);
    };
    ASSERT_NE(batch(0)->listing(), nullptr);
    EXPECT_EQ(batch(0)->listing()->size(), batch_entries);
    EXPECT_EQ(batch(1)->listing()->size(), 600 - batch_entries);
    EXPECT_EQ(batch(2)->listing()->size(), 0U);
    EXPECT_FALSE(batch(1)->lifetime);
    // Who has listed it before a name came goes on with the names that it told.
    write_file(directory / "later", "");
    let_settle();
    const Directory now = *read(ObjectKind::directory, directory.path())->directory();
    EXPECT_NE(now.version, before.version);
    EXPECT_EQ(now.entries, 601U);
    EXPECT_EQ(batch(0)->listing()->size(), batch_entries);
    PosixBacking next(Trees({directory.path()}), GetParam());
    const auto unknown = next.read({ObjectKind::batch, directory.path(), 0, before.version});
    EXPECT_EQ(unknown->error().value(), EAGAIN);
    EXPECT_EQ(unknown->lifetime, error_lifetime);
}

TEST_P(Backing, NoObjectOfADirectoryIsTooLargeToTravel) {
    const auto expect_small = [](const ObjectPtr& object) {
        EXPECT_LE(object->bytes(), object_bytes_max);
        EXPECT_FALSE(object->error());
    };
    const auto names = fill(5000, 255);
    const auto object = read(ObjectKind::directory, directory.path());
    ASSERT_NE(object->directory(), nullptr);
    expect_small(object);
    const std::uint64_t version = object->directory()->version;
    for (std::uint32_t i = 0; i < object->directory()->first_names.size(); ++i) {
        expect_small(read(ObjectKind::names, directory.path(), i, version));
    }
    expect_small(read(ObjectKind::batch, directory.path(), 0, version));
    EXPECT_EQ(names_of(backing, directory.path(), *object->directory()), names);

    ASSERT_EQ(::mkdir((directory / "links").c_str(), 0755), 0);
    for (int i = 0; i < 600; ++i) {
        const std::string link = directory / ("links/" + std::to_string(i));
        ASSERT_EQ(::symlink(std::string(4000, 't').c_str(), link.c_str()), 0);
    }
    let_settle();
    const auto links = read(ObjectKind::directory, directory / "links");
    ASSERT_NE(links->directory(), nullptr);
    expect_small(links);
    const auto batch = read(ObjectKind::batch, directory / "links", 0, links->directory()->version);
    expect_small(batch);
    EXPECT_GT(batch->listing()->size(), 50U) << "those that it leaves out are asked for alone";
    EXPECT_LT(batch->listing()->size(), batch_entries);
}

TEST_P(Backing, ABatchIsStattedByManyThreads) {
    constexpr std::size_t files = batch_entries;
    for (std::size_t i = 0; i < files; ++i) {
        write_file(directory / std::to_string(i), std::string(i, 'x'));
    }
    let_settle();
    const Listing batch = batch_of(directory.path());
    ASSERT_EQ(batch.size(), files);
    for (std::size_t i = 0; i < files; ++i) {
        const auto at = batch.find(std::to_string(i));
        ASSERT_TRUE(at);
        EXPECT_EQ(batch.at(*at).attributes.size, i);
    }
    EXPECT_EQ(counters.stats, files + 2U);
}

TEST_P(Backing, ABatchLeavesOutWhatIsGone) {
    const auto names = fill(9000);
    const auto object = read(ObjectKind::directory, directory.path());
    ASSERT_EQ(::unlink((directory / names[0]).c_str()), 0);
    let_settle();  // the other names of that file have changed, too
    const auto batch = read(ObjectKind::batch, directory.path(), 0, object->directory()->version);
    ASSERT_EQ(batch->listing()->size(), batch_entries - 1);
    EXPECT_EQ(batch->listing()->at(0).name, names[1]);
}

TEST_P(Backing, AnotherUserGetsThePermissionsOfTheFilesystem) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "becoming another user needs root";
    }
    write_file(directory / "secret", "s");
    ASSERT_EQ(::chmod((directory / "secret").c_str(), 0), 0);
    for (const auto& [name, mode] :
         {std::pair{"only_names", 0744U}, std::pair{"only_search", 0711U}, {"closed", 0700U}}) {
        ASSERT_EQ(::mkdir((directory / name).c_str(), 0700), 0);
        write_file(directory / (std::string(name) + "/file"), "f");
        ASSERT_EQ(::chmod((directory / name).c_str(), mode), 0);
    }
    ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
    test::run_in_child([&]() -> std::optional<std::string> {
        EXPECT_EQ(::setgid(65534), 0);
        EXPECT_EQ(::setuid(65534), 0);
        EXPECT_EQ(error_of(ObjectKind::extent, directory / "secret"), message(EACCES));
        const auto names = read(ObjectKind::directory, directory / "only_names");
        const std::uint64_t version = names->directory() != nullptr ? names->directory()->version : 0;
        EXPECT_TRUE(names->directory() != nullptr && names->directory()->names.size() == 1 &&
                    names->directory()->names.at(0).attributes.mode == S_IFREG);
        EXPECT_EQ(error_of(ObjectKind::entry, directory / "only_names/file"), message(EACCES));
        const auto batch = read(ObjectKind::batch, directory / "only_names", 0, version);
        EXPECT_TRUE(batch->listing() != nullptr && batch->listing()->size() == 0);
        EXPECT_EQ(error_of(ObjectKind::directory, directory / "only_search"), message(EACCES));
        EXPECT_EQ(text_of(read(ObjectKind::extent, directory / "only_search/file")), "f");
        EXPECT_EQ(read_entry(directory / "only_search/file")->listing()->size(), 1U);
        EXPECT_EQ(error_of(ObjectKind::directory, directory / "closed"), message(EACCES));
        EXPECT_EQ(error_of(ObjectKind::entry, directory / "closed/file"), message(EACCES));
        return std::nullopt;
    });
}

TEST_P(Backing, AFileOfManyExtentsIsOpenedOnceUnderManyThreads) {
    constexpr std::uint32_t extents = 24;
    constexpr std::uint32_t threads = 8;
    const auto path = directory / "big";
    std::string content;
    for (std::uint32_t i = 0; i < extents; ++i) {
        content += std::string(extent_bytes, static_cast<char>('a' + i));
    }
    write_file(path, content);
    let_settle();
    std::barrier start(threads);
    std::vector<std::thread> readers;
    for (std::uint32_t t = 0; t < threads; ++t) {
        readers.emplace_back([&, t] {
            start.arrive_and_wait();
            for (std::uint32_t i = t; i < extents; i += threads) {
                EXPECT_TRUE(text_of(read(ObjectKind::extent, path, i)) ==
                            std::string(extent_bytes, static_cast<char>('a' + i)));
            }
        });
    }
    for (auto& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(counters.file_opens, 1U);
    EXPECT_EQ(counters.reads, extents);
    EXPECT_FALSE(has_open(path)) << "all extents have been read";
}

TEST_P(Backing, AFileStaysOfOneVersionWhileItIsOpen) {
    const auto path = directory / "big";
    write_file(path, std::string(2 * extent_bytes, '1'));
    EXPECT_EQ(text_of(read(ObjectKind::extent, path, 0)).front(), '1');
    EXPECT_TRUE(has_open(path));
    write_file(directory / "new", std::string(2 * extent_bytes, '2'));
    ASSERT_EQ(::rename((directory / "new").c_str(), path.c_str()), 0);
    EXPECT_EQ(text_of(read(ObjectKind::extent, path, 1)).front(), '1');
    EXPECT_EQ(text_of(read(ObjectKind::extent, path, 1)).front(), '2')
        << "it was closed with its last extent";
}

TEST_P(Backing, AnotherVersionThanTheWantedOneIsKeptIfItIsWhole) {
    for (const std::size_t bytes : {std::size_t{1}, static_cast<std::size_t>(extent_bytes) + 1}) {
        const auto path = directory / std::to_string(bytes);
        write_file(path, std::string(bytes, '1'));
        const auto first = read(ObjectKind::extent, path);
        ObjectKey key{.kind = ObjectKind::extent,
                      .path = path,
                      .version = hash_of(version_of(first->extent()->attributes))};
        EXPECT_FALSE(backing.read(key)->lifetime);
        write_file(path, std::string(bytes, '2'));
        const auto other = backing.read(key);
        EXPECT_EQ(text_of(other).front(), '2');
        EXPECT_EQ(other->lifetime, bytes == 1 ? std::nullopt : std::optional(error_lifetime));
        key.version = hash_of(version_of(other->extent()->attributes));
        EXPECT_FALSE(backing.read(key)->lifetime);
    }
}

TEST_P(Backing, NoMoreThanSomeFilesStayOpen) {
    constexpr std::size_t open_max = 64;
    constexpr std::size_t files = open_max + 10;
    for (std::size_t i = 0; i < files; ++i) {
        const auto path = directory / std::to_string(i);
        write_file(path, "");
        ASSERT_EQ(::truncate(path.c_str(), 2 * extent_bytes), 0);
    }
    let_settle();
    for (std::size_t i = 0; i < files; ++i) {
        read(ObjectKind::extent, directory / std::to_string(i), 0);
    }
    std::size_t open = 0;
    for (std::size_t i = 0; i < files; ++i) {
        open += has_open(directory / std::to_string(i)) ? 1U : 0U;
    }
    EXPECT_EQ(open, open_max);
    EXPECT_FALSE(has_open(directory / "0")) << "the least recently used goes first";
}

bool is_uniform(const std::string& text) {
    return text.find_first_not_of(text.empty() ? '\0' : text.front()) == std::string::npos;
}

// Whatever else the machine does, there is enough to judge by in the end.
constexpr std::chrono::seconds patience{60};

// Writes versions, each filled with one byte of its own, while `read_file` is called again and again.
template <typename Write, typename Read, typename Enough>
void read_while_written(Write write, Read read_file, Enough is_enough) {
    std::atomic<bool> done = false;
    std::thread writer([&] {
        for (char version = 'a'; !done; version = version == 'z' ? 'a' : static_cast<char>(version + 1)) {
            write(version);
            if (version % 8 == 0) {
                std::this_thread::sleep_for(milliseconds(500));  // so that some reads find a file at rest
            }
        }
    });
    const auto started = std::chrono::steady_clock::now();
    const auto time = [started] { return std::chrono::steady_clock::now() - started; };
    while (time() < milliseconds(1500) || (!is_enough() && time() < patience)) {
        read_file();
    }
    done = true;
    writer.join();
}

TEST_P(Backing, NeverMixesVersionsThatAreRenamedOver) {
    const auto path = directory / "file";
    std::size_t reads = 0;
    write_file(path, "a");
    read_while_written(
        [&](char version) {
            write_file(directory / "new",
                       std::string(65536 + static_cast<std::size_t>(version) * 16, version));
            EXPECT_EQ(::rename((directory / "new").c_str(), path.c_str()), 0);
        },
        [&] {
            const auto object = read(ObjectKind::extent, path);
            if (object->error().value() == EAGAIN) {
                return;
            }
            const auto text = text_of(object);
            EXPECT_TRUE(is_uniform(text));
            EXPECT_FALSE(text.empty());
            ++reads;
        },
        [&] { return reads > 3; });
    EXPECT_GT(reads, 3U);
}

// Its size may be that of a moment in the middle of a change.
TEST_P(Backing, ABatchOfFilesThatHaveJustChangedIsNoEmptyDirectory) {
    write_file(directory / "file", "");
    let_settle();
    const std::uint64_t version = read(ObjectKind::directory, directory.path())->directory()->version;
    write_file(directory / "file", "x");
    const auto batch = read(ObjectKind::batch, directory.path(), 0, version);
    EXPECT_EQ(batch->error().value(), EAGAIN) << "which no reader doubts";
    EXPECT_TRUE(batch->lifetime);
}

TEST_P(Backing, AttributesOfAFileThatIsBeingWrittenAreKeptForAMoment) {
    const auto path = directory / "file";
    write_file(path, "");
    write_file(directory / "other", "");
    let_settle();
    const std::uint64_t version = read(ObjectKind::directory, directory.path())->directory()->version;
    const auto names_in_batch = [&] {
        return read(ObjectKind::batch, directory.path(), 0, version)->listing()->size();
    };
    {
        std::atomic<bool> is_over = false;
        std::thread writer([&] {
            const UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
            while (!is_over) {
                EXPECT_EQ(::write(file.get(), "x", 1), 1);
                std::this_thread::sleep_for(milliseconds(2));
            }
        });
        std::this_thread::sleep_for(milliseconds(10));
        EXPECT_EQ(read(ObjectKind::entry, path)->lifetime, doubtful_lifetime);
        EXPECT_EQ(names_in_batch(), 1U) << "who wants it asks for it alone";
        EXPECT_EQ(read(ObjectKind::extent, path)->error().value(), EAGAIN);
        is_over = true;
        writer.join();
    }
    let_settle();
    EXPECT_FALSE(read(ObjectKind::entry, path)->lifetime);
    EXPECT_EQ(names_in_batch(), 2U);
    EXPECT_FALSE(read(ObjectKind::extent, path)->lifetime);
}

TEST_P(Backing, NeverGivesAMixOfVersionsThatAreWrittenInPlace) {
    const auto path = directory / "file";
    write_file(path, "a");
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    std::size_t kept = 0;
    read_while_written(
        [&](char version) {
            const std::string content(65536, version);
            EXPECT_EQ(::pwrite(file.get(), content.data(), content.size(), 0),
                      static_cast<ssize_t>(content.size()));
        },
        [&] {
            const auto object = read(ObjectKind::extent, path);
            if (object->error()) {
                EXPECT_EQ(object->error().value(), EAGAIN) << "it never came to rest";
            } else {
                ++kept;
                EXPECT_FALSE(object->lifetime);
                EXPECT_TRUE(is_uniform(text_of(object)));
            }
        },
        [&] { return kept > 0; });
    EXPECT_GT(kept, 0U);
}

// Waits until a new second has just begun.
void await_next_second() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::this_thread::sleep_for(std::chrono::ceil<std::chrono::seconds>(now) - now + milliseconds(5));
}

constexpr int rounds_max = 30;  // until one of the reads could be kept

// Stamps of whole seconds: a file that is written twice within one second looks as if it was written once.
TEST_P(Backing, NeverKeepsAMixOfVersionsOfOneSecond) {
    const auto reason = test::run_in_child([&]() -> std::optional<std::string> {
        ::alarm(300);
        if (auto missing = test::mount_coarse_filesystem(directory)) {
            return missing;
        }
        constexpr std::size_t files = 24;
        constexpr std::size_t bytes = extent_bytes;
        constexpr std::size_t piece = 16384;
        const std::string coarse = directory / "coarse";
        const auto path = [&](std::size_t i) { return coarse + "/" + std::to_string(i); };
        const std::string before(bytes, 'a');
        const std::string after(bytes, 'b');
        for (std::size_t i = 0; i < files; ++i) {
            write_file(path(i), before);  // so that all have their blocks
        }
        PosixBacking mine(Trees({coarse}), GetParam());
        std::size_t kept = 0;
        for (int round = 0; kept == 0 && round < rounds_max; ++round) {
            await_next_second();
            const auto next_second =
                std::chrono::ceil<std::chrono::seconds>(std::chrono::system_clock::now());
            for (std::size_t i = 0; i < files; ++i) {
                const UniqueFd file(::open(path(i).c_str(), O_WRONLY | O_CLOEXEC));
                EXPECT_EQ(::pwrite(file.get(), before.data(), bytes, 0), static_cast<ssize_t>(bytes));
            }
            std::this_thread::sleep_for(milliseconds(40));
            std::vector<ObjectPtr> objects(files);
            std::vector<std::thread> readers;
            for (std::size_t i = 0; i < files; ++i) {
                readers.emplace_back(
                    [&, i] { objects[i] = mine.read({.kind = ObjectKind::extent, .path = path(i)}); });
            }
            for (std::size_t at = 0; at < bytes; at += piece) {
                for (std::size_t i = 0; i < files; ++i) {
                    const UniqueFd file(::open(path(i).c_str(), O_WRONLY | O_CLOEXEC));
                    EXPECT_EQ(::pwrite(file.get(), after.data(), piece, static_cast<off_t>(at)),
                              static_cast<ssize_t>(piece));
                }
            }
            // Written for longer, the file may come to rest in the middle, and that is a version.
            const bool is_of_one_second = std::chrono::system_clock::now() < next_second;
            for (auto& reader : readers) {
                reader.join();
            }
            for (const auto& object : objects) {
                if (is_of_one_second && !object->error()) {
                    ++kept;
                    EXPECT_TRUE(is_uniform(text_of(object)));
                }
            }
        }
        EXPECT_GT(kept, 0U);
        return std::nullopt;
    });
    if (reason) {
        ASSERT_FALSE(test::must_not_skip()) << *reason;
        GTEST_SKIP() << *reason;
    }
}

// A name moves while the directory is read, in the second in which the directory changed before.
TEST_P(Backing, NeverKeepsAListingOfSeveralMomentsOfOneSecond) {
    const auto reason = test::run_in_child([&]() -> std::optional<std::string> {
        ::alarm(300);
        if (auto missing = test::mount_coarse_filesystem(directory)) {
            return missing;
        }
        constexpr int stable = 4000;  // too many for one call of the kernel's
        const std::string coarse = directory / "coarse/";
        write_file(coarse + "0", "");
        for (int i = 1; i < stable; ++i) {
            EXPECT_EQ(::link((coarse + "0").c_str(), (coarse + std::to_string(i)).c_str()), 0);
        }
        write_file(coarse + "moves0", "");
        PosixBacking mine(Trees({directory / "coarse"}), GetParam());
        int kept = 0;
        for (int round = 0; round < 3 || (kept == 0 && round < rounds_max); ++round) {
            await_next_second();
            write_file(coarse + "new" + std::to_string(round), "");
            std::this_thread::sleep_for(milliseconds(40));
            ObjectPtr object;
            std::atomic<bool> done = false;
            std::thread reader([&] {
                object = mine.read({.kind = ObjectKind::directory, .path = directory / "coarse"});
                done = true;
            });
            // For a part of the second, so that the directory comes to rest on a slow machine, too.
            const auto end = std::chrono::steady_clock::now() + milliseconds(500);
            while (!done && std::chrono::steady_clock::now() < end) {
                EXPECT_EQ(::rename((coarse + "moves0").c_str(), (coarse + "moves1").c_str()), 0);
                EXPECT_EQ(::rename((coarse + "moves1").c_str(), (coarse + "moves0").c_str()), 0);
            }
            reader.join();
            if (!object->lifetime) {
                ++kept;
                EXPECT_EQ(object->directory()->entries,
                          static_cast<std::uint64_t>(stable + 2 + round + 1))  // and lost+found
                    << "moves0 or moves1, not both or none";
            }
        }
        EXPECT_GT(kept, 0);
        return std::nullopt;
    });
    if (reason) {
        ASSERT_FALSE(test::must_not_skip()) << *reason;
        GTEST_SKIP() << *reason;
    }
}

TEST_P(Backing, AListingIsOfOneMoment) {
    // A name moves between two; a listing must hold exactly one of them. Only if it moved at every attempt to
    // read the directory, the listing may be of no moment.
    for (int i = 0; i < 200; ++i) {
        write_file(directory / ("stable" + std::to_string(i)), "");
    }
    write_file(directory / "0", "");
    std::atomic<int> started = 0;
    std::atomic<int> finished = 0;
    std::atomic<bool> done = false;
    std::thread mover([&] {
        while (!done) {
            const int i = started++;
            EXPECT_EQ(::rename((directory / std::to_string(i % 2)).c_str(),
                               (directory / std::to_string((i + 1) % 2)).c_str()),
                      0);
            ++finished;
            std::this_thread::sleep_for(milliseconds(i % 8 * 60));
        }
    });
    int exact = 0;
    const auto test_started = std::chrono::steady_clock::now();
    const auto time = [test_started] { return std::chrono::steady_clock::now() - test_started; };
    while (time() < milliseconds(1500) || (exact == 0 && time() < patience)) {
        const int finished_before = finished;
        const auto object = read(ObjectKind::directory, directory.path());
        const int moves_max = started - finished_before;
        ASSERT_NE(object->directory(), nullptr);
        if (moves_max < read_attempts_max) {
            EXPECT_EQ(object->directory()->entries, 201U);
            ++exact;
        }
    }
    done = true;
    mover.join();
    EXPECT_GT(exact, 0);
}

TEST_P(Backing, TellsWhichAbsoluteLinksLeadIntoTheTrees) {
    const std::string outside = directory.path();
    const std::string tree = directory / "tree";
    for (const auto* name : {"tree", "tree/sub", "other"}) {
        ASSERT_EQ(::mkdir((directory / name).c_str(), 0700), 0);
    }
    ASSERT_EQ(::symlink("tree/sub", (directory / "alias").c_str()), 0);
    ASSERT_EQ(::symlink((outside + "/other").c_str(), (tree + "/away").c_str()), 0);
    const std::map<std::string, std::pair<std::string, bool>> links{
        {"plain", {tree + "/sub", true}},
        {"itself", {tree, true}},
        {"untidy", {outside + "//./tree/", true}},
        {"dangling", {tree + "/no/where", true}},
        {"beside", {tree + "-not", false}},
        {"outside", {outside + "/other", false}},
        {"dangling outside", {outside + "/no/where", false}},
        {"relative", {"sub", false}},
        {"by alias", {outside + "/alias/x", true}},
        {"climbs out", {tree + "/sub/../../other", false}},
        {"climbs in", {outside + "/other/../tree/sub", true}},
        {"climbs behind a link", {tree + "/away/../tree", true}},
        {"kernel", {"/proc/self", false}},
        {"loop", {tree + "/loop", true}}};
    for (const auto& [name, link] : links) {
        ASSERT_EQ(::symlink(link.first.c_str(), (tree + "/" + name).c_str()), 0);
    }
    PosixBacking own(Trees({tree}), GetParam());
    const auto listed = own.read({.kind = ObjectKind::directory, .path = tree});
    ASSERT_NE(listed->directory(), nullptr);
    const auto listing =
        own.read({.kind = ObjectKind::batch, .path = tree, .version = listed->directory()->version});
    ASSERT_NE(listing->listing(), nullptr);
    for (const auto& [name, link] : links) {
        const auto at = listing->listing()->find(name);
        ASSERT_TRUE(at) << name;
        EXPECT_EQ(listing->listing()->at(*at).leads_into_trees, link.second) << name;
        const auto entry = own.read({.kind = ObjectKind::entry, .path = tree + "/" + name});
        EXPECT_EQ(entry->listing()->at(0).leads_into_trees, link.second) << name;
    }
    PosixBacking everything(Trees({"/"}), GetParam());
    const auto kernel = everything.read({.kind = ObjectKind::entry, .path = tree + "/kernel"});
    EXPECT_FALSE(kernel->listing()->at(0).leads_into_trees);
}

TEST_P(Backing, ReadsExtendedAttributes) {
    const auto path = directory / "file";
    write_file(path, "");
    const auto none = read(ObjectKind::xattrs, path);
    ASSERT_NE(none->xattrs(), nullptr);
    if (::setxattr(path.c_str(), "user.one", "1\0x", 3, 0) != 0) {
        GTEST_SKIP() << "no extended attributes in " << directory.path();
    }
    ASSERT_EQ(::setxattr(path.c_str(), "user.empty", "", 0, 0), 0);
    const auto object = read(ObjectKind::xattrs, path);
    auto xattrs = *object->xattrs();
    std::sort(xattrs.begin(), xattrs.end());
    EXPECT_EQ(xattrs, (Xattrs{{"user.empty", ""}, {"user.one", std::string("1\0x", 3)}}));
    EXPECT_EQ(counters.xattrs, 1U + 3U);
    ASSERT_EQ(::symlink("file", (directory / "link").c_str()), 0);
    EXPECT_TRUE(read(ObjectKind::xattrs, directory / "link")->xattrs()->empty()) << "links are not followed";
}

TEST_P(Backing, KernelFilesystemsAreNotThere) {
    for (const auto* path : {"/proc", "/sys", "/dev"}) {
        ASSERT_NE(read_entry(path)->listing(), nullptr);
        EXPECT_EQ(read_entry(path)->listing()->size(), 0U) << path;
    }
    for (const auto* path : {"/proc/version", "/dev/null"}) {
        EXPECT_EQ(error_of(ObjectKind::entry, path), message(ENOENT));
    }
    for (const auto* path : {"/proc", "/sys", "/dev", "/proc/version", "/dev/null"}) {
        EXPECT_EQ(error_of(ObjectKind::directory, path), message(ENOENT));
        EXPECT_EQ(error_of(ObjectKind::extent, path), message(ENOENT));
        EXPECT_EQ(error_of(ObjectKind::xattrs, path), message(ENOENT));
    }
    const Listing root = names_in("/");
    EXPECT_FALSE(root.find("proc"));
    EXPECT_FALSE(root.find("dev"));
    EXPECT_TRUE(root.find("usr"));
    const Listing entries = batch_of("/");
    EXPECT_FALSE(entries.find("proc"));
    EXPECT_TRUE(entries.find("usr"));
}

TEST_P(Backing, LinksOnTheWayAreFollowedWithCare) {
    ASSERT_EQ(::mkdir((directory / "real").c_str(), 0700), 0);
    ASSERT_EQ(::mkdir((directory / "real/deep").c_str(), 0700), 0);
    write_file(directory / "real/file", "content");
    ASSERT_EQ(::symlink("real/deep/..", (directory / "relative").c_str()), 0);
    ASSERT_EQ(::symlink((directory / "relative").c_str(), (directory / "absolute").c_str()), 0);
    ASSERT_EQ(::symlink("/proc", (directory / "kernel").c_str()), 0);
    ASSERT_EQ(::symlink("round", (directory / "round").c_str()), 0);
    for (const auto* way : {"relative", "absolute"}) {
        EXPECT_EQ(text_of(read(ObjectKind::extent, directory / (std::string(way) + "/file"))), "content");
        EXPECT_EQ(read_entry(directory / (std::string(way) + "/file"))->listing()->size(), 1U);
        const auto deep = read(ObjectKind::directory, directory / (std::string(way) + "/deep"));
        ASSERT_NE(deep->directory(), nullptr);
        EXPECT_EQ(deep->directory()->entries, 0U);
    }
    EXPECT_EQ(read_entry(directory / "relative/absent")->listing()->size(), 0U);
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "kernel/version"), message(ENOENT));
    EXPECT_EQ(error_of(ObjectKind::entry, directory / "kernel/version"), message(ENOENT));
    EXPECT_EQ(error_of(ObjectKind::extent, directory / "round/file"), message(ELOOP));
}

TEST_P(Backing, LinksOnTheWayAreRefusedWhereTheyCouldLeadADaemonOfRoot) {
    ASSERT_EQ(::mkdir((directory / "real").c_str(), 0700), 0);
    ASSERT_EQ(::mkdir((directory / "real/deep").c_str(), 0700), 0);
    write_file(directory / "real/file", "content");
    ASSERT_EQ(::symlink("real", (directory / "link").c_str()), 0);
    PosixBacking careful{Trees({directory.path()}), GetParam(), ExtentMemory::make(),
                         PathOpener::Links::refuse};
    const auto read_carefully = [&](ObjectKind kind, const std::string& path) {
        return careful.read({.kind = kind, .path = path});
    };
    EXPECT_EQ(text_of(read_carefully(ObjectKind::extent, directory / "real/file")), "content");
    EXPECT_EQ(read_carefully(ObjectKind::directory, directory / "real")->directory()->entries, 2U);
    const ObjectPtr link = read_carefully(ObjectKind::entry, directory / "link");
    ASSERT_EQ(link->listing()->size(), 1U);
    EXPECT_EQ(link->listing()->at(0).target, "real");
    EXPECT_EQ(read_carefully(ObjectKind::extent, directory / "link/file")->error().value(), ELOOP);
    EXPECT_EQ(read_carefully(ObjectKind::directory, directory / "link/deep")->error().value(), ELOOP);
    EXPECT_EQ(read_carefully(ObjectKind::entry, directory / "link/file")->error().value(), ELOOP);
    EXPECT_EQ(read_carefully(ObjectKind::xattrs, directory / "link/file")->error().value(), ELOOP);
}

// Mounts "Copper" with a server that never answers: whoever asks it anything hangs.
std::optional<std::string> mount_mute_copper(const std::string& point, const UniqueFd& device) {
    if (!device || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return "no /dev/fuse or no right to mount";
    }
    const auto options = "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
    if (::mount("copperd", point.c_str(), "fuse.copper", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
        return "mount: " + std::generic_category().message(errno);
    }
    return std::nullopt;
}

TEST_P(Backing, ACopperMountIsNeverAsked) {
    ASSERT_EQ(::mkdir((directory / "mirror").c_str(), 0700), 0);
    write_file(directory / "file", "");
    ASSERT_EQ(::symlink("mirror", (directory / "link").c_str()), 0);
    const auto mirror = directory / "mirror";
    const auto reason = test::run_in_child([&]() -> std::optional<std::string> {
        ::alarm(20);
        UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
        if (auto missing = mount_mute_copper(mirror, device)) {
            return missing;
        }
        PosixBacking mine(Trees({directory.path()}), GetParam());  // of the child's own mount table
        const auto ask = [&](ObjectKind kind, const std::string& path) {
            return mine.read({.kind = kind, .path = path});
        };
        for (int alive = 1; alive >= 0; --alive) {
            const auto entry = ask(ObjectKind::entry, mirror);
            EXPECT_TRUE(entry->listing() != nullptr && entry->listing()->size() == 1);
            EXPECT_EQ(entry->listing()->at(0).attributes.mode, S_IFDIR | 0555U);
            const auto listed = ask(ObjectKind::directory, directory.path());
            EXPECT_TRUE(listed->directory() != nullptr && listed->directory()->entries == 3);
            const auto named = listed->directory()->names.find("mirror");
            EXPECT_TRUE(named && listed->directory()->names.at(*named).attributes.mode == S_IFDIR);
            const auto listing = mine.read({.kind = ObjectKind::batch,
                                            .path = directory.path(),
                                            .version = listed->directory()->version});
            EXPECT_TRUE(listing->listing() != nullptr && listing->listing()->size() == 3);
            const auto at = listing->listing()->find("mirror");
            EXPECT_TRUE(at && listing->listing()->at(*at).attributes.mode == (S_IFDIR | 0555U));
            for (const auto& path : {mirror, mirror + "/usr", directory / "link/usr"}) {
                for (const auto kind : {ObjectKind::directory, ObjectKind::names, ObjectKind::batch,
                                        ObjectKind::extent, ObjectKind::xattrs, ObjectKind::xattr_batch}) {
                    EXPECT_EQ(ask(kind, path)->error().message(), message(ELOOP))
                        << to_string({.kind = kind, .path = path});
                }
            }
            EXPECT_EQ(ask(ObjectKind::entry, mirror + "/usr")->error().message(), message(ELOOP));
            EXPECT_EQ(ask(ObjectKind::entry, directory / "link/usr")->error().message(), message(ELOOP));
            device.reset();  // from here on its server is dead
        }
        EXPECT_EQ(::umount2(mirror.c_str(), MNT_DETACH), 0);
        return std::nullopt;
    });
    if (reason) {
        GTEST_SKIP() << *reason;
    }
}

}  // namespace
}  // namespace copper
