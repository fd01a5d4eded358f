// Drives the MPI fabric for real: started by mpirun, as each of several ranks.
//   mpi_fabric_test exchange   all pairs send each other thousands of frames of all sizes in both lanes
//   mpi_fabric_test glance     what has arrived must be found by the first call of progress()
//   mpi_fabric_test ring       ranks of one machine, which look for messages only when rung
//   mpi_fabric_test loss PIPE  the last rank is killed in the middle of its sends; the others must go on, and
//                              each writes so into the named pipe, whose reader leaves when it has heard all
//   mpi_fabric_test strangers  the last rank has another key, the one before it none; the others must go on,
//                              and neither side takes anything of the other
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/checksum.hpp"
#include "base/host_name.hpp"
#include "base/unique_fd.hpp"
#include "fabric/mpi/mpi_fabric.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr auto patience = 30s;
constexpr std::size_t mebibyte = 1U << 20;
constexpr std::size_t largest_body = body_bytes_max;
constexpr std::size_t offsets = 4096;

enum class Topic : std::uint64_t { data, done, process_id };

struct Header {
    Topic topic = Topic::data;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    std::uint64_t number = 0;  // within the lane of this pair
    std::uint64_t body_bytes = 0;
};

[[noreturn]] void fail(Rank self, const char* what) {
    std::fprintf(stderr, "rank %u: %s\n", self.value, what);
    std::fflush(stderr);
    std::_Exit(1);
}

// The bytes that all bodies are taken from: the same on every rank, and different at every offset.
std::shared_ptr<const std::byte[]> make_pattern() {
    std::vector<std::byte> pattern(largest_body + offsets);
    std::mt19937_64 random(1);
    for (std::byte& b : pattern) {
        b = static_cast<std::byte>(random());
    }
    return copy_to_blob(pattern).data;
}

class Traffic {
  public:
    Traffic(MpiFabric& fabric, std::uint32_t ranks)
        : fabric_(fabric), self_(fabric.self()), ranks_(ranks), next_(fabric.size()) {}

    void send(Rank to, Lane lane, std::uint64_t number, std::size_t bytes, Topic topic = Topic::data) {
        const Header header{topic, self_.value, to.value, number, bytes};
        fabric_.send(to, {copy_to_blob(std::as_bytes(std::span(&header, 1))),
                          {{pattern_, pattern_.get() + offset_of(header)}, bytes},
                          lane});
    }

    // `eager` and `bulk` frames to each of the other ranks, mixed, numbered by lane.
    void send_all(std::size_t eager, std::size_t bulk) {
        static constexpr std::size_t eager_sizes[] = {0, 1, 100, 4096, eager_body_bytes_max};
        static constexpr std::size_t bulk_sizes[] = {0,
                                                     1,
                                                     eager_body_bytes_max,
                                                     eager_body_bytes_max + 1,
                                                     256U << 10,
                                                     (256U << 10) + 1,
                                                     mebibyte,
                                                     largest_body};
        for (std::size_t number = 0; number < std::max(eager, bulk); ++number) {
            for (std::uint32_t to = 0; to < ranks_; ++to) {
                if (to == self_.value) {
                    continue;
                }
                if (number < bulk) {
                    send(Rank{to}, Lane::bulk, number, bulk_sizes[number % std::size(bulk_sizes)]);
                }
                if (number < eager) {
                    send(Rank{to}, Lane::eager, number, eager_sizes[number % std::size(eager_sizes)]);
                }
            }
        }
        expected_ += (eager + bulk) * (ranks_ - 1);
    }

    void receive(Rank from, const Frame& frame) {
        Header header;
        if (frame.header.size != sizeof(header)) {
            fail(self_, "a header of the wrong size");
        }
        std::memcpy(&header, frame.header.data.get(), sizeof(header));
        if (header.from != from.value || header.to != self_.value || header.body_bytes != frame.body.size) {
            fail(self_, "a wrong header");
        }
        if (frame.body.size != 0 &&
            std::memcmp(frame.body.data.get(), pattern_.get() + offset_of(header), frame.body.size) != 0) {
            fail(self_, "wrong bytes");
        }
        if (frame.lane == Lane::bulk && frame.body.checksum != checksum_of(frame.body.span())) {
            fail(self_, "a wrong checksum of the bytes that came");
        }
        if (header.topic == Topic::done) {
            done_.insert(from);
        } else if (header.topic == Topic::process_id) {
            process_id_ = static_cast<pid_t>(header.number);
        } else if (from.value < ranks_) {
            if (next_[from.value][static_cast<std::size_t>(frame.lane)]++ != header.number) {
                fail(self_, "out of order");
            }
            ++received_;
        }
    }

    template <typename Condition>
    void progress_until(Condition condition, const char* what) {
        const auto deadline = SteadyClock::now() + patience;
        while (!condition()) {
            progress_once();
            if (SteadyClock::now() > deadline) {
                for (std::size_t rank = 0; rank < next_.size(); ++rank) {
                    std::fprintf(stderr, "rank %u: of rank %zu %llu eager and %llu bulk frames came; %s\n",
                                 self_.value, rank, static_cast<unsigned long long>(next_[rank][0]),
                                 static_cast<unsigned long long>(next_[rank][1]),
                                 lost_.contains(Rank{static_cast<std::uint32_t>(rank)}) ? "it counts as lost"
                                                                                        : "it lives");
                }
                fail(self_, what);
            }
        }
    }

    bool progress_once() {
        return fabric_.progress([this](Rank from, const Frame& frame) { receive(from, frame); },
                                [this](Rank rank) { lost_.insert(rank); });
    }

    void await_all_frames() {
        if (fabric_.backlog_bytes() == 0) {
            fail(self_, "nothing is on its way");
        }
        progress_until([this] { return received_ == expected_; }, "frames did not arrive");
        progress_until([this] { return fabric_.flushed(); }, "never flushed");
        if (fabric_.backlog_bytes() != 0) {
            fail(self_, "something is on its way although all is sent");
        }
    }

    // Each tells each that it has all: then nothing is under way but what flushed() knows of.
    void part() {
        for (std::uint32_t to = 0; to < ranks_; ++to) {
            if (to != self_.value) {
                send(Rank{to}, Lane::eager, 0, 0, Topic::done);
            }
        }
        progress_until([this] { return done_.size() == ranks_ - 1 && fabric_.flushed(); },
                       "others are not done");
    }

    pid_t process_id() const { return process_id_; }
    pid_t take_process_id() { return std::exchange(process_id_, 0); }
    const std::set<Rank>& lost() const { return lost_; }
    std::size_t received() const { return received_; }

  private:
    static std::size_t offset_of(const Header& header) {
        return (header.from * 1009 + header.to * 101 + header.number * 13) % offsets;
    }

    MpiFabric& fabric_;
    const Rank self_;
    const std::uint32_t ranks_;  // the first ones, which exchange data
    const std::shared_ptr<const std::byte[]> pattern_ = make_pattern();
    std::vector<std::array<std::uint64_t, lane_count>> next_;
    std::size_t expected_ = 0;
    std::size_t received_ = 0;
    std::set<Rank> done_;
    std::set<Rank> lost_;
    pid_t process_id_ = 0;
};

void exchange(MpiFabric& fabric) {
    Traffic traffic(fabric, fabric.size());
    traffic.send_all(1500, 96);
    traffic.await_all_frames();
    traffic.part();
    const FabricCounters counters = fabric.counters();
    if (counters.bytes_sent < 5 * LinkRate::span_bytes / 4) {
        fail(fabric.self(), "too little was sent to measure a fast link");
    }
    if (!traffic.lost().empty() || counters.dropped != 0 ||
        counters.messages_sent != counters.messages_received ||
        counters.bytes_sent != counters.bytes_received) {
        fail(fabric.self(), "the counters do not add up");
    }
    // 100 TB/s would be a measurement of nothing.
    if (fabric.link().bytes_per_second <= 1e3 || fabric.link().bytes_per_second >= 1e14) {
        fail(fabric.self(), "the link's speed was not measured");
    }
    fabric.finish(MpiFabric::Ending::together);
}

// Two frames of all sizes go round all ranks, one after the other in each lane. No rank looks while it waits,
// except for what is under way.
void ring(MpiFabric& fabric) {
    constexpr std::size_t frames = 100;
    Traffic traffic(fabric, fabric.size());
    if (fabric.arrivals() != Fabric::Arrivals::rung) {
        fail(fabric.self(), "nodes of one machine do not ring");
    }
    const auto sleep_until = [&](auto condition, const char* what) {
        while (true) {
            fabric.doorbell().reset();
            const bool moved = traffic.progress_once();
            if (condition()) {
                return;
            }
            if (moved) {
                continue;
            }
            const bool is_rung = fabric.arrivals() == Fabric::Arrivals::rung;
            const auto began = SteadyClock::now();
            fabric.doorbell().wait(began + (is_rung ? patience : 100us));
            if (is_rung && SteadyClock::now() - began >= patience) {
                fail(fabric.self(), what);
            }
        }
    };
    for (std::size_t number = 0; number < frames; ++number) {
        const auto pass_on = [&] {
            const Rank next{(fabric.self().value + 1) % fabric.size()};
            traffic.send(next, Lane::eager, number, number * 600);
            traffic.send(next, Lane::bulk, number, number * number * 100);
        };
        if (fabric.self().value == 0) {
            std::this_thread::sleep_for(1ms);  // then the others usually sleep
            pass_on();
        }
        sleep_until([&] { return traffic.received() == 2 * (number + 1); }, "nobody rang");
        if (fabric.self().value != 0) {
            pass_on();
        }
    }
    sleep_until([&] { return fabric.flushed(); }, "never flushed");
    traffic.part();
    fabric.finish(MpiFabric::Ending::together);
}

constexpr int has_sent = SIGUSR2;

sigset_t signals_of_tests() {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, has_sent);
    return signals;
}

// A daemon that shares its cores pauses after a call that has found nothing.
void glance(MpiFabric& fabric) {
    constexpr std::uint64_t messages = 20;
    constexpr Rank sender{1};
    constexpr Rank receiver{0};
    Traffic traffic(fabric, fabric.size());
    std::uint64_t found_at_once = 0;
    for (std::uint64_t number = 0; number < messages; ++number) {
        if (fabric.self() == receiver) {
            traffic.send(sender, Lane::eager, static_cast<std::uint64_t>(::getpid()), 0, Topic::process_id);
            traffic.progress_until([&] { return fabric.flushed(); }, "never flushed");
            const timespec time{.tv_sec = std::chrono::seconds(patience).count(), .tv_nsec = 0};
            const sigset_t signals = signals_of_tests();
            if (::sigtimedwait(&signals, nullptr, &time) != has_sent) {
                fail(receiver, "nothing was sent");
            }
            traffic.progress_once();
            found_at_once += traffic.received() == number + 1 ? 1 : 0;
            traffic.progress_until([&] { return traffic.received() == number + 1; }, "nothing arrived");
        } else if (fabric.self() == sender) {
            traffic.progress_until([&] { return traffic.process_id() != 0; }, "the receiver is not there");
            traffic.send(receiver, Lane::eager, number, 100);
            traffic.progress_until([&] { return fabric.flushed(); }, "never flushed");
            ::kill(traffic.take_process_id(), has_sent);
        }
    }
    // The first ones come while the link is still being made.
    if (fabric.self() == receiver && found_at_once < messages / 2) {
        fail(receiver, "what had arrived was not found at once");
    }
    traffic.part();
    fabric.finish(MpiFabric::Ending::together);
}

void loss(MpiFabric& fabric, const char* pipe) {
    const UniqueFd report(::open(pipe, O_WRONLY | O_CLOEXEC));
    if (!report) {
        fail(fabric.self(), "the pipe for the report cannot be opened");
    }
    const Rank victim{fabric.size() - 1};
    Traffic traffic(fabric, fabric.size() - 1);
    if (fabric.self() == victim) {
        for (std::uint32_t to = 0; to < victim.value; ++to) {
            traffic.send(Rank{to}, Lane::eager, static_cast<std::uint64_t>(::getpid()), 0, Topic::process_id);
        }
        traffic.progress_until([&] { return fabric.flushed(); }, "never flushed");
        for (std::uint32_t number = 0; number < 16; ++number) {
            traffic.send(Rank{0}, number % 2 == 0 ? Lane::eager : Lane::bulk, number,
                         number % 2 == 0 ? eager_body_bytes_max : largest_body);
        }
        ::raise(SIGKILL);
    }
    traffic.progress_until([&] { return traffic.process_id() != 0; }, "the victim did not introduce itself");
    // MPI does not know of it yet.
    const auto deadline = SteadyClock::now() + patience;
    while (::kill(traffic.process_id(), 0) == 0 && SteadyClock::now() < deadline) {
        std::this_thread::sleep_for(10ms);
    }
    traffic.send(victim, Lane::bulk, 0, mebibyte);
    traffic.progress_until([&] { return ::kill(traffic.process_id(), 0) != 0; }, "the victim lives on");
    traffic.send_all(500, 60);
    traffic.await_all_frames();
    traffic.part();
    ::dprintf(report.get(), "rank %u went on\n", fabric.self().value);
    // The end of one may end others (Hydra), so none ends before the reader of the pipe has heard all.
    pollfd reader{.fd = report.get(), .events = 0, .revents = 0};
    ::poll(&reader, 1, std::chrono::milliseconds(patience).count());
    std::_Exit(0);
}

// What it gets of those whose key it has counts in Traffic, everything else must be refused.
void strangers(MpiFabric& fabric) {
    constexpr std::size_t messages = 5;
    const std::uint32_t friends = fabric.size() - 2;
    const bool is_stranger = fabric.self().value >= friends;
    Traffic traffic(fabric, friends);
    const std::uint64_t refused_at_last = messages * (is_stranger ? fabric.size() - 1 : 2);
    // One after the other, as what waits for the same node would go together.
    for (std::uint64_t number = 0; number < messages; ++number) {
        for (std::uint32_t to = 0; to < fabric.size(); ++to) {
            if (to != fabric.self().value && (is_stranger || to >= friends)) {
                traffic.send(Rank{to}, Lane::eager, number, 100);
            }
        }
        traffic.progress_until([&] { return fabric.flushed(); }, "never flushed");
    }
    if (!is_stranger) {
        traffic.send_all(500, 30);
        traffic.await_all_frames();
    }
    traffic.progress_until([&] { return fabric.counters().refused >= refused_at_last; },
                           "messages of strangers were not counted");
    if (is_stranger) {
        if (fabric.counters().messages_received != 0) {
            fail(fabric.self(), "a stranger took a message");
        }
    } else {
        traffic.part();
    }
    if (fabric.counters().refused != refused_at_last || !traffic.lost().empty()) {
        fail(fabric.self(), "more was refused than what strangers sent, or somebody was lost over it");
    }
    fabric.finish(MpiFabric::Ending::together);
}

// Of all but the last two ranks in the scenario of the strangers; then another one, and none.
std::optional<JobKey> key_in(std::string_view scenario) {
    const auto variable = [](const char* name) { return std::strtol(std::getenv(name), nullptr, 10); };
    if (scenario != "strangers") {
        return scenario == "exchange" ? JobKey::from_text(std::string(2 * JobKey::bytes, '1')) : std::nullopt;
    }
    const char* open_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
    const long rank = variable(open_mpi != nullptr ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK");
    const long size = variable(open_mpi != nullptr ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE");
    if (rank == size - 2) {
        return std::nullopt;
    }
    return JobKey::from_text(std::string(2 * JobKey::bytes, rank == size - 1 ? '2' : '1'));
}

// All ranks run on this host.
void check_names(const Fabric& fabric) {
    for (std::uint32_t rank = 0; rank < fabric.size(); ++rank) {
        if (fabric.name_of(Rank{rank}) != host_name() + "#" + std::to_string(rank)) {
            fail(fabric.self(), "another name of a node");
        }
    }
}

int run(std::string_view scenario, const char* pipe) {
    ::signal(SIGPIPE, SIG_IGN);  // as the daemon does
    MpiFabric::prepare_process();
    const sigset_t signals = signals_of_tests();
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);  // in the MPI library's threads too
    // Small limits, so that they are reached.
    auto fabric = MpiFabric::start({.receives_posted = 4,
                                    .bodies_in_flight_max = 2,
                                    .bulk_sends_in_flight_per_peer_max = 4,
                                    .send_deadline = scenario == "loss" ? 5000ms : 60000ms,
                                    .key = key_in(scenario)});
    if (!fabric) {
        std::fprintf(stderr, "%s\n", fabric.error().c_str());
        return 1;
    }
    if ((*fabric)->size() < 3 || !MpiFabric::launched()) {
        fail((*fabric)->self(), "started by mpirun -np 3 at least, please");
    }
    check_names(**fabric);
    if (scenario == "glance") {
        glance(**fabric);
    } else if (scenario == "ring") {
        ring(**fabric);
    } else if (scenario == "loss") {
        loss(**fabric, pipe);
    } else if (scenario == "strangers") {
        strangers(**fabric);
    } else {
        exchange(**fabric);
    }
    return 0;
}

}  // namespace
}  // namespace copper

int main(int argc, char** argv) {
    return copper::run(argc > 1 ? argv[1] : "exchange", argc > 2 ? argv[2] : "");
}
