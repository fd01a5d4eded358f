#include "tests/sim/import_simulation.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <unordered_map>
#include <utility>

#include "base/path.hpp"
#include "cache/cache.hpp"
#include "cache/entry_resolver.hpp"
#include "cache/guesses/guesses.hpp"
#include "cache/names.hpp"
#include "cache/read_ahead.hpp"
#include "collectives/protocol.hpp"
#include "profile/replay.hpp"
#include "profile/use_log.hpp"
#include "tests/sim/events.hpp"

namespace copper::sim {
namespace {

using bench::Operation;

// How long a program keeps a core that others wait for.
constexpr nanoseconds time_slice{3'000'000};

nanoseconds time_of(double amount, double per_us) {
    return nanoseconds(static_cast<std::int64_t>(amount / per_us * 1000));
}

nanoseconds slower(nanoseconds time, double slowness) {
    return std::chrono::round<nanoseconds>(time * slowness);
}

nanoseconds since_start(TimePoint time) {
    return time.time_since_epoch();
}

// The cores of one machine, each of which does one thing after the other; or enough of them.
class Cores {
  public:
    // Work takes `contention` times as long while all other cores are busy.
    Cores(std::uint32_t count, double contention) : free_(count), contention_(contention) {}

    // When work that may begin at `from` is done.
    TimePoint run(TimePoint from, nanoseconds work) {
        if (free_.empty()) {
            return from + work;
        }
        TimePoint& first = *std::min_element(free_.begin(), free_.end());
        const TimePoint begin = std::max(first, from);
        const auto busy =
            std::count_if(free_.begin(), free_.end(), [begin](TimePoint free) { return free > begin; });
        const bool is_last = static_cast<std::size_t>(busy) + 1 == free_.size();
        first = begin + (is_last ? slower(work, contention_) : work);
        return first;
    }
    bool are_shared() const { return !free_.empty(); }

  private:
    std::vector<TimePoint> free_;
    const double contention_;
};

// What the servers are asked, by all clients.
class Filesystem {
  public:
    explicit Filesystem(const bench::Model& model) : model_(model) {}

    // The filesystem as one node sees it. Must not outlive it.
    class Client {
      public:
        explicit Client(Filesystem& filesystem) : servers(filesystem.model_, filesystem.queues_) {}

      private:
        friend class Filesystem;
        bench::Servers servers;
    };

    // When the answer is there.
    TimePoint ask(Client& client, TimePoint now, const TraceStore::Step& step) {
        nanoseconds answered{0};
        for (std::uint32_t i = 0; i < step.count; ++i) {
            answered = std::max(answered, step.operation == Operation::read
                                              ? client.servers.data(since_start(now), step.bytes)
                                              : client.servers.metadata(since_start(now)));
        }
        operations[static_cast<std::size_t>(step.operation)] += step.count;
        bytes_read += step.bytes;
        return TimePoint(answered);
    }

    std::array<std::uint64_t, bench::operation_names.size()> operations{};
    std::uint64_t bytes_read = 0;

  private:
    const bench::Model model_;
    bench::SharedQueues queues_;
};

// When a program asks for what: a request waits for the answers that the program had when it made the
// request, and for what the program had to do.
struct Schedule {
    struct Request {
        std::size_t answers;  // so many of `by_answer`, from the first one on
        nanoseconds work;
    };
    std::vector<Request> requests;
    std::vector<std::size_t> by_answer;
    nanoseconds work_at_end{0};

    // `is_asked`: of requests that cost nothing otherwise, `saved` is taken from the work.
    template <typename IsAsked>
    Schedule(const ImportTrace& trace, microseconds saved, IsAsked is_asked)
        : by_answer(trace.requests.size()) {
        // Some took less than a microsecond. No request may wait for its own answer.
        const auto answered = [&](std::size_t i) {
            return trace.requests[i].at + std::max(trace.requests[i].took, microseconds(1));
        };
        std::iota(by_answer.begin(), by_answer.end(), std::size_t{0});
        std::stable_sort(by_answer.begin(), by_answer.end(),
                         [&](std::size_t a, std::size_t b) { return answered(a) < answered(b); });
        std::size_t answers = 0;
        microseconds last{0};  // when the program went on
        for (const auto& request : trace.requests) {
            while (answers < by_answer.size() && answered(by_answer[answers]) <= request.at) {
                last = std::max(last, answered(by_answer[answers++]));
            }
            const auto work = request.at - last - (is_asked(request) ? microseconds(0) : saved);
            requests.push_back({.answers = answers, .work = std::max(work, microseconds(0))});
            last = request.at;
        }
        for (; answers < by_answer.size(); ++answers) {
            last = std::max(last, answered(by_answer[answers]));
        }
        work_at_end = std::max(trace.duration - last, microseconds(0));
    }
};

// The processes of a node.
class Program {
  public:
    // Answers the request, at once or later.
    using Ask = std::function<void(std::size_t request)>;

    // `processes` do the same at the same time, `slowness` times as slowly as the recorded one.
    Program(Events& events, Cores& cores, const Schedule& schedule, std::uint32_t processes, double slowness,
            Ask ask)
        : events_(events),
          cores_(cores),
          schedule_(schedule),
          processes_(processes),
          slowness_(slowness),
          ask_(std::move(ask)),
          is_answered_(schedule.requests.size()) {}

    void start() { go_on(); }

    void answer(std::size_t request) {
        is_answered_[request] = true;
        while (answers_ < is_answered_.size() && is_answered_[schedule_.by_answer[answers_]]) {
            ++answers_;
        }
        go_on();
    }

    std::optional<TimePoint> ended() const { return ended_; }
    std::size_t position() const { return next_; }

  private:
    void go_on() {
        const bool is_end = next_ == schedule_.requests.size();
        if (is_working_ || ended_ || answers_ < (is_end ? next_ : schedule_.requests[next_].answers)) {
            return;
        }
        is_working_ = true;
        work(slower(is_end ? schedule_.work_at_end : schedule_.requests[next_].work, slowness_));
    }

    void work(nanoseconds left) {
        const nanoseconds slice = cores_.are_shared() ? std::min(left, time_slice) : left;
        TimePoint worked_by_all{};
        for (std::uint32_t process = 0; process < processes_; ++process) {
            worked_by_all = std::max(worked_by_all, cores_.run(events_.now(), slice));
        }
        events_.at(worked_by_all, [this, rest = left - slice] {
            if (rest > nanoseconds(0)) {
                work(rest);
            } else {
                worked();
            }
        });
    }

    void worked() {
        is_working_ = false;
        if (next_ == schedule_.requests.size()) {
            ended_ = events_.now();
            return;
        }
        ask_(next_++);
        go_on();
    }

    Events& events_;
    Cores& cores_;
    const Schedule& schedule_;
    const std::uint32_t processes_;
    const double slowness_;
    const Ask ask_;
    std::size_t next_ = 0;
    std::size_t answers_ = 0;  // of Schedule::by_answer, without a gap
    std::vector<bool> is_answered_;
    bool is_working_ = false;
    std::optional<TimePoint> ended_;
};

std::vector<TimePoint> start_times(const ImportScenario& scenario) {
    std::mt19937_64 random(scenario.seed);
    std::vector<TimePoint> times;
    for (std::uint32_t node = 0; node < scenario.nodes; ++node) {
        const auto skew = static_cast<std::uint64_t>(scenario.start_skew.count());
        times.emplace_back(microseconds(skew == 0 ? 0 : random() % skew));
    }
    return times;
}

// How many times as long each node takes for all that it does.
std::vector<double> slownesses(const ImportScenario& scenario) {
    std::mt19937_64 random(scenario.seed + 1);
    std::vector<double> found;
    for (std::uint32_t node = 0; node < scenario.nodes; ++node) {
        const bool is_straggler = scenario.nodes_per_straggler != 0 &&
                                  node % scenario.nodes_per_straggler == scenario.nodes_per_straggler - 1;
        const double share = static_cast<double>(random() % 1000) / 1000;
        found.push_back(scenario.pace * (1 + scenario.spread * share) *
                        (is_straggler ? scenario.straggler : 1));
    }
    return found;
}

void note_ends(ImportReport& report, const std::vector<const Program*>& programs) {
    std::vector<TimePoint> ended;
    for (const Program* program : programs) {
        report.wrong += program->ended() ? 0 : 1;
        ended.push_back(program->ended().value_or(TimePoint{}));
    }
    std::sort(ended.begin(), ended.end());
    report.duration = std::chrono::round<microseconds>(since_start(ended.back()));
    report.median = std::chrono::round<microseconds>(since_start(ended[ended.size() / 2]));
}

// ---- directly

// Whether each process asks the servers again, whatever the node's client holds.
bool is_asked_by_each_process(Operation operation) {
    return operation == Operation::open || operation == Operation::opendir;
}

}  // namespace

void ImportReport::add(const ImportReport& next) {
    duration += next.duration;
    median += next.median;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        operations[i] += next.operations[i];
    }
    bytes_read += next.bytes_read;
    messages += next.messages;
    bytes_sent += next.bytes_sent;
    direct_reads += next.direct_reads;
    recorded.insert(recorded.end(), next.recorded.begin(), next.recorded.end());
    wrong += next.wrong;
    history = history * 31 + next.history;
}

std::uint64_t ImportReport::all_operations() const {
    return std::accumulate(operations.begin(), operations.end(), std::uint64_t{0});
}

ImportReport import_directly(const ImportTrace& trace, const ImportScenario& scenario) {
    Events events;
    Cores cores(scenario.cores, scenario.contention);
    Filesystem filesystem(scenario.filesystem);
    const Schedule schedule(trace, microseconds(0), [](const auto&) { return true; });
    struct Node {
        Filesystem::Client client;
        std::unique_ptr<Program> program = nullptr;
        explicit Node(Filesystem& filesystem) : client(filesystem) {}
    };
    std::deque<Node> nodes;
    const auto starts = start_times(scenario);
    const auto slowness = slownesses(scenario);
    for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
        Node& node = nodes.emplace_back(filesystem);
        const auto ask = [&](std::size_t number) {
            const auto& request = trace.requests[number];
            const TimePoint reached = cores.run(events.now(), request.took);
            const TimePoint answered = filesystem.ask(
                node.client, reached,
                {.operation = request.operation,
                 .bytes = request.operation == Operation::read ? request.bytes : 0,
                 .count = is_asked_by_each_process(request.operation) ? scenario.processes : 1});
            events.at(answered, [&node, number] { node.program->answer(number); });
        };
        node.program =
            std::make_unique<Program>(events, cores, schedule, scenario.processes, slowness[rank], ask);
        events.at(starts[rank], [&node] { node.program->start(); });
    }
    events.run();
    ImportReport report{.operations = filesystem.operations, .bytes_read = filesystem.bytes_read};
    std::vector<const Program*> programs;
    for (const Node& node : nodes) {
        programs.push_back(node.program.get());
    }
    note_ends(report, programs);
    return report;
}

// ---- through Copper

namespace {

struct World;

// What the daemon wires together, with simulated surroundings. `in_loop` is the progress loop.
class Node final : public Protocol::Effects {
  public:
    Node(World& world, Rank self);

    // It has this object since an earlier part.
    void put(const ObjectKey& key, const ObjectPtr& object) { cache_.deliver(key, object); }
    bool has(const ObjectKey& key) { return cache_.find(key) != nullptr; }
    void start() { program_.start(); }
    // As rank 0 does when it is launched.
    void replay(const Profile& profile);
    Profile recorded() const { return {.uses = uses_.since(0)}; }
    const Protocol& protocol() const { return protocol_; }
    const Program& program() const { return program_; }
    std::uint64_t cache_bytes() const { return cache_.statistics().bytes; }

    // Protocol::Effects
    void send(std::span<const Rank> to, const Message& message) override;
    ObjectPtr find(const ObjectKey& key) override { return cache_.find(key); }
    void deliver(const ObjectKey& key, const ObjectPtr& object) override;
    std::uint64_t backlog_bytes(Rank to) override;
    std::uint64_t backlog_bytes() override;
    void read(const ObjectKey& key) override;
    TimePoint latest_call(const ObjectKey&) override { return now(); }  // it never hangs
    std::string filesystem_of(const std::string&) override { return "/"; }
    std::optional<std::string> answer(const Call&) override { return ""; }
    void finished(std::uint64_t, std::vector<Answer::Part>) override {}
    void state_changed(Rank, NodeState) override {}

  private:
    struct Read {
        ObjectKey key;
        std::vector<TraceStore::Step> steps;
        std::size_t next = 0;
    };
    struct Outgoing {
        TimePoint leaves;
        Rank to;
        std::uint64_t bytes;
    };

    TimePoint now() const;
    void note_use(const ObjectKey& key);
    void in_loop(nanoseconds work, std::function<void()> run);
    void finish_in_loop(TimePoint from, nanoseconds work, std::function<void()> run);
    void tick_when_due();
    void want(const ObjectKey& key, FetchFor why);
    void transmit(Rank to, const std::shared_ptr<const Message>& message, std::uint64_t bytes, Lane lane);

    void begin_reads();
    void next_step(const std::shared_ptr<Read>& read);

    void ask(std::size_t number);
    void answer(std::size_t number);
    void list(std::size_t number, const std::string& path);
    void read_file(std::size_t number, const ImportTrace::Request& request);
    void check(bool is_right);

    World& world_;
    const Rank self_;
    const double slowness_;
    UseLog uses_{[this] { return now(); }};
    Cache cache_;
    Guesses::Counters guess_counters_;
    Guesses guesses_;
    EntryResolver entries_;
    std::map<std::string, ReadAhead> read_ahead_;
    Protocol protocol_;
    Program program_;
    std::unique_ptr<Replay> replay_;
    Filesystem::Client own_client_;
    std::optional<TimePoint> next_tick_;
    TimePoint loop_free_{};  // when the progress loop has done all that it knows of
    std::array<TimePoint, lane_count> link_free_{};
    TimePoint receiver_free_{};
    std::deque<Outgoing> outgoing_;
    bool waits_for_link_ = false;
};

// What a part of an import leaves to the next one.
struct Carried {
    struct Object {
        std::uint64_t reads = 0;      // of all nodes
        std::uint64_t nodes = 0;      // that got it
        std::vector<bool> missing{};  // by node: does not have it; empty: all have it
    };
    std::vector<TraceStore::Client> knows;   // by node
    std::vector<std::uint64_t> cache_bytes;  // by node: of all objects that it got
    std::map<ObjectKey, Object> objects{};   // that were read
};

struct World {
    World(const ImportTrace& its_trace, const ImportScenario& its_scenario, Carried& its_carried)
        : trace(its_trace),
          scenario(its_scenario),
          carried(its_carried),
          cores(scenario.cores, scenario.contention),
          filesystem(scenario.filesystem),
          store(trace, std::chrono::round<microseconds>(scenario.filesystem.metadata_latency),
                scenario.contents),
          schedule(trace, scenario.request, [](const auto& request) { return is_asked(request.operation); }),
          trees({std::string(ImportTrace::root)}),
          slowness(slownesses(scenario)) {
        for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
            nodes.push_back(std::make_unique<Node>(*this, Rank{rank}));
        }
    }

    // The others are answered by the kernel.
    static bool is_asked(Operation operation) {
        return operation == Operation::lookup || operation == Operation::readlink ||
               operation == Operation::readdir || operation == Operation::read;
    }

    void note(std::uint64_t what) {
        const auto mix = [this](std::uint64_t value) {
            report.history = (report.history ^ value) * 0x100000001b3U;
        };
        mix(what);
        mix(static_cast<std::uint64_t>(events.now().time_since_epoch().count()));
    }

    // What the message takes on the wire. What arrives is the message itself: to decode it would give each
    // node a copy.
    std::pair<std::uint64_t, Lane> frame_of(const Message& message) {
        const auto encoded = [&] {
            const Frame frame = encode(message);
            return std::pair(std::uint64_t{frame.header.size + frame.body.size}, frame.lane);
        };
        const auto* publication = std::get_if<Publication>(&message);
        if (publication == nullptr) {
            return encoded();
        }
        auto& known = frames[publication->object.get()];
        if (known.first == nullptr) {
            known = {publication->object, encoded()};
        }
        return known.second;
    }

    const ImportTrace& trace;
    const ImportScenario& scenario;
    Carried& carried;
    Events events;
    Cores cores;
    Filesystem filesystem;
    const TraceStore store;
    const Schedule schedule;
    const Trees trees;
    const std::vector<double> slowness;  // of each node
    std::unordered_map<const Object*, std::pair<ObjectPtr, std::pair<std::uint64_t, Lane>>> frames;
    TimePoint last_delivery{};
    ImportReport report;
    std::vector<std::unique_ptr<Node>> nodes;
};

Node::Node(World& world, Rank self)
    : world_(world),
      self_(self),
      slowness_(world.slowness[self.value]),
      cache_({.budget_bytes = std::uint64_t{1} << 34U,
              .readers = std::min(world.scenario.readers, world.scenario.nodes),
              .clock = [this] { return now(); },
              .on_demand = [this](const ObjectKey& key) { note_use(key); }},
             [this](const ObjectKey& key, FetchFor why) { want(key, why); }),
      guesses_(cache_, world.trees, guess_counters_, extent_bytes),
      entries_(cache_, world.trees,
               [this](const std::string& path, Foresight foresight) { guesses_.looked_up(path, foresight); }),
      protocol_(
          {.membership = {.size = world.scenario.nodes, .self = self, .readers = world.scenario.readers},
           .mover = {}},
          world.trees, *this),
      program_(world.events, world.cores, world.schedule, world.scenario.processes, slowness_,
               [this](std::size_t request) { ask(request); }),
      own_client_(world.filesystem) {}

TimePoint Node::now() const {
    return world_.events.now();
}

void Node::deliver(const ObjectKey& key, const ObjectPtr& object) {
    world_.last_delivery = now();
    ++world_.carried.objects[key].nodes;
    cache_.deliver(key, object);
}

// The nodes use the same, so one tells what all of them use.
void Node::note_use(const ObjectKey& key) {
    if (self_ == Rank{0}) {
        uses_.note(key);
    }
}

void Node::replay(const Profile& profile) {
    replay_ = Replay::of_profile(
        cache_, {}, [this](Replay::Task task) { in_loop(world_.scenario.network.overhead, std::move(task)); },
        profile, uses_);
}

// ---- the progress loop

void Node::in_loop(nanoseconds work, std::function<void()> run) {
    finish_in_loop(now(), work, std::move(run));
}

void Node::finish_in_loop(TimePoint from, nanoseconds work, std::function<void()> run) {
    const bool sleeps = loop_free_ < from && world_.cores.are_shared();
    loop_free_ =
        world_.cores.run(std::max(from, loop_free_),
                         slower(work + (sleeps ? world_.scenario.wake : microseconds(0)), slowness_));
    const auto turn = [this, run = std::move(run)] {
        run();
        tick_when_due();
        begin_reads();
    };
    if (loop_free_ <= now()) {
        turn();
    } else {
        world_.events.at(loop_free_, turn);
    }
}

void Node::want(const ObjectKey& key, FetchFor why) {
    in_loop(world_.scenario.network.overhead, [this, key, why] { protocol_.want(key, why, now()); });
}

void Node::tick_when_due() {
    const auto due = protocol_.next_deadline();
    if (due && (!next_tick_ || *due < *next_tick_)) {
        next_tick_ = std::max(*due, now());
        world_.events.at(*next_tick_, [this] {
            if (next_tick_ && *next_tick_ <= now()) {
                next_tick_.reset();
            }
            protocol_.tick(now());
            tick_when_due();
        });
    }
}

// ---- messages

void Node::send(std::span<const Rank> to, const Message& message) {
    if (to.empty()) {
        return;
    }
    const auto shared = std::make_shared<const Message>(message);
    const auto [bytes, lane] = world_.frame_of(message);
    for (const Rank rank : to) {
        transmit(rank, shared, bytes, lane);
    }
}

void Node::transmit(Rank to, const std::shared_ptr<const Message>& message, std::uint64_t bytes, Lane lane) {
    const Network& network = world_.scenario.network;
    ++world_.report.messages;
    world_.report.bytes_sent += bytes;
    world_.note((std::uint64_t{self_.value} << 32U) | to.value);
    world_.note(bytes);
    loop_free_ = world_.cores.run(std::max(now(), loop_free_), slower(network.overhead, slowness_));
    // Small messages pass large ones on the link.
    TimePoint& link = link_free_[static_cast<std::size_t>(lane)];
    const nanoseconds transfer = time_of(static_cast<double>(bytes), network.bytes_per_us);
    link = std::max(link, loop_free_) + std::max(network.gap, transfer);
    outgoing_.push_back({.leaves = link, .to = to, .bytes = bytes});
    Node& receiver = *world_.nodes[to.value];
    TimePoint arrives = link + network.latency;
    if (lane == Lane::bulk) {
        receiver.receiver_free_ = std::max(arrives, receiver.receiver_free_ + transfer);
        arrives = receiver.receiver_free_;
    }
    const nanoseconds work =
        network.overhead + time_of(static_cast<double>(bytes), network.checked_bytes_per_us);
    world_.events.at(arrives + work, [&receiver, from = self_, message, arrives, work] {
        receiver.finish_in_loop(arrives, work, [&receiver, from, message] {
            receiver.protocol_.receive(from, *message, receiver.now());
        });
    });
}

std::uint64_t Node::backlog_bytes() {
    std::erase_if(outgoing_, [this](const Outgoing& one) { return one.leaves <= now(); });
    return std::accumulate(outgoing_.begin(), outgoing_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Outgoing& one) { return sum + one.bytes; });
}

std::uint64_t Node::backlog_bytes(Rank to) {
    backlog_bytes();
    return std::accumulate(
        outgoing_.begin(), outgoing_.end(), std::uint64_t{0},
        [to](std::uint64_t sum, const Outgoing& one) { return sum + (one.to == to ? one.bytes : 0); });
}

// ---- reading the filesystem, as ProgressLoop and its pool do

void Node::read(const ObjectKey& key) {
    ++world_.carried.objects[key].reads;
    const auto read = std::make_shared<Read>(
        Read{.key = key, .steps = world_.store.steps_of(key, world_.carried.knows[self_.value])});
    world_.events.at(now(), [this, read] { next_step(read); });
}

void Node::begin_reads() {
    protocol_.backlog_shrank(now());
    if (protocol_.mover().reads_queued() > 0 && !waits_for_link_ && backlog_bytes() > 0) {
        waits_for_link_ = true;
        world_.events.at(outgoing_.front().leaves, [this] {
            waits_for_link_ = false;
            begin_reads();
        });
    }
}

void Node::next_step(const std::shared_ptr<Read>& read) {
    if (read->next == read->steps.size()) {
        in_loop(world_.scenario.network.overhead,
                [this, read] { protocol_.read_done(read->key, world_.store.read(read->key), now()); });
        return;
    }
    const TraceStore::Step& step = read->steps[read->next++];
    TimePoint asked = now();
    if (world_.cores.are_shared()) {
        asked = world_.cores.run(now(),
                                 world_.scenario.operation * step.count +
                                     time_of(static_cast<double>(step.bytes), world_.scenario.bytes_per_us));
    }
    world_.events.at(world_.filesystem.ask(own_client_, asked, step), [this, read] { next_step(read); });
}

// ---- the kernel's requests, as fuse/ answers them

void Node::check(bool is_right) {
    world_.report.wrong += is_right ? 0 : 1;
}

// Once a core has handed the answer over.
void Node::answer(std::size_t number) {
    const ImportScenario& scenario = world_.scenario;
    const ImportTrace::Request& request = world_.trace.requests[number];
    const nanoseconds work =
        request.operation == Operation::read
            ? scenario.hit_read + time_of(static_cast<double>(request.bytes), scenario.answered_bytes_per_us)
            : scenario.hit_lookup;
    world_.events.at(world_.cores.run(now(), slower(work, slowness_)),
                     [this, number] { program_.answer(number); });
}

void Node::ask(std::size_t number) {
    const ImportTrace::Request& request = world_.trace.requests[number];
    switch (request.operation) {
        case Operation::lookup:
        case Operation::readlink:
            entries_.resolve(std::string(parent_path(request.path)), std::string(base_name(request.path)),
                             [this, number, &request](const Resolution& resolution) {
                                 check(resolution.found && resolution.found->has_value() == request.is_found);
                                 answer(number);
                             });
            break;
        case Operation::readdir:
            list(number, request.path);
            break;
        case Operation::read:
            read_file(number, request);
            break;
        default:
            program_.answer(number);
    }
}

void Node::list(std::size_t number, const std::string& path) {
    cache_.get({.kind = ObjectKind::directory, .path = path}, [this, number, path](const ObjectPtr& object) {
        const Directory* directory = object->directory();
        check(directory != nullptr);
        if (directory == nullptr || directory->entries == 0) {
            answer(number);
            return;
        }
        get_piece(cache_, path, object, 0, [this, number](const Piece& piece) {
            check(piece.names != nullptr);
            answer(number);
        });
    });
}

void Node::read_file(std::size_t number, const ImportTrace::Request& request) {
    const auto* entry = world_.store.find(request.path);
    if (entry == nullptr || request.bytes == 0) {
        check(entry != nullptr);
        answer(number);
        return;
    }
    ObjectKey key{
        .kind = ObjectKind::extent, .path = request.path, .version = hash_of(version_of(entry->attributes))};
    const auto first = static_cast<std::uint32_t>(request.offset / extent_bytes);
    const auto last = static_cast<std::uint32_t>((request.offset + request.bytes - 1) / extent_bytes);
    const auto missing = std::make_shared<std::uint32_t>(last - first + 1);
    key.index = first;
    const Foresight foresight = cache_.foresight(key);
    for (key.index = first; key.index <= last; ++key.index) {
        cache_.get(key, [this, number, &request, missing, foresight,
                         begins = key.index == 0](const ObjectPtr& object) {
            check(object->extent() != nullptr);
            if (--*missing == 0) {
                answer(number);
            }
            if (begins && request.offset == 0) {
                guesses_.read(request.path, object, foresight);
            }
        });
    }
    const auto extents = static_cast<std::uint32_t>(extents_of(entry->attributes.size));
    if (extents > 1) {
        const ExtentRange ahead =
            read_ahead_[request.path].next({first, last + 1}, extents, cache_.read_ahead_extents(key.kind));
        for (key.index = ahead.begin; key.index < ahead.end; ++key.index) {
            cache_.get(
                key, [](const ObjectPtr&) {}, FetchFor::guess);
        }
    }
}

}  // namespace

namespace {

std::vector<bool> nodes_without(World& world, const ObjectKey& key) {
    std::vector<bool> missing;
    for (const auto& node : world.nodes) {
        missing.push_back(!node->has(key));
    }
    return missing;
}

ImportReport import_part(const ImportTrace& part, const ImportScenario& scenario, Carried& carried,
                         const Profile* profile, bool is_last) {
    World world(part, scenario, carried);
    for (const auto& [key, carried_object] : carried.objects) {
        const ObjectPtr object = world.store.read(key);
        for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
            if (carried_object.missing.empty() || !carried_object.missing[rank]) {
                world.nodes[rank]->put(key, object);
            }
        }
    }
    for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
        carried.cache_bytes[rank] -= world.nodes[rank]->cache_bytes();
    }
    if (profile != nullptr) {
        world.nodes.front()->replay(*profile);
    }
    const auto starts = start_times(scenario);
    for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
        world.events.at(starts[rank], [&node = *world.nodes[rank]] { node.start(); });
    }
    world.events.run();
    ImportReport& report = world.report;
    report.recorded.push_back(world.nodes.front()->recorded());
    report.operations = world.filesystem.operations;
    report.bytes_read = world.filesystem.bytes_read;
    std::vector<const Program*> programs;
    for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
        const Node& node = *world.nodes[rank];
        programs.push_back(&node.program());
        report.direct_reads += node.protocol().mover().counters().direct_reads;
        carried.cache_bytes[rank] += node.cache_bytes();
    }
    note_ends(report, programs);
    if (!is_last) {  // what goes on for guesses takes its time, too
        const auto end = std::chrono::round<microseconds>(since_start(world.last_delivery));
        report.duration = std::max(report.duration, end);
        report.median = std::max(report.median, end);
        for (auto& [key, object] : carried.objects) {
            object.missing = object.nodes < scenario.nodes ? nodes_without(world, key) : std::vector<bool>();
        }
    }
    return report;
}

// A part ends where the program has all answers that it asked for.
std::vector<ImportTrace> parts_of(const ImportTrace& trace, std::size_t count) {
    std::vector<ImportTrace> parts;
    microseconds begin{0}, answered{0};
    for (const auto& request : trace.requests) {
        const bool is_due = !parts.empty() && parts.size() < count &&
                            parts.back().requests.size() >= trace.requests.size() / count;
        if (parts.empty() || (is_due && answered <= request.at)) {
            if (!parts.empty()) {
                parts.back().duration = answered - begin;
                begin = answered;
            }
            parts.push_back({.package = trace.package, .requests = {}, .directories = trace.directories});
        }
        parts.back().requests.push_back(request);
        parts.back().requests.back().at -= begin;
        answered = std::max(answered, request.at + request.took);
    }
    parts.back().duration = trace.duration - begin;
    return parts;
}

// What nobody asks for any more, neither a program nor Guesses, which fetches small files of directories in
// use.
void forget_unused(std::map<ObjectKey, Carried::Object>& objects, const TraceStore& store,
                   std::span<const ImportTrace> parts_left) {
    std::set<std::string_view> used;
    for (const auto& part : parts_left) {
        for (const auto& request : part.requests) {
            used.insert(request.path);
            used.insert(parent_path(request.path));
        }
    }
    std::erase_if(objects, [&](const auto& object) {
        const std::string& path = object.first.path;
        const auto* entry = store.find(path);
        const bool may_be_guessed = entry != nullptr && S_ISREG(entry->attributes.mode) &&
                                    entry->attributes.size <= extent_bytes &&
                                    used.contains(parent_path(path));
        return !used.contains(path) && !may_be_guessed;
    });
}

}  // namespace

ImportReport import_through_copper(const ImportTrace& trace, const ImportScenario& scenario,
                                   std::span<const Profile> recorded) {
    Carried carried{.knows = std::vector<TraceStore::Client>(scenario.nodes),
                    .cache_bytes = std::vector<std::uint64_t>(scenario.nodes)};
    const TraceStore store(trace, microseconds(0), {});
    const auto parts = parts_of(trace, scenario.parts);
    ImportReport report;
    ImportScenario later = scenario;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        report.add(import_part(parts[i], later, carried, i < recorded.size() ? &recorded[i] : nullptr,
                               i + 1 == parts.size()));
        later.start_skew = microseconds(0);
        for (const auto& [key, object] : carried.objects) {
            report.most_reads_of_an_object = std::max(report.most_reads_of_an_object, object.reads);
        }
        forget_unused(carried.objects, store, std::span(parts).subspan(i + 1));
    }
    report.cache_bytes_max = *std::max_element(carried.cache_bytes.begin(), carried.cache_bytes.end());
    return report;
}

}  // namespace copper::sim
