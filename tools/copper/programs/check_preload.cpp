// A library for LD_PRELOAD with which `copper check` watches programs where strace cannot be used. It writes
// what strace -y -xx -X raw -v would write (check_trace.hpp): one file per thread, in COPPER_CHECK_DIRECTORY.
// It does not see the shared libraries that ld.so opens; those are in the output of LD_DEBUG.
//
// It runs in all kinds of programs, so it needs nothing but the C library, and allocates no memory.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace {

// The prefix of the files. Programs may change their environment, so it is copied at their start.
char trace_prefix[PATH_MAX];

// One line of the file of this thread.
class Line {
  public:
    Line() {
        char path[PATH_MAX + 32];
        std::snprintf(path, sizeof path, "%s%ld", trace_prefix, ::syscall(SYS_gettid));
        constexpr int own = 0600;
        fd_ = static_cast<int>(
            ::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, own));
    }
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;
    ~Line() {
        flush();
        ::syscall(SYS_close, fd_);
    }

    void text(const char* text) {
        for (; *text != '\0'; ++text) {
            put(*text);
        }
    }
    void hex(const char* bytes) {
        constexpr const char* digits = "0123456789abcdef";
        for (; *bytes != '\0'; ++bytes) {
            const auto byte = static_cast<unsigned char>(*bytes);
            text("\\x");
            put(digits[byte >> 4U]);
            put(digits[byte & 15U]);
        }
    }
    void string(const char* bytes) {
        text("\"");
        hex(bytes);
        text("\"");
    }
    void number(const char* format, int number) {
        char digits[32];
        std::snprintf(digits, sizeof digits, format, number);
        text(digits);
    }
    void descriptor(int fd) {
        char link[32];
        if (fd == AT_FDCWD) {
            std::snprintf(link, sizeof link, "/proc/self/cwd");
        } else {
            std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        }
        char place[PATH_MAX];
        const auto length = ::readlink(link, place, sizeof place - 1);
        place[length > 0 ? length : 0] = '\0';
        number("%d<", fd);
        hex(place);
        text(">");
    }

  private:
    void put(char c) {
        if (used_ == sizeof text_) {
            flush();
        }
        text_[used_++] = c;
    }
    void flush() {
        [[maybe_unused]] const auto written = ::syscall(SYS_write, fd_, text_, used_);
        used_ = 0;
    }

    int fd_ = -1;
    std::size_t used_ = 0;
    char text_[1024];
};

// `fd`: the opened file; -1: errno says why not.
void note_open(int directory, const char* path, int flags, int fd) {
    const int error = errno;
    if (trace_prefix[0] != '\0' && path != nullptr && (fd >= 0 || error == ENOENT || error == ENOTDIR)) {
        Line line;
        line.text("openat(");
        line.descriptor(directory);
        line.text(", ");
        line.string(path);
        line.number(", 0x%x", flags);
        line.text(") = ");
        if (fd >= 0) {
            line.descriptor(fd);
        } else {
            line.text(error == ENOENT ? "-1 ENOENT" : "-1 ENOTDIR");
        }
        line.text("\n");
    }
    errno = error;
}

int open_noted(int directory, const char* path, int flags, mode_t mode) {
    const auto fd = static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
    note_open(directory, path, flags, fd);
    return fd;
}

// The C library's own function.
template <typename Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

FILE* fopen_noted(const char* function, const char* path, const char* mode) {
    FILE* file = next<FILE*(const char*, const char*)>(function)(path, mode);
    const bool reads_only = mode[0] == 'r' && std::strchr(mode, '+') == nullptr;
    note_open(AT_FDCWD, path, reads_only ? O_RDONLY : O_RDWR | O_CREAT,
              file != nullptr ? ::fileno(file) : -1);
    return file;
}

mode_t mode_of(int flags, va_list arguments) {
    const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    return creates ? va_arg(arguments, mode_t) : 0;
}

// A program starts. Notes the name under which it was started: that of the script if it is an interpreter.
__attribute__((constructor)) void note_start() {
    const char* directory = std::getenv("COPPER_CHECK_DIRECTORY");
    const auto* name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    if (directory == nullptr || name == nullptr || std::strlen(directory) > PATH_MAX - 32) {
        return;
    }
    std::snprintf(trace_prefix, sizeof trace_prefix, "%s/trace.", directory);
    const int error = errno;
    {
        Line line;
        line.text("execveat(");
        line.descriptor(AT_FDCWD);
        line.text(", ");
        line.string(name);
        line.text(", [], [");
        for (char** variable = environ; *variable != nullptr; ++variable) {
            line.string(*variable);
            line.text(", ");
        }
        line.text("], 0) = 0\n");
    }
    errno = error;
}

}  // namespace

// The names of the C library, also those for large files and with checks (_FORTIFY_SOURCE).
extern "C" {

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_noted(AT_FDCWD, path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_noted(directory, path, flags, mode);
}
int __open_2(const char* path, int flags) {
    return open_noted(AT_FDCWD, path, flags, 0);
}
int __openat_2(int directory, const char* path, int flags) {
    return open_noted(directory, path, flags, 0);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int directory, const char* path, int flags, ...) __attribute__((alias("openat")));
int __open64_2(const char* path, int flags) __attribute__((alias("__open_2")));
int __openat64_2(int directory, const char* path, int flags) __attribute__((alias("__openat_2")));

FILE* fopen(const char* path, const char* mode) {
    return fopen_noted("fopen", path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
    return fopen_noted("fopen64", path, mode);
}

DIR* opendir(const char* path) {
    DIR* directory = next<DIR*(const char*)>("opendir")(path);
    note_open(AT_FDCWD, path, O_DIRECTORY, directory != nullptr ? ::dirfd(directory) : -1);
    return directory;
}
}
