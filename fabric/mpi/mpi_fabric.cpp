#include "fabric/mpi/mpi_fabric.hpp"

#include <mpi.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "base/host_name.hpp"
#include "fabric/envelope.hpp"
#include "fabric/message_order.hpp"
#include "fabric/mpi/body_receives.hpp"
#include "fabric/mpi/doorbells.hpp"
#include "fabric/mpi/message_receives.hpp"
#include "fabric/mpi/sends.hpp"

namespace copper {
namespace {

// A message holds one frame or more (envelope.hpp). The body of a bulk frame follows in pieces (pieces.hpp).
class Driver final : public MpiFabric {
  public:
    // `doorbells`: by rank; nothing for nodes on other machines.
    Driver(Options options, Rank self, std::vector<std::string> names, MPI_Comm messages,
           std::vector<Doorbell*> doorbells)
        : options_(options),
          self_(self),
          names_(std::move(names)),
          sealer_(options.key),
          doorbells_(std::move(doorbells)),
          all_ring_(std::all_of(doorbells_.begin(), doorbells_.end(),
                                [](const Doorbell* doorbell) { return doorbell != nullptr; })),
          sends_({.self = self,
                  .nodes = size(),
                  .bulk_in_flight_per_peer_max = options.bulk_sends_in_flight_per_peer_max,
                  .deadline = options.send_deadline},
                 messages, sealer_, counters_, [this](Rank rank) { ring(rank); }),
          messages_(messages, options.receives_posted, counters_),
          order_(self, size(), sealer_),
          bodies_({.in_flight_max = options.bodies_in_flight_max,
                   .deadline = options.send_deadline,
                   .memory = options.memory},
                  counters_) {}

    Rank self() const override { return self_; }
    std::uint32_t size() const override { return static_cast<std::uint32_t>(names_.size()); }
    std::string name_of(Rank rank) const override { return names_.at(rank.value); }
    Arrivals arrivals() const override {
        return all_ring_ && sends_.empty() && bodies_.empty() ? Arrivals::rung : Arrivals::silent;
    }
    Doorbell& doorbell() override {
        Doorbell* own = doorbells_[self_.value];
        return own != nullptr ? *own : MpiFabric::doorbell();
    }
    bool flushed() const override { return sends_.empty(); }
    FabricCounters counters() const override { return counters_; }
    Link link() const override {
        return {.bytes_per_second = sends_.bytes_per_second(), .bytes_under_way = backlog_bytes()};
    }
    std::uint64_t backlog_bytes(Rank to) const override { return sends_.backlog_bytes(to); }
    std::uint64_t backlog_bytes() const override { return sends_.backlog_bytes(); }

    void send(Rank to, const Frame& frame) override { sends_.send(to, frame); }
    bool progress(const Receive& receive, const Lost& lost) override;
    void finish(Ending ending) override;

  private:
    using Message = MessageOrder::Message;

    void put_into_order(Rank from, std::uint64_t tag, Message message, const Receive& receive);
    void take_message(Rank from, Message message, const Receive& receive);
    void refuse(Rank from, const Receive& receive);
    void ring(Rank rank);
    void lose(Rank rank);

    const Options options_;
    const Rank self_;
    const std::vector<std::string> names_;  // by rank
    const Sealer sealer_;
    const std::vector<Doorbell*> doorbells_;
    const bool all_ring_;
    FabricCounters counters_;
    Sends sends_;
    MessageReceives messages_;
    MessageOrder order_;
    BodyReceives bodies_;
    std::set<Rank> newly_lost_;
};

void Driver::ring(Rank rank) {
    if (Doorbell* doorbell = doorbells_[rank.value]) {
        doorbell->ring();
    }
}

void Driver::lose(Rank rank) {
    sends_.lose(rank);
    order_.forget(rank);
    bodies_.lose(rank);
    messages_.lose_link(1 + options_.bulk_sends_in_flight_per_peer_max);
}

void Driver::put_into_order(Rank from, std::uint64_t tag, Message message, const Receive& receive) {
    const bool known =
        sends_.is_lost(from) || order_.add(from, tag, message, std::chrono::steady_clock::now(),
                                           [&](Message next) { take_message(from, next, receive); });
    counters_.refused += known ? 0 : 1;
}

// After a message that makes no sense, nothing else from that node can be trusted.
void Driver::refuse(Rank from, const Receive& receive) {
    newly_lost_.insert(from);
    receive(from, Frame{});  // the decoder says what is wrong
}

void Driver::take_message(Rank from, Message message, const Receive& receive) {
    MessageReader reader(message);
    do {
        const auto part = reader.is_done() ? std::nullopt : reader.next();
        if (!part) {
            refuse(from, receive);
            return;
        }
        ++counters_.messages_received;
        counters_.bytes_received += part->header.size() + part->body.size();
        if (part->lane == Lane::eager) {
            receive(from, Frame{copy_to_blob(part->header), copy_to_blob(part->body), Lane::eager});
        } else {
            bodies_.announce(from, copy_to_blob(part->header), part->body_bytes);
        }
    } while (!reader.is_done());
}

bool Driver::progress(const Receive& receive, const Lost& lost) {
    bool moved = messages_.take(
        [&](Rank from, std::uint64_t tag, Message message) { put_into_order(from, tag, message, receive); });
    moved = bodies_.take(receive, newly_lost_) || moved;
    moved = sends_.complete(newly_lost_) || moved;
    for (const Rank rank : order_.waiting_since(std::chrono::steady_clock::now() - options_.send_deadline)) {
        newly_lost_.insert(rank);  // it died during a message
    }
    for (const Rank rank : std::exchange(newly_lost_, {})) {
        if (!sends_.is_lost(rank)) {
            lose(rank);
            lost(rank);
        }
    }
    return moved;
}

void Driver::finish(Ending ending) {
    if (ending == Ending::together) {
        messages_.cancel();
        MPI_Finalize();
    }
}

// All nodes' names (Fabric::name_of). Empty if MPI fails.
std::vector<std::string> gather_names(std::size_t size) {
    constexpr std::size_t bytes = 64;  // HOST_NAME_MAX of Linux
    auto own = host_name();
    own.resize(bytes);
    std::string all(size * bytes, '\0');
    if (MPI_Allgather(own.data(), bytes, MPI_CHAR, all.data(), bytes, MPI_CHAR, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
        return {};
    }
    std::vector<std::string> names;
    std::map<std::string, int> nodes_on;
    for (std::size_t rank = 0; rank < size; ++rank) {
        const auto field = all.substr(rank * bytes, bytes);
        names.push_back(field.substr(0, field.find('\0')));
        ++nodes_on[names.back()];
    }
    for (std::size_t rank = 0; rank < size; ++rank) {
        if (nodes_on[names[rank]] > 1) {
            names[rank] += "#" + std::to_string(rank);
        }
    }
    return names;
}

}  // namespace

tl::expected<std::unique_ptr<MpiFabric>, std::string> MpiFabric::start(Options options) {
    // Hydra sends this signal when a process is lost. It would end processes whose MPI library does not catch
    // it (MPICH 4 over UCX or libfabric). Other libraries set their handlers in MPI_Init.
    std::signal(SIGUSR1, SIG_IGN);
    int provided = MPI_THREAD_SINGLE;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        return tl::unexpected(std::string("MPI could not be started"));
    }
    if (provided < MPI_THREAD_FUNNELED) {
        return tl::unexpected(std::string("this MPI library does not support MPI_THREAD_FUNNELED"));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm messages = MPI_COMM_NULL;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &messages) != MPI_SUCCESS) {
        return tl::unexpected(std::string("MPI gave no communicator for messages"));
    }
    auto names = gather_names(static_cast<std::size_t>(size));
    if (names.empty()) {
        return tl::unexpected(std::string("MPI could not gather the names of the hosts"));
    }
    return std::make_unique<Driver>(options, Rank{static_cast<std::uint32_t>(rank)}, std::move(names),
                                    messages, share_doorbells());
}

// A send to a node that has died closes the socket and leaves an event for it (Open MPI 4 and 5, btl/tcp:
// mca_btl_tcp_endpoint_send). With poll(2), which 4 prefers, libevent takes that event, and the next send,
// whose socket gets the same number, makes its list a ring: MPI never returns. With epoll(7), libevent
// refuses it.
void MpiFabric::prepare_process() {
#ifdef OPEN_MPI
    ::setenv("OMPI_MCA_opal_event_include", "epoll", 0);
#endif
}

bool MpiFabric::launched() {
    // Set by the launchers of Open MPI, PMIx and Hydra.
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
        if (std::getenv(variable) != nullptr) {
            return true;
        }
    }
    return false;
}

}  // namespace copper
