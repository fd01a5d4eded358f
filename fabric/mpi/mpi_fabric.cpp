#include "fabric/mpi/mpi_fabric.hpp"

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "base/checksum.hpp"
#include "base/host_name.hpp"
#include "base/rate.hpp"
#include "fabric/envelope.hpp"
#include "fabric/message_order.hpp"
#include "fabric/mpi/doorbells.hpp"
#include "fabric/outbox.hpp"
#include "fabric/receive_window.hpp"

namespace copper {
namespace {

// A message holds one frame or more (envelope.hpp). The body of a bulk frame follows in pieces under a tag of
// its own, into memory made for it. MPI does not let messages of one tag overtake each other (MPI 4.0, 3.5),
// so bodies arrive in the order of their announcements.
//
// Matching is in order, completion is not: a node that dies half-way through a message holds the receive that
// its message matched for ever, and nothing tells which one that is. So no receive waits for another.
// Messages travel in a communicator of their own, with the end of their number as the tag, and are put into
// order here (MessageOrder).
//
// Over shared memory a piece is there as soon as its receive is posted: it is summed up while the processor's
// cache has it, before the next one is posted.
constexpr int body_tag = 1;
constexpr std::size_t piece_bytes = 256U << 10;  // half of a small L2 cache, with their source
constexpr std::size_t spare_messages_max = 16;
constexpr std::chrono::seconds stalled_after{1};

std::size_t pieces_of(std::size_t body_bytes) {
    return (body_bytes + piece_bytes - 1) / piece_bytes;
}

template <typename Byte>
std::span<Byte> piece_of(std::span<Byte> body, std::size_t index) {
    const std::size_t offset = index * piece_bytes;
    return body.subspan(offset, std::min(piece_bytes, body.size() - offset));
}

bool is_truncation(int error) {
    int kind = MPI_SUCCESS;
    MPI_Error_class(error, &kind);
    return kind == MPI_ERR_TRUNCATE;
}

using Bytes = std::span<const std::byte>;
using Clock = std::chrono::steady_clock;

class Driver final : public MpiFabric {
  public:
    // `doorbells`: by rank; nothing for nodes on other machines.
    Driver(Options options, Rank self, std::vector<std::string> names, MPI_Comm messages,
           std::vector<Doorbell*> doorbells)
        : options_(options),
          self_(self),
          size_(static_cast<std::uint32_t>(names.size())),
          names_(std::move(names)),
          sealer_(options.key),
          doorbells_(std::move(doorbells)),
          all_ring_(std::all_of(doorbells_.begin(), doorbells_.end(),
                                [](const Doorbell* doorbell) { return doorbell != nullptr; })),
          messages_(messages),
          outbox_({.bulk_in_flight_max = options.bulk_sends_in_flight_per_peer_max}, size_),
          order_(self, size_, sealer_),
          next_sent_(size_),
          window_({.posted = options.receives_posted, .free = options.receives_posted / 2}) {
        post_receives();
    }

    Rank self() const override { return self_; }
    std::uint32_t size() const override { return size_; }
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
        return {.bytes_per_second = link_rate_.bytes_per_second(), .bytes_under_way = backlog_bytes()};
    }
    std::uint64_t backlog_bytes(Rank to) const override { return outbox_.backlog_bytes(to); }
    std::uint64_t backlog_bytes() const override;

    void send(Rank to, const Frame& frame) override;
    bool progress(const Receive& receive, const Lost& lost) override;
    void finish(Ending ending) override;

  private:
    struct Body {
        Rank from;
        Frame frame;
        std::shared_ptr<std::byte[]> memory;
        std::vector<MPI_Request> pieces;  // the posted ones
        std::size_t taken = 0;            // pieces
        RunningChecksum checksum;         // of them
        Clock::time_point since;          // when it was posted
        bool is_posted() const { return memory != nullptr; }
        bool is_complete() const { return is_posted() && taken == pieces_of(frame.body.size); }
    };
    using Message = std::vector<std::byte>;
    struct Outgoing {
        Rank to;
        Lane lane;
        std::size_t bytes;
        Message message;
        MPI_Request request = MPI_REQUEST_NULL;
        Blob body;  // of a bulk frame
        std::vector<MPI_Request> pieces;
        Clock::time_point since;
    };

    void post_receives();
    void post(std::size_t receive);
    void acknowledge_losses();
    bool take_messages(const Receive& receive);
    bool take_oldest(const Receive& receive);
    void take_received(std::size_t index, const MPI_Status& status, int error, const Receive& receive);
    void take_message(Bytes message, Rank from, const Receive& receive);
    void refuse(Rank from, const Receive& receive);
    void announce(const MessageReader::Part& part, Rank from);
    bool take_bodies(const Receive& receive);
    bool take_pieces(Body& body);
    bool complete_sends();
    void start_waiting(Rank to, Lane lane);
    void start(Rank to, Lane lane, std::span<const Frame> frames);
    void ring(Rank rank);
    void lose(Rank rank);
    Message spare_message();

    const Options options_;
    const Rank self_;
    const std::uint32_t size_;
    const std::vector<std::string> names_;  // by rank
    const Sealer sealer_;
    FabricCounters counters_;
    LinkRate link_rate_;
    Clock::time_point last_bulk_sent_;
    const std::vector<Doorbell*> doorbells_;
    const bool all_ring_;
    MPI_Comm messages_;
    Outbox outbox_;
    MessageOrder order_;
    std::vector<std::uint64_t> next_sent_;  // message numbers, by rank
    // The receives of messages: what belongs to one has the same index.
    ReceiveWindow window_;
    std::vector<std::unique_ptr<std::byte[]>> buffers_;
    std::vector<MPI_Request> receives_;
    std::vector<std::size_t> spare_receives_;  // not posted, and without a buffer
    std::vector<int> arrived_;                 // filled by MPI_Testsome, like statuses_
    std::vector<MPI_Status> statuses_;
    std::list<Body> bodies_;  // in the order of their announcements
    std::size_t bodies_posted_ = 0;
    std::list<Outgoing> sends_;
    // To and from lost nodes: MPI may use their memory until the end.
    std::list<Outgoing> abandoned_sends_;
    std::list<Body> abandoned_bodies_;
    std::set<Rank> newly_lost_;
    std::vector<Message> spare_messages_;  // memory for reuse
};

void Driver::post_receives() {
    for (std::size_t missing = window_.missing(); missing > 0; --missing) {
        if (spare_receives_.empty()) {
            spare_receives_.push_back(receives_.size());
            receives_.push_back(MPI_REQUEST_NULL);
            buffers_.emplace_back();
            arrived_.resize(receives_.size());
            statuses_.resize(receives_.size());
        }
        post(spare_receives_.back());
        spare_receives_.pop_back();
    }
}

void Driver::post(std::size_t receive) {
    if (buffers_[receive] == nullptr) {
        buffers_[receive] = std::make_unique<std::byte[]>(message_bytes_max);
    }
    MPI_Irecv(buffers_[receive].get(), static_cast<int>(message_bytes_max), MPI_BYTE, MPI_ANY_SOURCE,
              MPI_ANY_TAG, messages_, &receives_[receive]);
    window_.post(receive);
}

Driver::Message Driver::spare_message() {
    if (spare_messages_.empty()) {
        return {};
    }
    Message message = std::move(spare_messages_.back());
    spare_messages_.pop_back();
    return message;
}

void Driver::send(Rank to, const Frame& frame) {
    if (!outbox_.push(to, frame)) {
        ++counters_.dropped;
        return;
    }
    start_waiting(to, frame.lane);
}

std::uint64_t Driver::backlog_bytes() const {
    std::uint64_t bytes = outbox_.backlog_bytes();
    const auto now = sends_.empty() ? Clock::time_point() : Clock::now();
    std::set<Rank> stalled;
    for (const Outgoing& outgoing : sends_) {
        if (now - outgoing.since > stalled_after && stalled.insert(outgoing.to).second) {
            bytes -= outbox_.backlog_bytes(outgoing.to);
        }
    }
    return bytes;
}

void Driver::start_waiting(Rank to, Lane lane) {
    for (auto frames = outbox_.next(to, lane); !frames.empty(); frames = outbox_.next(to, lane)) {
        start(to, lane, frames);
    }
}

void Driver::start(Rank to, Lane lane, std::span<const Frame> frames) {
    Outgoing outgoing{.to = to,
                      .lane = lane,
                      .bytes = 0,
                      .message = spare_message(),
                      .body = {},
                      .pieces = {},
                      .since = Clock::now()};
    const std::uint64_t number = next_sent_[to.value]++;
    sealer_.seal({.from = self_, .to = to, .number = number}, frames, outgoing.message);
    for (const Frame& frame : frames) {
        outgoing.bytes += bytes_of(frame);
        counters_.bytes_saved += frame.saved_bytes;
    }
    const int rank = static_cast<int>(to.value);
    int result = MPI_Isend(outgoing.message.data(), static_cast<int>(outgoing.message.size()), MPI_BYTE, rank,
                           static_cast<int>(number % message_tags), messages_, &outgoing.request);
    if (lane == Lane::bulk) {
        outgoing.body = frames.front().body;
        outgoing.pieces.resize(pieces_of(outgoing.body.size), MPI_REQUEST_NULL);
    }
    for (std::size_t i = 0; result == MPI_SUCCESS && i < outgoing.pieces.size(); ++i) {
        const Bytes piece = piece_of(outgoing.body.span(), i);
        result = MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, rank, body_tag,
                           MPI_COMM_WORLD, &outgoing.pieces[i]);
    }
    counters_.messages_sent += frames.size();
    counters_.bytes_sent += outgoing.bytes;
    sends_.push_back(std::move(outgoing));
    ring(to);
    if (result != MPI_SUCCESS) {
        newly_lost_.insert(to);
    }
}

void Driver::ring(Rank rank) {
    if (Doorbell* doorbell = doorbells_[rank.value]) {
        doorbell->ring();
    }
}

// While a message is under way, its receiver has to look, too.
bool Driver::complete_sends() {
    bool moved = false;
    const auto now = sends_.empty() ? Clock::time_point() : Clock::now();
    for (auto outgoing = sends_.begin(); outgoing != sends_.end();) {
        int done = 0;
        int result = MPI_Test(&outgoing->request, &done, MPI_STATUS_IGNORE);
        if (result == MPI_SUCCESS && done != 0 && !outgoing->pieces.empty()) {
            result = MPI_Testall(static_cast<int>(outgoing->pieces.size()), outgoing->pieces.data(), &done,
                                 MPI_STATUSES_IGNORE);
        }
        ring(outgoing->to);
        const bool failed = result != MPI_SUCCESS;
        if (failed || (done == 0 && now - outgoing->since > options_.send_deadline)) {
            newly_lost_.insert(outgoing->to);
        }
        if (failed || done == 0) {  // after an error the rest may still be in flight
            ++outgoing;
            continue;
        }
        moved = true;
        outbox_.sent(outgoing->to, outgoing->lane, outgoing->bytes);
        if (outgoing->lane == Lane::bulk) {
            // Several sends overlap, so count the time in which any of them was in flight.
            const auto begin = std::max(outgoing->since, std::exchange(last_bulk_sent_, Clock::now()));
            link_rate_.add(outgoing->bytes, last_bulk_sent_ - begin);
        }
        if (spare_messages_.size() < spare_messages_max) {
            spare_messages_.push_back(std::move(outgoing->message));
        }
        start_waiting(outgoing->to, outgoing->lane);
        outgoing = sends_.erase(outgoing);
    }
    return moved;
}

void Driver::lose(Rank rank) {
    outbox_.lose(rank);
    order_.forget(rank);
    for (auto outgoing = sends_.begin(); outgoing != sends_.end();) {
        const auto current = outgoing++;
        if (current->to == rank) {
            abandoned_sends_.splice(abandoned_sends_.end(), sends_, current);
        }
    }
    for (auto body = bodies_.begin(); body != bodies_.end();) {
        const auto current = body++;
        if (current->from != rank) {
            continue;
        }
        bodies_posted_ -= current->is_posted() ? 1 : 0;
        for (MPI_Request& piece : current->pieces) {
            if (piece != MPI_REQUEST_NULL) {
                MPI_Cancel(&piece);
            }
        }
        abandoned_bodies_.splice(abandoned_bodies_.end(), bodies_, current);
    }
    window_.lose_link(1 + options_.bulk_sends_in_flight_per_peer_max);
    post_receives();
}

// With fault tolerance (ULFM), receives from any source only give errors after a loss, until it is
// acknowledged.
void Driver::acknowledge_losses() {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    MPIX_Comm_failure_ack(messages_);
#endif
}

bool Driver::take_messages(const Receive& receive) {
    int count = 0;
    const int result = MPI_Testsome(static_cast<int>(receives_.size()), receives_.data(), &count,
                                    arrived_.data(), statuses_.data());
    if (result != MPI_SUCCESS) {
        acknowledge_losses();
    }
    if (count == MPI_UNDEFINED || count == 0) {
        return take_oldest(receive);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const MPI_Status& status = statuses_[i];
        take_received(static_cast<std::size_t>(arrived_[i]), status,
                      result == MPI_SUCCESS ? MPI_SUCCESS : status.MPI_ERROR, receive);
    }
    return true;
}

// MPI_Testsome of Open MPI lets messages arrive after it has looked, and MPI_Test looks again. The receive
// posted first matches the next message.
bool Driver::take_oldest(const Receive& receive) {
    const std::size_t oldest = window_.first();
    int done = 0;
    MPI_Status status;
    const int result = MPI_Test(&receives_[oldest], &done, &status);
    if (result != MPI_SUCCESS) {
        acknowledge_losses();
    }
    if (done != 0) {
        take_received(oldest, status, result, receive);
    }
    return done != 0;
}

void Driver::take_received(std::size_t index, const MPI_Status& status, int error, const Receive& receive) {
    if (error == MPI_SUCCESS) {
        int bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        const Rank from{static_cast<std::uint32_t>(status.MPI_SOURCE)};
        const Bytes message(buffers_[index].get(), static_cast<std::size_t>(bytes));
        const bool known = outbox_.is_lost(from) ||
                           order_.add(from, static_cast<std::uint64_t>(status.MPI_TAG), message, Clock::now(),
                                      [&](Bytes next) { take_message(next, from, receive); });
        counters_.refused += known ? 0 : 1;
    } else if (is_truncation(error)) {
        ++counters_.refused;  // our messages are never so large
        if (receives_[index] != MPI_REQUEST_NULL) {
            MPI_Request_free(&receives_[index]);
        }
    }
    if (receives_[index] == MPI_REQUEST_NULL) {
        window_.complete(index);
        if (window_.missing() > 0) {
            post(index);
        } else {
            buffers_[index].reset();
            spare_receives_.push_back(index);
        }
        post_receives();
    }
}

// After a message that makes no sense, nothing else from that node can be trusted.
void Driver::refuse(Rank from, const Receive& receive) {
    newly_lost_.insert(from);
    receive(from, Frame{});  // the decoder says what is wrong
}

void Driver::take_message(Bytes message, Rank from, const Receive& receive) {
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
            announce(*part, from);
        }
    } while (!reader.is_done());
}

void Driver::announce(const MessageReader::Part& part, Rank from) {
    Body body;
    body.from = from;
    body.frame = {copy_to_blob(part.header), {}, Lane::bulk};
    body.frame.body.size = part.body_bytes;
    bodies_.push_back(std::move(body));
}

// Posts its pieces, and takes those that have arrived. False on an error.
bool Driver::take_pieces(Body& body) {
    const std::span bytes(body.memory.get(), body.frame.body.size);
    for (std::size_t i = body.taken; i < pieces_of(bytes.size()); ++i) {
        const auto piece = piece_of(bytes, i);
        int result = MPI_SUCCESS;
        if (i == body.pieces.size()) {
            result = MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE,
                               static_cast<int>(body.from.value), body_tag, MPI_COMM_WORLD,
                               &body.pieces.emplace_back(MPI_REQUEST_NULL));
        }
        if (result == MPI_SUCCESS && i == body.taken) {
            int done = 0;
            int size = 0;
            MPI_Status status;
            result = MPI_Test(&body.pieces[i], &done, &status);
            if (result == MPI_SUCCESS && done != 0) {
                MPI_Get_count(&status, MPI_BYTE, &size);
                if (static_cast<std::size_t>(size) != piece.size()) {
                    return false;
                }
                body.checksum.add(piece);
                ++body.taken;
            }
        }
        if (result != MPI_SUCCESS) {
            return false;
        }
    }
    return true;
}

bool Driver::take_bodies(const Receive& receive) {
    bool moved = false;
    std::set<Rank> waiting;  // nodes with an earlier incomplete body: their bodies stay in order
    const auto now = bodies_.empty() ? Clock::time_point() : Clock::now();
    for (auto body = bodies_.begin(); body != bodies_.end();) {
        if (!body->is_posted() && bodies_posted_ < options_.bodies_in_flight_max) {
            body->memory = options_.memory->allocate(body->frame.body.size);
            body->frame.body.data = body->memory;
            body->pieces.reserve(pieces_of(body->frame.body.size));
            body->since = now;
            ++bodies_posted_;
        }
        if (body->is_posted() && !body->is_complete()) {
            const std::size_t taken = body->taken;
            const bool intact = take_pieces(*body);
            moved = moved || body->taken != taken;
            const bool late = !body->is_complete() && now - body->since > options_.send_deadline;
            if (!intact || late) {
                newly_lost_.insert(body->from);
            }
        }
        if (!body->is_complete() || waiting.contains(body->from)) {
            waiting.insert(body->from);
            ++body;
            continue;
        }
        moved = true;
        --bodies_posted_;
        counters_.bytes_received += body->frame.body.size;
        Body arrived = std::move(*body);
        body = bodies_.erase(body);
        arrived.frame.body.checksum = arrived.checksum.value();
        receive(arrived.from, std::move(arrived.frame));
    }
    return moved;
}

bool Driver::progress(const Receive& receive, const Lost& lost) {
    bool moved = take_messages(receive);
    moved = take_bodies(receive) || moved;
    moved = complete_sends() || moved;
    for (const Rank rank : order_.waiting_since(Clock::now() - options_.send_deadline)) {
        newly_lost_.insert(rank);  // it died during a message
    }
    for (const Rank rank : std::exchange(newly_lost_, {})) {
        if (!outbox_.is_lost(rank)) {
            lose(rank);
            lost(rank);
        }
    }
    return moved;
}

void Driver::finish(Ending ending) {
    if (ending == Ending::alone) {
        return;
    }
    for (MPI_Request& receive : receives_) {
        if (receive != MPI_REQUEST_NULL) {
            MPI_Cancel(&receive);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
        }
    }
    MPI_Finalize();
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
