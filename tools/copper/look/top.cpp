#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>

#include "base/guarded.hpp"
#include "base/unique_fd.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/look/top_view.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/programs/mirror.hpp"

#define NCURSES_NOMACROS  // its macros have the names of functions of the standard library
#include <curses.h>

namespace copper::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds refresh_interval{1000};
constexpr milliseconds top_patience{2000};
constexpr std::size_t top_paths = 40;

Result<Sample> take_sample(const std::string& mount) {
    // A launcher gives programs no terminal.
    return ask_sum(mount, instances_of_job(mount), top_paths, "top --once", top_patience)
        .map([](JobStatistics job) { return Sample{.job = std::move(job), .at = steady_clock::now()}; });
}

// Asks the job once per interval, in a thread of its own: the keyboard must not wait for a slow node.
class Samples {
  public:
    explicit Samples(std::string mount) : shared_(std::make_shared<Shared>()) {
        shared_->news = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        // Detached: at the end, nobody waits for a job that does not answer.
        std::thread([shared = shared_, mount = std::move(mount)] {
            std::this_thread::sleep_for(refresh_interval);  // the first sample is there
            while (shared.use_count() > 1) {
                auto sample = take_sample(mount);
                *shared->last.lock() = std::move(sample);
                ::eventfd_write(shared->news.get(), 1);
                std::this_thread::sleep_for(refresh_interval);
            }
        }).detach();
    }
    int news() const { return shared_->news.get(); }
    std::optional<Result<Sample>> take() {
        eventfd_t count = 0;
        ::eventfd_read(news(), &count);
        std::optional<Result<Sample>> taken;
        taken.swap(*shared_->last.lock());
        return taken;
    }

  private:
    struct Shared {
        UniqueFd news;
        Guarded<std::optional<Result<Sample>>> last;
    };
    const std::shared_ptr<Shared> shared_;
};

// Restores the terminal at its end.
class Screen {
  public:
    static std::unique_ptr<Screen> open() {
        SCREEN* screen = ::newterm(nullptr, stdout, stdin);
        return screen == nullptr ? nullptr : std::unique_ptr<Screen>(new Screen(screen));
    }
    ~Screen() {
        ::endwin();
        ::delscreen(screen_);
    }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    void show(const std::vector<std::string>& lines, const std::string& foot) {
        ::werase(stdscr);
        const auto width = static_cast<std::size_t>(getmaxx(stdscr));
        const int height = getmaxy(stdscr);
        for (int i = 0; i < height - 1 && i < static_cast<int>(lines.size()); ++i) {
            const auto& line = lines[static_cast<std::size_t>(i)];
            const bool is_head = i == 0 || line.find("PER SECOND") != std::string::npos ||
                                 line.starts_with("LOST, ") ||
                                 line.find("  HOTTEST PATHS") != std::string::npos;
            ::wattrset(stdscr, is_head ? A_BOLD : A_NORMAL);
            ::mvwaddnstr(stdscr, i, 0, line.c_str(), static_cast<int>(width));
        }
        ::wattrset(stdscr, A_REVERSE);
        // Not up to the last column: there, the screen would scroll.
        ::mvwaddnstr(stdscr, height - 1, 0, foot.c_str(), static_cast<int>(width) - 1);
        ::wrefresh(stdscr);
    }
    std::size_t columns() const { return static_cast<std::size_t>(getmaxx(stdscr)); }
    std::size_t lines() const { return static_cast<std::size_t>(getmaxy(stdscr)); }

  private:
    explicit Screen(SCREEN* screen) : screen_(screen) {
        ::cbreak();
        ::noecho();
        ::curs_set(0);
        ::keypad(stdscr, TRUE);
        ::wtimeout(stdscr, 0);
    }
    SCREEN* screen_;
};

class Top {
  public:
    Top(std::unique_ptr<Screen> screen, std::string mount, Sample first, int signals)
        : screen_(std::move(screen)), now_(std::move(first)), samples_(std::move(mount)), signals_(signals) {}

    // Returns the signal that ended it; 0: the user did.
    int run() {
        while (true) {
            draw();
            std::array<pollfd, 3> polled = {pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                            pollfd{.fd = signals_, .events = POLLIN, .revents = 0},
                                            pollfd{.fd = samples_.news(), .events = POLLIN, .revents = 0}};
            const bool any = ::poll(polled.data(), polled.size(), -1) > 0;
            if (any && polled[1].revents != 0) {
                signalfd_siginfo signal = {};
                return ::read(signals_, &signal, sizeof(signal)) == sizeof(signal)
                           ? static_cast<int>(signal.ssi_signo)
                           : SIGTERM;
            }
            if (any && (polled[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
                return SIGHUP;
            }
            // Without input, too: ncurses tells there of a new size, after which poll() was interrupted.
            for (int key = ::wgetch(stdscr); key != ERR; key = ::wgetch(stdscr)) {
                if (key == 'q' || key == 'Q') {
                    return 0;
                }
            }
            if (any && polled[2].revents != 0) {
                take_news();
            }
        }
    }

  private:
    void take_news() {
        auto sample = samples_.take();
        if (!sample) {
            return;
        }
        problem_ = *sample ? "" : sample->error().reason.substr(0, sample->error().reason.find('\n'));
        if (*sample) {
            before_ = std::move(now_);
            now_ = std::move(**sample);
        }
    }
    void draw() {
        const auto columns = screen_->columns();
        const auto lines = screen_->lines();
        if (columns < top_columns_min || lines < top_lines_min) {
            screen_->show(
                {"copper top needs " + std::to_string(top_columns_min) + " columns and " +
                     std::to_string(top_lines_min) + " lines.",
                 "This terminal has " + std::to_string(columns) + " and " + std::to_string(lines) + "."},
                "q quits");
            return;
        }
        screen_->show(top_view(now_, before_, columns, lines - 1),
                      problem_.empty() ? "q quits" : problem_ + " - q quits");
    }

    const std::unique_ptr<Screen> screen_;
    Sample now_;
    std::optional<Sample> before_;
    std::string problem_;
    Samples samples_;
    const int signals_;
};

Result<void> print_once(const std::string& mount, Sample first) {
    std::this_thread::sleep_for(refresh_interval);
    return take_sample(mount).map([&first](const Sample& second) {
        for (const auto& line : top_view(second, first, top_columns_min, top_lines_min)) {
            std::cout << line << "\n";
        }
    });
}

Result<void> watch(const std::string& mount, Sample first) {
    sigset_t ending;
    ::sigemptyset(&ending);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        ::sigaddset(&ending, signal);
    }
    // Before the thread starts, which inherits this.
    ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    const UniqueFd signals(::signalfd(-1, &ending, SFD_CLOEXEC));
    auto screen = Screen::open();
    if (screen == nullptr) {
        const char* type = std::getenv("TERM");
        return misused("the type of this terminal, TERM=" + std::string(type == nullptr ? "" : type) +
                       ", is not known: try 'TERM=xterm copper top', or 'copper top --once'");
    }
    const int signal = Top(std::move(screen), mount, std::move(first), signals.get()).run();
    if (signal != 0 && signal != SIGINT) {
        ::signal(signal, SIG_DFL);  // instead of what ncurses would do
        ::pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);
        ::raise(signal);
    }
    return {};
}

struct TopOptions {
    std::string mount;
    bool once = false;
};

Result<void> show_top(const TopOptions& options) {
    if (!options.once && (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)) {
        return misused("copper top needs a terminal; 'copper top --once' prints one view");
    }
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    warn_of_other_job(*mount);
    return take_sample(*mount).and_then([&](Sample first) {
        return options.once ? print_once(*mount, std::move(first)) : watch(*mount, std::move(first));
    });
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
    auto options = std::make_shared<TopOptions>();
    auto* command =
        app.add_subcommand("top", "Watch the job: rates, what was saved, slow and lost nodes, hot paths");
    add_mount_option(*command, options->mount);
    command->add_flag("--once", options->once, "Print the view of one second, without a terminal");
    command->footer("One refresh per second; q quits.\n\nExamples:\n  copper top\n  copper top --once");
    command->callback([options, &action] { action = [options] { return show_top(*options); }; });
}

}  // namespace copper::cli
