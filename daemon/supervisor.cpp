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
#include <csignal>
#include <cstdlib>
#include <vector>

#include "base/error_text.hpp"
#include "base/mount_table.hpp"
#include "base/processes.hpp"
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

std::string state_of(pid_t pid) {
    switch (state_letter(pid)) {
        case 'T':
        case 't':
            return "stopped by a signal or a debugger";
        case 'D':
            return "waiting in the kernel, perhaps for a filesystem";
        case 'R':
            return "running";
        default: {
            const std::string channel = wait_channel(pid);
            return channel.empty() ? "asleep" : "asleep in " + channel;
        }
    }
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

// What becomes of the mount when its daemon is lost. Nothing comes back: of two states, the later one counts.
enum class Fate : std::uint8_t {
    not_begun,        // it ends: not all nodes serve yet
    kept,             // a successor goes on with it
    lost_too_often,   // it ends
    ended_by_signal,  // it ends: somebody told this process so
    released,         // nothing is left of it, or the daemon removes it
};

// The daemon that the supervisor watches: the first one, later a successor.
class Daemon {
  public:
    enum class Kind { first, successor };  // a successor is a child of this process
    Daemon(UniqueFd link, pid_t pid, Kind kind)
        : link_(std::move(link)), process_(process_named(pid)), kind_(kind), silence_(pid) {}

    int socket() const { return link_.get(); }
    pid_t pid() const { return process_.pid; }
    bool is_successor() const { return kind_ == Kind::successor; }
    // False also if its main thread has ended, which takes the others with it.
    bool is_running() const { return copper::is_running(process_); }

    void has_spoken() {
        heard_at_ = steady_clock::now();
        silence_.end();
    }
    steady_clock::time_point heard_at() const { return heard_at_; }
    Silence& silence() { return silence_; }

    // The exit status, if it is a child that has ended.
    std::optional<int> reap();

  private:
    const UniqueFd link_;
    const ProcessName process_;
    const Kind kind_;
    Silence silence_;
    steady_clock::time_point heard_at_ = steady_clock::now();
};

std::optional<int> Daemon::reap() {
    if (!is_successor()) {
        return std::nullopt;
    }
    int status = 0;
    const auto reaps = [&](int options) {
        return retry_eintr([&] { return ::waitpid(pid(), &status, options); }) == pid();
    };
    if (is_running()) {
        return reaps(0) ? std::optional(status) : std::nullopt;
    }
    // It is a zombie already, but its last thread may take a moment, or not end at all (see wait_for_end()).
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    bool is_reaped = reaps(WNOHANG);
    while (!is_reaped && ::sigtimedwait(&child, nullptr, &last_thread_time) > 0) {
        is_reaped = reaps(WNOHANG);
    }
    return is_reaped ? std::optional(status) : std::nullopt;
}

// The view of the mirror, once a program has made one.
class KeptView {
  public:
    // `received`: the end of a pipe, on whose other end the daemon waits for a byte; then the namespaces.
    void keep(const std::string& mount, std::vector<UniqueFd> received) {
        const auto mounts = read_mounts();
        const auto found = std::ranges::find_if(mounts, [&](const Mount& each) {
            return each.point == mount && each.type == copper_filesystem_type;
        });
        if (found == mounts.end() || view_.mount_namespace || received.size() < 2) {
            return;
        }
        device_ = found->device;
        view_ = {.mount_namespace = std::move(received[1]),
                 .user_namespace = received.size() > 2 ? std::move(received[2]) : UniqueFd()};
        mount_table_ = UniqueFd(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
        [[maybe_unused]] const auto told = ::write(received[0].get(), "", 1);
    }

    void end() {
        if (view_.mount_namespace) {
            uncover(view_, device_);
        }
        view_ = {};
        mount_table_.reset();
    }

    // Polled for changes of the mount table; -1 without a view.
    int mount_table() const { return mount_table_.get(); }

  private:
    View view_;
    std::string device_;  // of the mirror in it
    UniqueFd mount_table_;
};

class Supervisor {
  public:
    // `origin`: of the daemon that `link` leads to, whose process is `daemon`.
    Supervisor(const DaemonOptions& options, UniqueFd link, const Supervised& origin, pid_t daemon)
        : options_(options),
          lease_(options, origin.launcher),
          launcher_(origin.launcher),
          launched_by_slurm_(origin.launched_by_slurm),
          vitals_(*origin.vitals),
          daemon_(std::in_place, std::move(link), daemon, Daemon::Kind::first) {
        sigset_t watched;
        sigemptyset(&watched);
        for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
            sigaddset(&watched, signal);
        }
        sigset_t blocked = watched;
        sigaddset(&blocked, SIGCHLD);  // for Daemon::reap()
        ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
        signals_ = UniqueFd(::signalfd(-1, &watched, SFD_CLOEXEC));
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
    bool keeps_mount() const { return fate_ == Fate::kept; }
    void advance(Fate fate) { fate_ = std::max(fate_, fate); }

    // Returns when the daemon has ended, or is dead and cannot end: a thread that drops a name from the
    // kernel's memory waits for a lookup in its directory, which nobody but a successor can answer.
    void wait_for_end() {
        while (true) {
            std::array polled = {pollfd{.fd = daemon_->socket(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = view_.mount_table(), .events = POLLPRI, .revents = 0}};
            const milliseconds patience = keeps_mount() ? Silence::look_interval : milliseconds(-1);
            retry_eintr(
                [&] { return ::poll(polled.data(), polled.size(), static_cast<int>(patience.count())); });
            if (keeps_mount()) {
                if (polled[0].revents == 0 && polled[1].revents == 0) {
                    end_silence();
                }
                lease_.look(steady_clock::now(), next_.place.rank, next_.place.nodes,
                            daemon_->is_successor());
            }
            if (polled[1].revents != 0 && take_signal() && daemon_->is_successor()) {
                ::kill(daemon_->pid(), SIGTERM);
            }
            // The daemon does not notice: the kernel keeps its filesystem as long as a view shows it.
            if (polled[2].revents != 0 && !is_served(mount_)) {
                view_.end();
                ::kill(daemon_->pid(), SIGTERM);
            }
            const bool goes_on = polled[0].revents != 0 ? hear() : !keeps_mount() || daemon_->is_running();
            if (!goes_on) {
                return;
            }
        }
    }

    // Kills a daemon that hangs.
    void end_silence() {
        const auto hang_time = std::max<milliseconds>(hang_time_min, hang_deadlines * options_.deadline);
        if (daemon_->silence().look() < hang_time || !daemon_->is_running()) {
            return;
        }
        if (next_.why.empty()) {
            const auto silence =
                std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - daemon_->heard_at());
            next_.why = "killed by its supervisor: it was silent for " + std::to_string(silence.count()) +
                        " s; its loop " + to_string(vitals_.activity) + ", its process was " +
                        state_of(daemon_->pid());
        }
        ::kill(daemon_->pid(), SIGKILL);
        daemon_->silence().end();
    }

    // False if the connection has ended.
    bool hear() {
        std::vector<UniqueFd> descriptors;
        const auto packet = receive_packet(daemon_->socket(), descriptors);
        if (!packet) {
            return false;
        }
        daemon_->has_spoken();
        switch (packet->word) {
            case Word::keep:
                next_.place = packet->place;
                mount_ = packet->text.data();
                if (descriptors.size() == 2) {
                    next_.hand_over = {.device = std::move(descriptors[0]),
                                       .memory = std::move(descriptors[1])};
                }
                break;
            case Word::keep_view:
                view_.keep(mount_, std::move(descriptors));
                break;
            case Word::hold:
                held_ = std::move(descriptors);
                break;
            case Word::begin:
                advance(Fate::kept);
                break;
            case Word::is_alive:
                break;
            case Word::launcher_ends:
                next_.loss = Loss::launcher_ended;
                next_.why = packet->text.data();
                break;
            case Word::release:
                view_.end();
                next_.hand_over = {};
                advance(Fate::released);
                break;
            case Word::dismiss:
                // Outlives its child: a tool may wait for this process only.
                daemon_->reap();
                ::_exit(0);
        }
        return true;
    }

    bool take_signal() {
        signalfd_siginfo info = {};
        if (::read(signals_.get(), &info, sizeof(info)) <= 0) {
            return false;
        }
        advance(Fate::ended_by_signal);
        told_by_ = static_cast<pid_t>(info.ssi_pid);
        return true;
    }

    std::optional<Supervised> take_over() {
        const auto status = daemon_->reap();
        if (next_.why.empty()) {
            next_.why = status ? describe_end(*status) : describe_end(vitals_);
        }
        if (mount_.empty()) {
            ::_exit(0);
        }
        if (keeps_mount()) {
            wait_in_turn();
        }
        std::array<int, 2> ends = {};
        if (!keeps_mount() || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
            give_up();
        }
        UniqueFd ours(ends[0]);
        UniqueFd theirs(ends[1]);
        const pid_t supervisor = ::getpid();
        vitals_.reset();
        const pid_t successor = ::fork();
        if (successor < 0) {
            give_up();
        }
        if (successor > 0) {
            daemon_.emplace(std::move(ours), successor, Daemon::Kind::successor);
            next_.why.clear();
            return std::nullopt;
        }
        ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
        ::prctl(PR_SET_NAME, "copperd");
        next_.lost = daemon_->pid();
        return Supervised{.link = SupervisorLink(std::move(theirs), supervisor),
                          .launcher = launcher_,
                          .launched_by_slurm = launched_by_slurm_,
                          .vitals = &vitals_,
                          .succession = std::move(next_)};
    }

    // A daemon that is lost again and again must not be replaced at full speed.
    void wait_in_turn() {
        const auto now = steady_clock::now();
        std::erase_if(losses_, [now](steady_clock::time_point at) { return now - at > losses_window; });
        losses_.push_back(now);
        if (losses_.size() > losses_max) {
            advance(Fate::lost_too_often);
        } else if (losses_.size() > 1) {
            const milliseconds wait = first_wait * (1 << (losses_.size() - 2));
            pollfd signals{.fd = signals_.get(), .events = POLLIN, .revents = 0};
            if (retry_eintr([&] { return ::poll(&signals, 1, static_cast<int>(wait.count())); }) > 0) {
                take_signal();
            }
        }
    }

    std::string why_it_gives_up() const {
        switch (fate_) {
            case Fate::lost_too_often:
                return "for the " + std::to_string(losses_.size()) + "th time within " +
                       std::to_string(losses_window.count()) + " s";
            case Fate::ended_by_signal:
                return "after a signal of process " + std::to_string(told_by_) + " to its supervisor";
            default:
                return "before all nodes served";
        }
    }

    // Removes what the daemon left, but not what belongs to a later job that may have started here.
    [[noreturn]] void give_up() {
        const std::string directory = instance_directory(::geteuid(), mount_);
        const auto record = read_instance(directory);
        // (A process closes its end of the connection a moment before it ends.)
        if (record && record->pid != daemon_->pid() && is_running(record->pid, record->pid_started)) {
            ::_exit(0);
        }
        if (fate_ != Fate::released && start_log(options_)) {
            spdlog::critical("process {} was lost {} ({}): gave up {}. Clean up with `copper stop --local`",
                             daemon_->pid(), why_it_gives_up(), next_.why, mount_);
            spdlog::default_logger()->flush();
        }
        view_.end();
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
    const bool launched_by_slurm_;
    Vitals& vitals_;
    std::optional<Daemon> daemon_;
    UniqueFd signals_;
    sigset_t mask_before_ = {};
    Fate fate_ = Fate::not_begun;
    pid_t told_by_ = 0;  // the process whose signal told this one to end
    std::string mount_;
    Succession next_;  // what the next successor starts from, as far as known
    std::vector<UniqueFd> held_;
    KeptView view_;
    std::vector<steady_clock::time_point> losses_;
};

}  // namespace

tl::expected<Supervised, std::string> supervise(const DaemonOptions& options) {
    Supervised supervised{.link = {},
                          .launcher = process_named(::getppid()),
                          .launched_by_slurm = is_task_of_slurm(),
                          .vitals = nullptr,
                          .succession = {}};
    if (supervised.launched_by_slurm) {
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
    supervised.vitals = Vitals::make();
    if (supervised.vitals == nullptr) {
        return tl::make_unexpected("cannot start a supervisor: mmap: " + error_text());
    }
    const pid_t daemon = ::getpid();
    const pid_t supervisor = ::fork();
    if (supervisor < 0) {
        return tl::make_unexpected("cannot start a supervisor: fork: " + error_text());
    }
    if (supervisor > 0) {
        supervised.link = SupervisorLink(std::move(ours), supervisor);
        return supervised;
    }
    ours.reset();
    leave_launcher(theirs.get());
    return Supervisor(options, std::move(theirs), supervised, daemon).run();
}

}  // namespace copper
