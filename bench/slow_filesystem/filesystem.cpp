// A request is carried out at once, and only its answer waits for the modelled time. So any number of
// requests can be under way, as with a client of a parallel filesystem, although a few threads serve them.
#include "bench/slow_filesystem/filesystem.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error_text.hpp"
#include "base/unique_fd.hpp"
#include "bench/slow_filesystem/timetable.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/mount_point.hpp"

namespace copper::bench {
namespace {

constexpr unsigned request_bytes_max = 1 << 20;
constexpr unsigned requests_max = 256;  // that the kernel sends ahead of answers, beyond those that wait
constexpr unsigned threads_max = 4;

// Numbers for paths below the source. What the kernel has asked for once keeps its number: the program serves
// one measurement.
class Paths {
  public:
    Paths() { number_of("."); }

    fuse_ino_t number_of(const std::string& path) {
        const std::lock_guard lock(mutex_);
        const auto [found, is_new] = numbers_.try_emplace(path, paths_.size() + FUSE_ROOT_ID);
        if (is_new) {
            paths_.push_back(&found->first);
        }
        return found->second;
    }

    const std::string& path_of(fuse_ino_t number) {
        const std::lock_guard lock(mutex_);
        return *paths_.at(number - FUSE_ROOT_ID);
    }

  private:
    std::mutex mutex_;
    std::unordered_map<std::string, fuse_ino_t> numbers_;
    std::deque<const std::string*> paths_;  // by number, the root first
};

// An open directory. The kernel reads it from one place to the next.
struct DirectoryCloser {
    void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, DirectoryCloser>;

Nanoseconds now() {
    return Timetable::Clock::now().time_since_epoch();
}

// Names, each with a NUL behind it.
std::vector<char> without_acls(std::string_view names) {
    std::vector<char> kept;
    while (!names.empty()) {
        const auto name = names.substr(0, names.find('\0') + 1);
        if (!name.starts_with("system.posix_acl_")) {
            kept.insert(kept.end(), name.begin(), name.end());
        }
        names.remove_prefix(name.size());
    }
    return kept;
}

// What the kernel asks for, and since when.
struct Asked {
    Operation operation;
    std::string path = {};
    off_t offset = 0;
    std::size_t bytes = 0;
    bool is_found = true;
    Nanoseconds arrived = now();
};

// One line for each request, in the order of the answers.
class Trace {
  public:
    explicit Trace(const std::string& path) : file_(path) {}

    bool is_open() const { return file_.is_open(); }
    void add(const Asked& asked, Nanoseconds answered) {
        const std::lock_guard lock(mutex_);
        file_ << asked.arrived.count() << '\t' << answered.count() << '\t'
              << operation_names.at(static_cast<std::size_t>(asked.operation)) << '\t' << asked.is_found
              << '\t' << asked.offset << '\t' << asked.bytes << '\t' << asked.path << '\n';
    }

  private:
    std::mutex mutex_;
    std::ofstream file_;
};

class SlowFilesystem {
  public:
    SlowFilesystem(const SlowFilesystemOptions& options, UniqueFd source, ClientCounters& counters)
        : options_(options),
          source_(std::move(source)),
          counters_(counters),
          servers_(options.model, options.shared->queues),
          trace_(options.trace) {}

    const SlowFilesystemOptions& options() const { return options_; }

    void lookup(fuse_req_t request, fuse_ino_t parent, const char* name);
    void getattr(fuse_req_t request, fuse_ino_t node);
    void readlink(fuse_req_t request, fuse_ino_t node);
    void opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info info);
    void readdir(fuse_req_t request, fuse_ino_t node, std::size_t bytes_max, off_t offset, DIR* directory);
    void open(fuse_req_t request, fuse_ino_t node, fuse_file_info info);
    void read(fuse_req_t request, fuse_ino_t node, std::size_t bytes_max, off_t offset, int file);
    void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t bytes_max);
    void listxattr(fuse_req_t request, fuse_ino_t node, std::size_t bytes_max);
    void statfs(fuse_req_t request);

  private:
    // Answers when the metadata servers would have.
    void answer(const Asked& asked, std::function<void()> reply);
    void answer_error(Asked asked, fuse_req_t request, int error) {
        asked.is_found = false;
        answer(asked, [=] { fuse_reply_err(request, error); });
    }
    void answer_xattr(const Asked& asked, fuse_req_t request, const std::vector<char>& value, ssize_t bytes);
    void call_at(Nanoseconds time, const Asked& asked, std::function<void()> reply);
    void count(Operation operation) { ++counters_.operations[static_cast<std::size_t>(operation)]; }

    // Nothing, and errno, if it cannot be had.
    std::optional<struct stat> attributes(const std::string& path) const;
    std::optional<std::string> target(const std::string& path) const;
    // Extended attributes are asked for by path: there is no call that takes a directory and a name.
    std::string whole_path(fuse_ino_t node) { return options_.source + '/' + paths_.path_of(node); }

    const SlowFilesystemOptions& options_;
    const UniqueFd source_;
    ClientCounters& counters_;
    Servers servers_;
    Paths paths_;
    Trace trace_;
    Timetable timetable_;  // the last member: it answers what still waits when it goes
};

void SlowFilesystem::call_at(Nanoseconds time, const Asked& asked, std::function<void()> reply) {
    if (trace_.is_open()) {
        // The time before the reply: the program that waits may be faster than this thread.
        reply = [this, asked, whole = std::move(reply)] {
            trace_.add(asked, now());
            whole();
        };
    }
    if (time <= now()) {
        reply();
    } else {
        timetable_.call_at(Timetable::Clock::time_point(time), std::move(reply));
    }
}

void SlowFilesystem::answer(const Asked& asked, std::function<void()> reply) {
    count(asked.operation);
    call_at(servers_.metadata(now()), asked, std::move(reply));
}

std::optional<std::string> SlowFilesystem::target(const std::string& path) const {
    char text[PATH_MAX];
    const ssize_t bytes = ::readlinkat(source_.get(), path.c_str(), text, sizeof text);
    if (bytes < 0) {
        return std::nullopt;
    }
    std::string found(text, static_cast<std::size_t>(bytes));
    // As if what lies in the source were installed below the mount point.
    if (found.starts_with(options_.source + '/')) {
        found.replace(0, options_.source.size(), options_.mount_point);
    }
    return found;
}

std::optional<struct stat> SlowFilesystem::attributes(const std::string& path) const {
    struct stat st {};
    if (::fstatat(source_.get(), path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return std::nullopt;
    }
    st.st_ctim.tv_sec -= options_.age_seconds;
    if (S_ISLNK(st.st_mode)) {
        const auto found = target(path);
        st.st_size = found ? static_cast<off_t>(found->size()) : st.st_size;
    }
    return st;
}

void SlowFilesystem::lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
    const std::string path = paths_.path_of(parent) + '/' + name;
    Asked asked{.operation = Operation::lookup, .path = path};
    const auto st = attributes(path);
    if (!st && errno != ENOENT) {
        answer_error(asked, request, errno);
        return;
    }
    asked.is_found = st.has_value();
    fuse_entry_param entry{};  // without a node: the name is absent
    entry.attr_timeout = options_.model.forgets_attributes ? 0 : kernel_keeps_seconds;
    entry.entry_timeout = options_.model.forgets_names ? 0 : kernel_keeps_seconds;
    if (st) {
        entry.ino = paths_.number_of(path);
        entry.attr = *st;
    }
    answer(asked, [=] { fuse_reply_entry(request, &entry); });
}

void SlowFilesystem::getattr(fuse_req_t request, fuse_ino_t node) {
    const Asked asked{.operation = Operation::getattr, .path = paths_.path_of(node)};
    const auto st = attributes(asked.path);
    if (!st) {
        answer_error(asked, request, errno);
        return;
    }
    const double keeps = options_.model.forgets_attributes ? 0 : kernel_keeps_seconds;
    answer(asked, [=, st = *st] { fuse_reply_attr(request, &st, keeps); });
}

void SlowFilesystem::readlink(fuse_req_t request, fuse_ino_t node) {
    const Asked asked{.operation = Operation::readlink, .path = paths_.path_of(node)};
    const auto found = target(asked.path);
    if (!found) {
        answer_error(asked, request, errno);
        return;
    }
    answer(asked, [=, text = *found] { fuse_reply_readlink(request, text.c_str()); });
}

void SlowFilesystem::opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info info) {
    const Asked asked{.operation = Operation::opendir, .path = paths_.path_of(node)};
    UniqueFd opened(::openat(source_.get(), asked.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Directory directory(opened ? ::fdopendir(opened.get()) : nullptr);
    if (!directory) {
        answer_error(asked, request, errno);
        return;
    }
    static_cast<void>(opened.release());
    info.fh = reinterpret_cast<std::uintptr_t>(directory.release());
    info.cache_readdir = 1;
    info.keep_cache = 1;
    const auto reply = [=] {
        if (fuse_reply_open(request, &info) != 0) {  // interrupted: the kernel will not release it
            ::closedir(reinterpret_cast<DIR*>(info.fh));
        }
    };
    if (options_.model.opens_directories_itself) {
        reply();
    } else {
        answer(asked, reply);
    }
}

// Names and types alone, so that attributes cost their own operations.
void SlowFilesystem::readdir(fuse_req_t request, fuse_ino_t node, std::size_t bytes_max, off_t offset,
                             DIR* directory) {
    Asked asked{.operation = Operation::readdir, .path = paths_.path_of(node), .offset = offset};
    std::vector<char> buffer(bytes_max);
    std::size_t used = 0;
    ::seekdir(directory, offset);
    while (const dirent* entry = ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe)
        struct stat st {};
        st.st_ino = entry->d_ino;
        st.st_mode = static_cast<mode_t>(DTTOIF(entry->d_type));
        const std::size_t bytes = fuse_add_direntry(request, buffer.data() + used, buffer.size() - used,
                                                    entry->d_name, &st, entry->d_off);
        if (bytes > buffer.size() - used) {
            break;
        }
        used += bytes;
    }
    // The last entries came with the news that they are the last.
    if (used == 0 && offset != 0) {
        fuse_reply_buf(request, nullptr, 0);
        return;
    }
    buffer.resize(used);
    asked.bytes = used;
    answer(asked,
           [=, entries = std::move(buffer)] { fuse_reply_buf(request, entries.data(), entries.size()); });
}

void SlowFilesystem::open(fuse_req_t request, fuse_ino_t node, fuse_file_info info) {
    const Asked asked{.operation = Operation::open, .path = paths_.path_of(node)};
    const int file = ::openat(source_.get(), asked.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) {
        answer_error(asked, request, errno);
        return;
    }
    info.fh = static_cast<std::uint64_t>(file);
    info.keep_cache = 1;
    answer(asked, [=] {
        if (fuse_reply_open(request, &info) != 0) {
            ::close(file);
        }
    });
}

void SlowFilesystem::read(fuse_req_t request, fuse_ino_t node, std::size_t bytes_max, off_t offset,
                          int file) {
    Asked asked{.operation = Operation::read, .path = paths_.path_of(node), .offset = offset};
    std::vector<char> buffer(bytes_max);
    const ssize_t bytes = retry_eintr([&] { return ::pread(file, buffer.data(), buffer.size(), offset); });
    const int error = errno;
    buffer.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    count(Operation::read);
    counters_.bytes_read += buffer.size();
    asked.bytes = buffer.size();
    call_at(servers_.data(now(), asked.bytes), asked, [=, data = std::move(buffer)] {
        if (bytes < 0) {
            fuse_reply_err(request, error);
        } else {
            fuse_reply_buf(request, data.data(), data.size());
        }
    });
}

// A program that gives no room asks how much it needs.
void SlowFilesystem::answer_xattr(const Asked& asked, fuse_req_t request, const std::vector<char>& value,
                                  ssize_t bytes) {
    if (bytes < 0) {
        answer_error(asked, request, errno);
        return;
    }
    answer(asked, [=] {
        if (value.empty()) {
            fuse_reply_xattr(request, static_cast<std::size_t>(bytes));
        } else {
            fuse_reply_buf(request, value.data(), static_cast<std::size_t>(bytes));
        }
    });
}

void SlowFilesystem::getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t bytes_max) {
    const Asked asked{.operation = Operation::getxattr, .path = paths_.path_of(node)};
    std::vector<char> value(bytes_max);
    const ssize_t bytes = ::lgetxattr(whole_path(node).c_str(), name, value.data(), value.size());
    answer_xattr(asked, request, value, bytes);
}

void SlowFilesystem::listxattr(fuse_req_t request, fuse_ino_t node, std::size_t bytes_max) {
    const Asked asked{.operation = Operation::listxattr, .path = paths_.path_of(node)};
    std::vector<char> names(options_.hides_acls ? XATTR_LIST_MAX : bytes_max);
    ssize_t bytes = ::llistxattr(whole_path(node).c_str(), names.data(), names.size());
    if (options_.hides_acls && bytes >= 0) {
        names = without_acls({names.data(), static_cast<std::size_t>(bytes)});
        const bool fits = bytes_max == 0 || names.size() <= bytes_max;
        bytes = fits ? static_cast<ssize_t>(names.size()) : -1;
        errno = ERANGE;
        names.resize(bytes_max);
    }
    answer_xattr(asked, request, names, bytes);
}

void SlowFilesystem::statfs(fuse_req_t request) {
    const Asked asked{.operation = Operation::statfs};
    struct statvfs found {};
    if (::fstatvfs(source_.get(), &found) != 0) {
        answer_error(asked, request, errno);
        return;
    }
    answer(asked, [=] { fuse_reply_statfs(request, &found); });
}

SlowFilesystem& self(fuse_req_t request) {
    return *static_cast<SlowFilesystem*>(fuse_req_userdata(request));
}

// What a client of Lustre keeps, the kernel keeps here: names, absent names, attributes, links, pages, lists.
void init(void*, fuse_conn_info* connection) {
    constexpr unsigned wanted =
        FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPLICIT_INVAL_DATA;
    constexpr unsigned unwanted = FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_AUTO_INVAL_DATA;
    connection->want = (connection->want | (connection->capable & wanted)) & ~unwanted;
    connection->max_write = request_bytes_max;
    connection->max_background = requests_max;
    connection->congestion_threshold = requests_max;
}

fuse_lowlevel_ops operations() {
    fuse_lowlevel_ops table{};
    table.init = init;
    table.lookup = [](fuse_req_t request, fuse_ino_t parent, const char* name) {
        self(request).lookup(request, parent, name);
    };
    table.getattr = [](fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
        self(request).getattr(request, node);
    };
    table.readlink = [](fuse_req_t request, fuse_ino_t node) { self(request).readlink(request, node); };
    table.opendir = [](fuse_req_t request, fuse_ino_t node, fuse_file_info* info) {
        self(request).opendir(request, node, *info);
    };
    table.readdir = [](fuse_req_t request, fuse_ino_t node, std::size_t bytes_max, off_t offset,
                       fuse_file_info* info) {
        self(request).readdir(request, node, bytes_max, offset, reinterpret_cast<DIR*>(info->fh));
    };
    table.releasedir = [](fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
        ::closedir(reinterpret_cast<DIR*>(info->fh));
        fuse_reply_err(request, 0);
    };
    table.open = [](fuse_req_t request, fuse_ino_t node, fuse_file_info* info) {
        self(request).open(request, node, *info);
    };
    table.read = [](fuse_req_t request, fuse_ino_t node, std::size_t bytes_max, off_t offset,
                    fuse_file_info* info) {
        self(request).read(request, node, bytes_max, offset, static_cast<int>(info->fh));
    };
    table.release = [](fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
        ::close(static_cast<int>(info->fh));
        fuse_reply_err(request, 0);
    };
    table.getxattr = [](fuse_req_t request, fuse_ino_t node, const char* name, std::size_t bytes_max) {
        self(request).getxattr(request, node, name, bytes_max);
    };
    table.listxattr = [](fuse_req_t request, fuse_ino_t node, std::size_t bytes_max) {
        self(request).listxattr(request, node, bytes_max);
    };
    table.statfs = [](fuse_req_t request, fuse_ino_t) { self(request).statfs(request); };
    return table;
}

// Lookups in one directory may be under way at the same time, as they are with Lustre, if the answer to INIT
// says so; otherwise the kernel sends one after the other. libfuse up to 3.16 does not say it, later versions
// always do. So the answer is completed on its way.
ssize_t write_answer(int device, iovec* parts, int count, void* data) {
    static std::atomic<bool> is_first =
        true;  // INIT is the first request, and nothing else comes before its answer
    const bool is_init = is_first.exchange(false);
    if (is_init && count == 2) {
        fuse_init_out answer{};
        const std::size_t bytes = std::min(parts[1].iov_len, sizeof answer);
        std::memcpy(&answer, parts[1].iov_base, bytes);
        answer.flags &= ~unsigned{FUSE_PARALLEL_DIROPS};
        if (!static_cast<SlowFilesystem*>(data)->options().model.is_serial) {
            answer.flags |= FUSE_PARALLEL_DIROPS;
        }
        std::memcpy(parts[1].iov_base, &answer, bytes);
    }
    const ssize_t written = ::writev(device, parts, count);
    if (is_init && written >= 0) {
        raise_read_ahead(static_cast<SlowFilesystem*>(data)->options().mount_point, request_bytes_max);
    }
    return written;
}

ssize_t read_request(int device, void* buffer, std::size_t bytes_max, void*) {
    return ::read(device, buffer, bytes_max);
}

struct SessionEnd {
    void operator()(fuse_session* session) const {
        fuse_remove_signal_handlers(session);
        fuse_session_destroy(session);
    }
};
using Session = std::unique_ptr<fuse_session, SessionEnd>;

Session new_session(SlowFilesystem& filesystem) {
    fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
    const fuse_lowlevel_ops table = operations();
    fuse_session* session = nullptr;
    if (fuse_opt_add_arg(&arguments, "copper_slow_filesystem") == 0 &&
        fuse_opt_add_arg(&arguments, "-oro,default_permissions,fsname=slow,subtype=slow") == 0) {
        session = fuse_session_new(&arguments, &table, sizeof table, &filesystem);
    }
    fuse_opt_free_args(&arguments);
    // Before the mount: a signal that comes as soon as it is there must end it, too.
    if (session != nullptr && fuse_set_signal_handlers(session) != 0) {
        fuse_session_destroy(session);
        session = nullptr;
    }
    return Session(session);
}

struct LoopOptionsEnd {
    void operator()(fuse_loop_config* options) const { fuse_loop_cfg_destroy(options); }
};

// Returns 0 if the mount has ended, or whoever started this program wants its end.
int serve(fuse_session* session) {
    const std::unique_ptr<fuse_loop_config, LoopOptionsEnd> options(fuse_loop_cfg_create());
    fuse_loop_cfg_set_max_threads(options.get(), threads_max);
    return std::min(fuse_session_loop_mt(session, options.get()), 0);
}

}  // namespace

tl::expected<void, std::string> serve_slow_filesystem(const SlowFilesystemOptions& options) {
    UniqueFd source(::open(options.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!source) {
        return tl::make_unexpected("source " + options.source + ": " + error_text());
    }
    if (auto obstacle = obstacle_to_mount(options.mount_point, Audience::launching_user)) {
        return tl::make_unexpected(std::move(*obstacle));
    }
    const auto counters = add_client(*options.shared);
    if (!counters) {
        return tl::make_unexpected(counters.error());
    }
    auto filesystem = std::make_unique<SlowFilesystem>(options, std::move(source), **counters);
    const Session session = new_session(*filesystem);
    if (!session || fuse_session_mount(session.get(), options.mount_point.c_str()) != 0) {
        return tl::make_unexpected("cannot mount at " + options.mount_point + " (the reason is above)");
    }
    fuse_custom_io io{};  // newer versions of libfuse have more members
    io.writev = write_answer;
    io.read = read_request;
    const bool is_served = fuse_session_custom_io(session.get(), &io, fuse_session_fd(session.get())) == 0 &&
                           serve(session.get()) == 0;
    filesystem.reset();  // answers what still waits, which takes a session
    fuse_session_unmount(session.get());
    if (!is_served) {
        return tl::make_unexpected(options.mount_point + " cannot be served: " + error_text());
    }
    return {};
}

}  // namespace copper::bench
