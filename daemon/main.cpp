// copperd: the daemon of one node.
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <thread>

#include "base/host_name.hpp"
#include "daemon/background_log.hpp"
#include "daemon/control/job_key_variable.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/option_flags.hpp"
#include "daemon/log.hpp"
#include "daemon/node.hpp"
#include "daemon/page_filler.hpp"
#include "daemon/pinning.hpp"
#include "daemon/pmix_connection.hpp"
#include "daemon/signals.hpp"
#ifdef COPPER_HAVE_MPI
#include "fabric/mpi/mpi_fabric.hpp"
#endif

namespace copper {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr int exit_by_signal = 128;
// When all nodes leave MPI together, a node that was lost meanwhile would block the others for ever.
constexpr std::chrono::seconds leave_time_max{10};

int fail(const std::string& error, int exit_code) {
    std::cerr << "copperd: " << error << '\n';
    return exit_code;
}

struct CommandLine {
    FlagTexts texts;
    std::optional<std::string> config;
    std::optional<int> exit_code;  // nothing else to do
};

CommandLine parse(int argc, char** argv) {
    CommandLine line;
    CLI::App app;
    std::string config;
    add_daemon_command_line(app, line.texts, config);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        line.exit_code = app.exit(help);
    } catch (const CLI::ParseError& error) {
        line.exit_code = fail(std::string(error.what()) + "\nTry 'copperd --help'.", exit_usage);
    }
    if (app.count("--config") > 0) {
        line.config = config;
    }
    return line;
}

// `nodes`: of the launch, if that is known. Not every launcher has variables by which an MPI program knows
// it.
bool launched_as_one_of_several([[maybe_unused]] std::uint32_t nodes) {
#ifdef COPPER_HAVE_MPI
    return nodes > 1 || MpiFabric::launched();
#else
    return false;
#endif
}

using StartedFabric = tl::expected<std::unique_ptr<Fabric>, std::string>;

StartedFabric no_fabric() {
    return std::make_unique<SoloFabric>();
}

StartedFabric start_fabric([[maybe_unused]] const std::shared_ptr<ExtentMemory>& memory,
                           [[maybe_unused]] const std::optional<JobKey>& key,
                           [[maybe_unused]] std::uint32_t nodes) {
#ifdef COPPER_HAVE_MPI
    if (launched_as_one_of_several(nodes)) {
        auto fabric = MpiFabric::start({.memory = memory, .key = key});
        if (!fabric) {
            return tl::make_unexpected(fabric.error());
        }
        return std::unique_ptr<Fabric>(std::move(*fabric));
    }
#endif
    return no_fabric();
}

void leave_fabric([[maybe_unused]] Fabric& fabric, [[maybe_unused]] Parting parting,
                  [[maybe_unused]] int exit_code) {
#ifdef COPPER_HAVE_MPI
    auto* mpi = dynamic_cast<MpiFabric*>(&fabric);
    if (mpi == nullptr) {
        return;
    }
    std::promise<void> left;
    std::thread watchdog([exit_code, waiting = left.get_future()] {
        if (waiting.wait_for(leave_time_max) == std::future_status::timeout) {
            ::_exit(exit_code);
        }
    });
    if (parting == Parting::alone) {
        leave_pmix();
    }
    mpi->finish(parting == Parting::together ? MpiFabric::Ending::together : MpiFabric::Ending::alone);
    left.set_value();
    watchdog.join();
#endif
}

// Prepares what depends on this machine. If that fails, the node still joins the job, to report the reason.
tl::expected<Cores, std::string> prepare(DaemonOptions& options, JobSpan span) {
    if (auto chosen = choose_trees(options, span); !chosen) {
        return tl::make_unexpected(chosen.error());
    }
    if (auto started = start_log(options); !started) {
        return tl::make_unexpected(started.error());
    }
    for (const auto& warning : options.warnings) {
        spdlog::warn("{}", warning);
    }
    const auto placement = pin_process(options.cores);
    if (!placement) {
        return tl::make_unexpected(placement.error());
    }
    spdlog::info("{}", placement->description);
    return placement->cores;
}

// A reader with many clients needs more open files than a shell's usual 1024.
void allow_many_files() {
    rlimit files = {};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
}

// Without these settings, the heap keeps much of the memory that leaves the cache. malloc would place extents
// among small objects after the first one is freed, and each would leave a hole of its size. Also, each
// thread would have its own heap.
void give_memory_back() {
#ifdef __GLIBC__
    ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    ::mallopt(M_ARENA_MAX, 8);
#endif
}

using GivenKey = tl::expected<std::optional<JobKey>, std::string>;

void set_up_process(const GivenKey& key) {
    if (key) {
        key_checksums(*key);
    }
    allow_many_files();
    give_memory_back();
#ifdef COPPER_HAVE_MPI
    MpiFabric::prepare_process();
#endif
    // Schedulers send them to all processes of a job, for its programs (#SBATCH --signal).
    for (const int signal : {SIGUSR1, SIGUSR2}) {
        std::signal(signal, SIG_IGN);
    }
}

// What a node has before it joins the others. With an error, it joins them only to report the error.
struct Start {
    DaemonOptions options = {};
    std::string error = {};
    Supervised supervised = {};
    Cores cores = Cores::shared;
};

// The options and, if they cannot be used, why.
Start read_options(const CommandLine& line, const GivenKey& key) {
    auto options = resolve_options(line.texts, line.config);
    const auto usable = options.and_then([&key](const DaemonOptions& given) {
        return check_cache_bytes(given, 1).and_then(
            [&] { return check_job_key(key, given.require_key ? KeyNeed::required : KeyNeed::optional); });
    });
    return {.options = std::move(options).value_or(DaemonOptions()), .error = usable ? "" : usable.error()};
}

void start_on_this_machine(Start& start, bool launched) {
    auto worker = supervise(start.options);
    if (!worker) {
        start.error = worker.error();
        return;
    }
    start.supervised = std::move(*worker);
    const auto span = launched && !start.options.local ? JobSpan::several_machines : JobSpan::one_machine;
    if (const auto prepared = prepare(start.options, span)) {
        start.cores = *prepared;
    } else {
        start.error = prepared.error();
    }
}

// Slurm's mpi/pmix would end the job step when the connection ends.
void hold_pmix_connection(Supervised& supervised) {
    if (!supervised.launched_by_slurm || std::getenv("PMIX_RANK") == nullptr) {
        return;
    }
    if (const auto connection = pmix_connection()) {
        supervised.link.hold(*connection);
    } else {
        spdlog::warn(
            "the connection with Slurm's PMIx server was not found: if this daemon is lost, Slurm ends all");
    }
}

[[noreturn]] void exit_at_once(int exit_code) {
    std::fflush(nullptr);
    ::_exit(exit_code);
}

// Joins the others, serves until the end, and leaves them.
int serve(Start start, const std::optional<JobKey>& key, bool several) {
    PageFiller filler = start.supervised.succession ? PageFiller() : PageFiller::start();
    // Until the node exists, a signal ends the process at once: there is nothing to clean up.
    std::atomic<Node*> node = nullptr;
    std::optional<SignalWatcher> signals(std::in_place, [&node](int signal, pid_t sender) {
        if (Node* running = node.load()) {
            running->stop_by_signal(signal, sender);
        } else {
            ::_exit(exit_by_signal + signal);
        }
    });
    std::optional<BackgroundLog> log(std::in_place);  // its thread must leave the signals to their watcher
    const auto memory = ExtentMemory::make();
    auto fabric = start.supervised.succession ? no_fabric() : start_fabric(memory, key, start.options.nodes);
    if (!fabric) {
        return fail(fabric.error(), exit_failed);
    }
    hold_pmix_connection(start.supervised);
    if (start.supervised.vitals != nullptr) {
        start.supervised.vitals->note_end_of_this_process();  // after MPI, which has handlers of its own
    }
    Node this_node(std::move(start.options), std::move(*fabric), memory, std::move(start.error), start.cores,
                   std::move(start.supervised), std::move(filler));
    node = &this_node;
    const int exit_code = this_node.run();
    if (this_node.leaves_mount_to_successor()) {
        log.reset();
        exit_at_once(exit_code);
    }
    signals.reset();
    leave_fabric(this_node.fabric(), this_node.parting(), exit_code);
    if (this_node.is_stuck() || (several && this_node.parting() == Parting::alone)) {
        // Do not wait for the filesystem, and do not call MPI's shutdown, which needs the other nodes.
        log.reset();
        exit_at_once(exit_code);
    }
    return exit_code;
}

int run(int argc, char** argv, const GivenKey& key) {
    const CommandLine line = parse(argc, argv);
    if (line.exit_code) {
        return *line.exit_code;
    }
    set_up_process(key);
    auto start = read_options(line, key);
    const bool launched = launched_as_one_of_several(start.options.nodes);
    if (!start.error.empty() && !launched) {
        return fail(start.error, exit_usage);
    }
    // MPI would wait for ever for a node on which it cannot start.
    if (const auto room = check_room(); !room) {
        return fail(host_name() + ": " + room.error(), exit_failed);
    }
    if (start.error.empty()) {
        start_on_this_machine(start, launched);
    }
    const bool several = launched && !start.supervised.succession;
    if (!start.error.empty() && !several) {
        return fail(start.error, exit_failed);
    }
    return serve(std::move(start), key ? *key : std::nullopt, several);
}

}  // namespace
}  // namespace copper

int main(int argc, char** argv) {
    const auto key = copper::take_job_key();  // before anybody can look for it
    return copper::run(argc, argv, key);
}
