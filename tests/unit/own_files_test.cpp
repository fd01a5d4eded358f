#include "base/own_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace copper {
namespace {

namespace fs = std::filesystem;

constexpr uid_t nobody = 65534;

class OwnFiles : public testing::Test {
  protected:
    OwnFiles() {
        std::string name = fs::temp_directory_path() / "copper-own-files-XXXXXX";
        base_ = fs::canonical(::mkdtemp(name.data()));
    }
    ~OwnFiles() override { fs::remove_all(base_); }

    std::string open_error(const std::string& name) const {
        // Who waits for a FIFO's other end is ended, which fails the test.
        ::alarm(20);
        const auto opened = open_own_file(AT_FDCWD, base_ + "/" + name, 0600);
        ::alarm(0);
        return opened ? "" : opened.error();
    }
    std::string text_of(const std::string& name) const {
        std::ifstream file(base_ + "/" + name);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void make_directory(const std::string& name, mode_t mode) const {
        fs::create_directory(base_ + "/" + name);
        ::chmod((base_ + "/" + name).c_str(), mode);
    }

    std::string base_;
};

TEST_F(OwnFiles, AFileIsMadeAndAppendedTo) {
    for (const char* expected : {"x", "xx"}) {
        const auto file = open_own_file(AT_FDCWD, base_ + "/log", 0600);
        ASSERT_TRUE(file) << file.error();
        EXPECT_EQ(::write(file->get(), "x", 1), 1);
        EXPECT_EQ(text_of("log"), expected);
    }
}

TEST_F(OwnFiles, LinksAndOthersFilesAreRefused) {
    std::ofstream(base_ + "/precious") << "precious";
    fs::create_symlink(base_ + "/precious", base_ + "/symbolic");
    fs::create_hard_link(base_ + "/precious", base_ + "/hard");
    ASSERT_EQ(::mkfifo((base_ + "/fifo").c_str(), 0600), 0);
    fs::create_directory(base_ + "/directory");
    for (const char* name : {"symbolic", "hard", "fifo", "directory"}) {
        EXPECT_NE(open_error(name), "") << name;
    }
    if (::geteuid() == 0) {
        std::ofstream(base_ + "/theirs") << "theirs";
        ASSERT_EQ(::chown((base_ + "/theirs").c_str(), nobody, nobody), 0);
        EXPECT_NE(open_error("theirs"), "");
    }
}

TEST_F(OwnFiles, AFileThatAnotherProcessRemovesIsMadeAnew) {
    const std::string path = base_ + "/lock";
    std::jthread other([&](const std::stop_token& stopped) {
        while (!stopped.stop_requested()) {
            ::unlink(path.c_str());
        }
    });
    for (int i = 0; i < 20'000; ++i) {
        ASSERT_EQ(open_error("lock"), "");
    }
}

TEST_F(OwnFiles, OnlyRegularFilesAreRead) {
    std::ofstream(base_ + "/file") << "text";
    fs::create_symlink(base_ + "/file", base_ + "/link");
    ASSERT_EQ(::mkfifo((base_ + "/fifo").c_str(), 0600), 0);
    EXPECT_EQ(read_regular_file(AT_FDCWD, base_ + "/file", 4).value_or("none"), "text");
    ::alarm(20);
    for (const char* name : {"link", "fifo", "absent"}) {
        EXPECT_FALSE(read_regular_file(AT_FDCWD, base_ + "/" + name, 4)) << name;
    }
    ::alarm(0);
    EXPECT_FALSE(read_regular_file(AT_FDCWD, base_ + "/file", 3));
}

TEST_F(OwnFiles, DirectoriesThatOthersCanExchange) {
    make_directory("open", 0777);
    make_directory("open/inner", 0700);
    make_directory("sticky", 01777);
    make_directory("sticky/inner", 0755);
    for (const char* name : {"open", "open/inner"}) {
        EXPECT_EQ(why_others_can_exchange(base_ + "/" + name),
                  base_ + "/open: other users may write there (its mode is 0777); close it (chmod go-w " +
                      base_ + "/open)");
    }
    EXPECT_EQ(why_others_can_exchange(base_ + "/sticky/inner"), "");
    EXPECT_EQ(why_others_can_exchange("/"), "");
    EXPECT_EQ(why_others_can_exchange(base_ + "/sticky/absent/inner"), "");
    EXPECT_TRUE(others_can_make(base_ + "/sticky/inner"));
    EXPECT_TRUE(others_can_make(base_ + "/open/inner"));
    EXPECT_FALSE(others_can_make(base_ + "/sticky/inner/x"));
}

TEST_F(OwnFiles, LinksOnTheWay) {
    make_directory("open", 0777);
    make_directory("open/inner", 0700);
    make_directory("sticky", 01777);
    make_directory("sticky/inner", 0755);
    fs::create_directory_symlink("sticky/../sticky", base_ + "/good");
    fs::create_directory_symlink(base_ + "/good", base_ + "/longer");
    fs::create_directory_symlink(base_ + "/open", base_ + "/bad");
    fs::create_directory_symlink("loop", base_ + "/loop");
    EXPECT_EQ(why_others_can_exchange(base_ + "/good/inner"), "");
    EXPECT_EQ(why_others_can_exchange(base_ + "/longer/inner"), "");
    EXPECT_NE(why_others_can_exchange(base_ + "/bad/inner").find("other users may write there"),
              std::string::npos);
    EXPECT_EQ(why_others_can_exchange(base_ + "/loop"), base_ + "/loop: too many links");
    if (::geteuid() == 0) {  // a link of somebody else, who can change it later
        ASSERT_EQ(::lchown((base_ + "/good").c_str(), nobody, nobody), 0);
        for (const char* name : {"good", "longer"}) {
            EXPECT_EQ(why_others_can_exchange(base_ + "/" + name),
                      base_ + "/good: belongs to user 65534, who could replace it");
        }
    }
}

TEST_F(OwnFiles, APrivateDirectoryIsItsOwnersWhateverTheUmask) {
    const mode_t before = ::umask(0777);
    const auto made = open_private_directory(AT_FDCWD, base_ + "/private", ::geteuid(), Missing::make);
    ::umask(before);
    ASSERT_TRUE(made) << made.error();
    struct stat found = {};
    ASSERT_EQ(::fstat(made->get(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777U, 0700U);
}

TEST_F(OwnFiles, DirectoriesOfOthers) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "needs root, to give a directory away";
    }
    make_directory("sticky", 01777);
    make_directory("sticky/theirs", 0755);
    make_directory("sticky/theirs/ours", 0700);
    ASSERT_EQ(::chown((base_ + "/sticky/theirs").c_str(), nobody, nobody), 0);
    for (const char* name : {"sticky/theirs", "sticky/theirs/ours"}) {
        EXPECT_EQ(why_others_can_exchange(base_ + "/" + name),
                  base_ + "/sticky/theirs: belongs to user 65534, who could replace it");
    }
}

}  // namespace
}  // namespace copper
