// A FUSE filesystem that shows a directory, and on demand fails, or stamps its files with a clock of its own.
#pragma once

#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace copper::test {

// Serves in its own thread during its whole life. REQUIRES: the process's own mount namespace.
class FaultyFilesystem {
  public:
    struct Faults {
        std::atomic<int> everything = 0;       // the error of each call
        std::atomic<int> xattr_value = 0;      // of getxattr
        std::atomic<int> xattr_names = 0;      // of listxattr
        std::atomic<bool> hides_acls = false;  // listxattr does not name them (as MooseFS)
        std::atomic<long> seconds_ahead = 0;   // of all its stamps
        std::atomic<bool> whole_seconds = false;
    };

    FaultyFilesystem(std::string source, const std::string& point)
        : source_(std::move(source)), point_(point) {
        char name[] = "faulty";
        char* words[] = {name};
        fuse_args args = FUSE_ARGS_INIT(1, words);
        fuse_ = ::fuse_new(&args, &operations(), sizeof(fuse_operations), this);
        if (fuse_ != nullptr && ::fuse_mount(fuse_, point.c_str()) == 0) {
            server_ = std::thread([this] { ::fuse_loop(fuse_); });
        }
        ::fuse_opt_free_args(&args);
    }
    ~FaultyFilesystem() {
        if (server_.joinable()) {
            ::umount2(point_.c_str(), MNT_DETACH);
            server_.join();
        }
        if (fuse_ != nullptr) {
            ::fuse_destroy(fuse_);
        }
    }
    FaultyFilesystem(const FaultyFilesystem&) = delete;
    FaultyFilesystem& operator=(const FaultyFilesystem&) = delete;

    bool is_mounted() const { return server_.joinable(); }
    Faults& faults() { return faults_; }

  private:
    static FaultyFilesystem& self() {
        return *static_cast<FaultyFilesystem*>(::fuse_get_context()->private_data);
    }
    static std::string real(const char* path) { return self().source_ + path; }
    static int fault() { return -self().faults_.everything; }
    static int result_of(long long result) { return result < 0 ? -errno : static_cast<int>(result); }

    static void* init(fuse_conn_info* connection, fuse_config* config) {
        static_cast<void>(connection);
        config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
        config->direct_io = 1;
        config->use_ino = 1;
        return ::fuse_get_context()->private_data;
    }

    static int getattr(const char* path, struct stat* st, fuse_file_info*) {
        if (fault() != 0 || ::lstat(real(path).c_str(), st) != 0) {
            return fault() != 0 ? fault() : -errno;
        }
        st->st_ctim.tv_sec += self().faults_.seconds_ahead;
        if (self().faults_.whole_seconds) {
            st->st_ctim.tv_nsec = 0;
        }
        return 0;
    }
    static int readlink(const char* path, char* target, std::size_t bytes_max) {
        const auto bytes = ::readlink(real(path).c_str(), target, bytes_max - 1);
        target[bytes < 0 ? 0 : bytes] = '\0';
        return fault() != 0 ? fault() : result_of(bytes < 0 ? bytes : 0);
    }
    static int opendir(const char*, fuse_file_info*) { return fault(); }
    static int readdir(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                       fuse_readdir_flags) {
        DIR* directory = ::opendir(real(path).c_str());
        if (directory == nullptr) {
            return -errno;
        }
        while (const dirent* entry = ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe)
            fill(buffer, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
        }
        ::closedir(directory);
        return fault();
    }
    static int open(const char*, fuse_file_info*) { return fault(); }
    static int read(const char* path, char* bytes, std::size_t bytes_max, off_t offset, fuse_file_info*) {
        const int fd = ::open(real(path).c_str(), O_RDONLY | O_CLOEXEC);
        const int got = fd < 0 ? -errno : result_of(::pread(fd, bytes, bytes_max, offset));
        ::close(fd);
        return fault() != 0 ? fault() : got;
    }
    static int listxattr(const char* path, char* names, std::size_t bytes_max) {
        const int error = fault() != 0 ? -fault() : self().faults_.xattr_names.load();
        if (error != 0 || !self().faults_.hides_acls) {
            return error != 0 ? -error : result_of(::llistxattr(real(path).c_str(), names, bytes_max));
        }
        std::string all(65536, '\0');
        const auto bytes = ::llistxattr(real(path).c_str(), all.data(), all.size());
        std::string told;
        for (std::size_t at = 0; at < static_cast<std::size_t>(std::max<ssize_t>(bytes, 0));) {
            const std::string name(&all[at]);
            at += name.size() + 1;
            if (!name.starts_with("system.posix_acl_")) {
                told.append(name).append(1, '\0');
            }
        }
        if (bytes_max != 0) {
            told.copy(names, bytes_max);
        }
        return bytes < 0 ? -errno : static_cast<int>(told.size());
    }
    static int getxattr(const char* path, const char* name, char* value, std::size_t bytes_max) {
        const int error = self().faults_.xattr_value;
        return error != 0 ? -error : result_of(::lgetxattr(real(path).c_str(), name, value, bytes_max));
    }
    static const fuse_operations& operations() {
        static const fuse_operations table = [] {
            fuse_operations all{};
            all.init = init;
            all.getattr = getattr;
            all.readlink = readlink;
            all.opendir = opendir;
            all.readdir = readdir;
            all.open = open;
            all.read = read;
            all.listxattr = listxattr;
            all.getxattr = getxattr;
            return all;
        }();
        return table;
    }

    const std::string source_;
    const std::string point_;
    Faults faults_;
    fuse* fuse_ = nullptr;
    std::thread server_;
};

}  // namespace copper::test
