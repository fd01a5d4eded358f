#include "daemon/supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/error_text.hpp"
#include "base/mount_table.hpp"
#include "base/processes.hpp"
#include "base/read_in_time.hpp"
#include "daemon/control/instance.hpp"
#include "daemon/lease.hpp"
#include "daemon/log.hpp"
#include "daemon/mount_point.hpp"
#include "daemon/silence.hpp"
#include "fuse/mount_point.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// After this many losses in this time, the supervisor gives the mount up. Each successor waits longer: 0,
// 0.5, 1, 2, 4 s.
constexpr int losses_max = 5;
constexpr std::chrono::seconds losses_window{60};
constexpr milliseconds first_wait{500};

// A daemon that is silent for this long hangs: at least this time, and this many deadlines.
constexpr milliseconds hang_time_min{10000};
constexpr int hang_deadlines = 2;

// How long the threads of a process may take to end after its first one.
constexpr timespec last_thread_time{.tv_sec = 1, .tv_nsec = 0};

enum class Word : std::uint8_t { keep, keep_view, hold, begin, is_alive, launcher_ends, release, dismiss };

// One packet. `keep` comes with the two descriptors of a HandOver, `keep_view` with the end of a pipe and
// those of a View, `hold` with one.
struct Packet {
    Word word = Word::dismiss;
    Place place = {};
    std::array<char, PATH_MAX> text = {};  // the mount point, or why the launcher ends the daemon
};

constexpr std::size_t descriptors_max = 3;
constexpr std::chrono::seconds answer_patience{2};

void set_text(Packet& packet, const std::string& text) {
    std::copy_n(text.data(), std::min(text.size(), packet.text.size() - 1), packet.text.data());
}

std::string state_of(pid_t pid) {
    switch (state_letter(pid)) {
        case 'T':
        case 't':
            return "stopped by a signal or a debugger";
        case 'D':
            return "waiting in the kernel, perhaps for a filesystem";
        case 'R':
            return "running";
        default:
            return "asleep";
    }
}

void send_packet(int socket, const Packet& packet, std::span<const int> descriptors = {}) {
    iovec bytes{.iov_base = const_cast<Packet*>(&packet), .iov_len = sizeof(packet)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(descriptors_max * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    }
    retry_eintr([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

// Nothing when the connection has ended.
std::optional<Packet> receive_packet(int socket, std::vector<UniqueFd>& descriptors) {
    Packet packet;
    iovec bytes{.iov_base = &packet, .iov_len = sizeof(packet)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(descriptors_max * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = retry_eintr([&] { return ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC); });
    if (got != sizeof(packet)) {
        return std::nullopt;
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
        std::vector<int> numbers((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        std::memcpy(numbers.data(), CMSG_DATA(header), numbers.size() * sizeof(int));
        descriptors = std::vector<UniqueFd>(numbers.begin(), numbers.end());
    }
    return packet;
}

// Launchers wait until no process holds the pipes of their processes. Regular files (perhaps the log) may
// stay open.
void leave_launcher(int keep) {
    ::setsid();
    ::prctl(PR_SET_NAME, "copperd-superv");
    ::signal(SIGPIPE, SIG_IGN);  // who asked for a view may have gone
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        struct stat st = {};
        if (standard == STDIN_FILENO || ::fstat(standard, &st) != 0 || !S_ISREG(st.st_mode)) {
            ::dup2(null.get(), standard);
        }
    }
    close_descriptors_except({keep, null.get()});
}

// Whether slurmstepd started this process.
bool is_task_of_slurm() {
    const char* task = std::getenv("SLURM_TASK_PID");
    return task != nullptr && task == std::to_string(::getpid());
}

// The rest of the task's life: until the daemon, its supervisor and all successors have ended. It inherits
// those that lose their parent (PR_SET_CHILD_SUBREAPER of prctl(2)). Then it ends like the daemon.
[[noreturn]] void wait_as_task(pid_t daemon) {
    ::prctl(PR_SET_NAME, "copperd-task");
    sigset_t all = {};
    sigset_t mask_before = {};
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &mask_before);  // the daemon gets signals, too, and decides
    int status = 0;
    int status_of_daemon = 0;
    for (pid_t ended = 0; ended >= 0; ended = retry_eintr([&] { return ::wait(&status); })) {
        if (ended == daemon) {
            status_of_daemon = status;
        }
    }
    if (WIFSIGNALED(status_of_daemon)) {
        const rlimit no_core = {};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
        ::raise(WTERMSIG(status_of_daemon));
    }
    ::_exit(WEXITSTATUS(status_of_daemon));
}

class Supervisor {
  public:
    // `launcher`: the process that started the daemon. `task`: the process that waits for both, or 0.
    Supervisor(const DaemonOptions& options, UniqueFd link, ProcessName launcher, pid_t task, pid_t daemon,
               Vitals& vitals)
        : options_(options),
          lease_(options, launcher),
          launcher_(launcher),
          task_(task),
          vitals_(vitals),
          hang_time_(std::max<milliseconds>(hang_time_min, hang_deadlines * options.deadline)),
          daemon_(std::move(link)),
          pid_(daemon),
          pid_started_(start_time_of(daemon)) {
        sigemptyset(&watched_);
        for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
            sigaddset(&watched_, signal);
        }
        sigset_t blocked = watched_;
        sigaddset(&blocked, SIGCHLD);  // for reap()
        ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
        signals_ = UniqueFd(::signalfd(-1, &watched_, SFD_CLOEXEC));
    }

    // Returns in each successor. Otherwise ends the process.
    Supervised run() {
        while (true) {
            wait_for_end();
            if (auto supervised = take_over()) {
                return std::move(*supervised);
            }
        }
    }

  private:
    // Returns when the daemon has ended, or is dead and cannot end: a thread that drops a name from the
    // kernel's memory waits for a lookup in its directory, which nobody but a successor can answer.
    void wait_for_end() {
        silence_.emplace(pid_);
        while (true) {
            std::array polled = {pollfd{.fd = daemon_.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = mount_table_.get(), .events = POLLPRI, .revents = 0}};
            const milliseconds patience = outlives_ ? Silence::look_interval : milliseconds(-1);
            retry_eintr(
                [&] { return ::poll(polled.data(), polled.size(), static_cast<int>(patience.count())); });
            const bool has_spoken = polled[0].revents != 0 || polled[1].revents != 0;
            if (outlives_ && !has_spoken && silence_->look() >= hang_time_ &&
                is_running(pid_, pid_started_)) {
                kill_for_silence();
                silence_->end();
            }
            if (outlives_) {
                lease_.look(steady_clock::now(), place_.rank, place_.nodes, is_successor_);
            }
            if (polled[1].revents != 0) {
                take_signal();
            }
            // The daemon does not notice: the kernel keeps its filesystem as long as a view shows it.
            if (polled[2].revents != 0 && !is_served(mount_)) {
                end_view();
                ::kill(pid_, SIGTERM);
            }
            if (polled[0].revents != 0 ? !hear() : is_dead()) {
                return;
            }
        }
    }

    // Its main thread has ended, which takes the others with it.
    bool is_dead() const { return outlives_ && !is_running(pid_, pid_started_); }

    // `received`: the end of a pipe, on whose other end the daemon waits for a byte; then the namespaces.
    void keep_view(std::vector<UniqueFd> received) {
        const auto mounts = read_mounts();
        const auto mount = std::ranges::find_if(mounts, [&](const Mount& each) {
            return each.point == mount_ && each.type == copper_filesystem_type;
        });
        if (mount == mounts.end() || view_.mount_namespace || received.size() < 2) {
            return;
        }
        device_ = mount->device;
        view_ = {.mount_namespace = std::move(received[1]),
                 .user_namespace = received.size() > 2 ? std::move(received[2]) : UniqueFd()};
        mount_table_ = UniqueFd(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
        [[maybe_unused]] const auto told = ::write(received[0].get(), "", 1);
    }

    void end_view() {
        if (view_.mount_namespace) {
            uncover(view_, device_);
        }
        view_ = {};
        mount_table_.reset();
    }

    void kill_for_silence() {
        if (why_.empty()) {
            const auto silence =
                std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - heard_at_);
            why_ = "killed by its supervisor: it was silent for " + std::to_string(silence.count()) +
                   " s; its loop " + to_string(vitals_.activity) + ", its process was " + state_of(pid_);
        }
        ::kill(pid_, SIGKILL);
    }

    // False if the connection has ended.
    bool hear() {
        std::vector<UniqueFd> descriptors;
        const auto packet = receive_packet(daemon_.get(), descriptors);
        if (!packet) {
            return false;
        }
        heard_at_ = steady_clock::now();
        silence_->end();
        switch (packet->word) {
            case Word::keep:
                place_ = packet->place;
                mount_ = packet->text.data();
                if (descriptors.size() == 2) {
                    hand_over_ = {.device = std::move(descriptors[0]), .memory = std::move(descriptors[1])};
                }
                break;
            case Word::keep_view:
                keep_view(std::move(descriptors));
                break;
            case Word::hold:
                held_ = std::move(descriptors);
                break;
            case Word::begin:
                outlives_ = !is_released_ && told_by_ == 0;
                break;
            case Word::is_alive:
                break;
            case Word::launcher_ends:
                loss_ = Loss::launcher_ended;
                why_ = packet->text.data();
                break;
            case Word::release:
                end_view();
                hand_over_ = {};
                outlives_ = false;
                is_released_ = true;
                break;
            case Word::dismiss:
                // Outlives its child: a tool may wait for this process only.
                reap();
                ::_exit(0);
        }
        return true;
    }

    void take_signal() {
        signalfd_siginfo info = {};
        if (::read(signals_.get(), &info, sizeof(info)) > 0) {
            outlives_ = false;
            told_by_ = static_cast<pid_t>(info.ssi_pid);
            if (is_successor_) {
                ::kill(pid_, SIGTERM);
            }
        }
    }

    std::optional<Supervised> take_over() {
        const auto status = reap();
        if (why_.empty()) {
            why_ = status ? describe_end(*status) : describe_end(vitals_);
        }
        if (mount_.empty()) {
            ::_exit(0);
        }
        if (outlives_) {
            wait_in_turn();
        }
        if (!outlives_) {
            give_up();
        }
        std::array<int, 2> ends = {};
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
            give_up();
        }
        UniqueFd theirs(ends[1]);
        daemon_ = UniqueFd(ends[0]);
        const pid_t supervisor = ::getpid();
        vitals_.reset();
        const pid_t successor = ::fork();
        if (successor < 0) {
            give_up();
        }
        if (successor > 0) {
            pid_ = successor;
            pid_started_ = start_time_of(successor);
            is_successor_ = true;
            why_.clear();
            heard_at_ = steady_clock::now();
            return std::nullopt;
        }
        ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
        ::prctl(PR_SET_NAME, "copperd");
        return Supervised{.link = SupervisorLink(std::move(theirs), supervisor),
                          .launcher = launcher_,
                          .launched_by_slurm = task_ != 0,
                          .vitals = &vitals_,
                          .succession = Succession{.hand_over = std::move(hand_over_),
                                                   .place = place_,
                                                   .loss = loss_,
                                                   .lost = pid_,
                                                   .why = why_}};
    }

    // A daemon that is lost again and again must not be replaced at full speed.
    void wait_in_turn() {
        const auto now = steady_clock::now();
        std::erase_if(losses_, [now](steady_clock::time_point at) { return now - at > losses_window; });
        losses_.push_back(now);
        if (losses_.size() > losses_max) {
            outlives_ = false;
        } else if (losses_.size() > 1) {
            const auto until = now + first_wait * (1 << (losses_.size() - 2));
            pollfd signals{.fd = signals_.get(), .events = POLLIN, .revents = 0};
            const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
            if (retry_eintr([&] { return ::poll(&signals, 1, static_cast<int>(left.count())); }) > 0) {
                take_signal();
            }
        }
    }

    void say_why_it_gives_up() const {
        std::string reason = "before all nodes served";
        if (losses_.size() > losses_max) {
            reason = "for the " + std::to_string(losses_.size()) + "th time within " +
                     std::to_string(losses_window.count()) + " s";
        } else if (told_by_ != 0) {
            reason = "after a signal of process " + std::to_string(told_by_) + " to its supervisor";
        }
        if (start_log(options_)) {
            spdlog::critical("process {} was lost {} ({}): gave up {}. Clean up with `copper stop --local`",
                             pid_, reason, why_, mount_);
            spdlog::default_logger()->flush();
        }
    }

    // The exit status, if the daemon is a child that has ended.
    std::optional<int> reap() {
        if (!is_successor_) {
            return std::nullopt;
        }
        is_successor_ = false;
        int status = 0;
        const auto reaps = [&](int options) {
            return retry_eintr([&] { return ::waitpid(pid_, &status, options); }) == pid_;
        };
        if (is_running(pid_, pid_started_)) {
            return reaps(0) ? std::optional(status) : std::nullopt;
        }
        // It is a zombie already, but its last thread may take a moment, or not end at all (see is_dead()).
        sigset_t child;
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        bool is_reaped = reaps(WNOHANG);
        while (!is_reaped && ::sigtimedwait(&child, nullptr, &last_thread_time) > 0) {
            is_reaped = reaps(WNOHANG);
        }
        return is_reaped ? std::optional(status) : std::nullopt;
    }

    // Removes what the daemon left, but not what belongs to a later job that may have started here.
    [[noreturn]] void give_up() {
        const std::string directory = instance_directory(::geteuid(), mount_);
        const auto record = read_instance(directory);
        // (A process closes its end of the connection a moment before it ends.)
        if (record && record->pid != pid_ && is_running(record->pid, record->pid_started)) {
            ::_exit(0);
        }
        if (!is_released_) {
            say_why_it_gives_up();
        }
        end_view();
        if (is_served(mount_)) {
            unmount(mount_);
        }
        if (record) {
            remove_instance(directory);
            for (const auto& made : record->made_directories) {
                ::rmdir(made.c_str());
            }
        }
        ::_exit(0);
    }

    const DaemonOptions& options_;
    Lease lease_;
    const ProcessName launcher_;
    const pid_t task_;
    Vitals& vitals_;
    const milliseconds hang_time_;
    UniqueFd daemon_;  // the socket to the daemon
    pid_t pid_;        // of the daemon
    std::uint64_t pid_started_;
    bool is_successor_ = false;  // and so a child
    UniqueFd signals_;
    sigset_t watched_ = {};
    sigset_t mask_before_ = {};
    bool outlives_ = false;
    bool is_released_ = false;
    pid_t told_by_ = 0;               // the process whose signal told this one to end
    std::optional<Silence> silence_;  // of the present daemon
    steady_clock::time_point heard_at_ = steady_clock::now();
    std::string why_;  // the daemon was lost, as far as known
    Loss loss_ = Loss::crashed;
    Place place_;
    std::string mount_;
    HandOver hand_over_;
    std::vector<UniqueFd> held_;
    View view_;             // without namespaces: nobody has made one
    std::string device_;    // of the mirror in it
    UniqueFd mount_table_;  // open while there is a view
    std::vector<steady_clock::time_point> losses_;
};

}  // namespace

void SupervisorLink::keep(const HandOver& hand_over, Place place, const std::string& mount) {
    Packet packet{.word = Word::keep, .place = place};
    set_text(packet, mount);
    send_packet(socket_.get(), packet, std::array{hand_over.device.get(), hand_over.memory.get()});
}

bool SupervisorLink::keep(const View& view) {
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return false;
    }
    const UniqueFd answer(ends[0]);
    UniqueFd theirs(ends[1]);
    const std::array descriptors = {theirs.get(), view.mount_namespace.get(), view.user_namespace.get()};
    send_packet(socket_.get(), {.word = Word::keep_view},
                std::span(descriptors).first(view.user_namespace ? 3 : 2));
    theirs.reset();
    std::string heard;
    return read_all(answer.get(), steady_clock::now() + answer_patience, heard) && !heard.empty();
}

void SupervisorLink::hold(int descriptor) {
    send_packet(socket_.get(), {.word = Word::hold}, {&descriptor, 1});
}

void SupervisorLink::begin() {
    send_packet(socket_.get(), {.word = Word::begin});
}

void SupervisorLink::is_alive() {
    send_packet(socket_.get(), {.word = Word::is_alive});
}

void SupervisorLink::launcher_ends(const std::string& why) {
    Packet packet{.word = Word::launcher_ends};
    set_text(packet, why);
    send_packet(socket_.get(), packet);
}

void SupervisorLink::release() {
    send_packet(socket_.get(), {.word = Word::release});
}

void SupervisorLink::dismiss() {
    send_packet(socket_.get(), {.word = Word::dismiss});
}

tl::expected<Supervised, std::string> supervise(const DaemonOptions& options) {
    const auto launcher = process_named(::getppid());
    const pid_t task = is_task_of_slurm() ? ::getpid() : 0;
    if (task != 0) {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (const pid_t daemon = ::fork(); daemon > 0) {
            wait_as_task(daemon);
        }
    }
    std::array<int, 2> ends = {};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return tl::make_unexpected("cannot start a supervisor: socketpair: " + error_text());
    }
    UniqueFd ours(ends[0]);
    UniqueFd theirs(ends[1]);
    Vitals* vitals = Vitals::make();
    if (vitals == nullptr) {
        return tl::make_unexpected("cannot start a supervisor: mmap: " + error_text());
    }
    const pid_t daemon = ::getpid();
    const pid_t supervisor = ::fork();
    if (supervisor < 0) {
        return tl::make_unexpected("cannot start a supervisor: fork: " + error_text());
    }
    if (supervisor > 0) {
        return Supervised{.link = SupervisorLink(std::move(ours), supervisor),
                          .launcher = launcher,
                          .launched_by_slurm = task != 0,
                          .vitals = vitals,
                          .succession = {}};
    }
    ours.reset();
    leave_launcher(theirs.get());
    return Supervisor(options, std::move(theirs), launcher, task, daemon, *vitals).run();
}

}  // namespace copper
