#include "tests/sim/simulation.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/path.hpp"
#include "cache/codec.hpp"
#include "cache/entry_resolver.hpp"
#include "cache/guesses/guesses.hpp"
#include "cache/names.hpp"
#include "wire/verify.hpp"

namespace copper::sim {
namespace {

constexpr std::size_t wrong_kept_max = 5;

// No job takes as long. What is not over by then makes more messages than it ends.
constexpr std::chrono::minutes longest_job{10};

// After it, a file that nobody changes gives no further error.
constexpr milliseconds at_rest{4000};

std::uint64_t mixed(std::uint64_t hash, std::uint64_t what) {
    return (hash ^ what) * 0x100000001b3U;
}

}  // namespace

// ---- a node: what the daemon wires together, with simulated surroundings

class Simulation::Node final : public Protocol::Effects {
  public:
    Node(Simulation& simulation, Rank self)
        : simulation_(simulation),
          self_(self),
          cache_({.budget_bytes = simulation.scenario_.cache_budget_bytes, .clock = [this] { return now(); }},
                 [this](const ObjectKey& key, FetchFor why) { want(key, why); }),
          protocol_({.membership = {.size = simulation.scenario_.nodes,
                                    .self = self,
                                    .arity = simulation.scenario_.arity,
                                    .readers = simulation.scenario_.readers},
                     .mover = {.deadline = simulation.scenario_.deadline,
                               .waiting = {.entries_max = simulation.scenario_.waits_max}}},
                    simulation.trees_, *this) {
        if (simulation.make_programs_) {
            programs_ = simulation.make_programs_(
                {.cache = cache_,
                 .trees = simulation.trees_,
                 .oracle = simulation.oracle_,
                 .report = simulation.report_,
                 .now = [&simulation] { return simulation.now(); },
                 .later = [this](microseconds longest,
                                 std::function<void()> happen) { later(longest, std::move(happen)); },
                 .random = [&simulation] { return simulation.random_(); },
                 .wrong = [this](const std::string& what) { wrong(what); }});
        }
    }

    bool alive() const { return alive_; }
    const Protocol& protocol() const { return protocol_; }
    std::uint64_t active_clients() const { return active_clients_; }

    void start_clients() {
        const Scenario& scenario = simulation_.scenario_;
        for (std::uint32_t client = 0; client < scenario.clients_per_node; ++client) {
            ++active_clients_;
            simulation_.after(
                simulation_.random_delay(scenario.message_delay_max),
                [this, client, left = scenario.operations_per_client] { next_operation(client, left); });
        }
    }

    // Nothing changes any more: each file once.
    void use_all_files(std::uint32_t number) {
        const StoreShape& shape = simulation_.store_.shape();
        const std::uint32_t names = simulation_.store_.names_per_directory();
        if (number < shape.directories * names) {
            programs_->use(
                join_path(simulation_.store_.directory(number / names),
                          SimulatedStore::file_name(number % names)),
                [this, number] { later(milliseconds(1), [this, number] { use_all_files(number + 1); }); });
        }
    }

    void refresh(const Refreshed& refreshed) { cache_.refresh(refreshed); }

    void crash() { alive_ = false; }

    void jump_clock(microseconds forwards) {
        ahead_ += forwards;
        next_tick_.reset();
        tick_when_due();
    }

    // It does nothing until then, and then what it should have done.
    void pause(TimePoint until) { paused_until_ = std::max(paused_until_, until); }

    void cut(Rank rank) {
        if (alive_ && rank != self_) {
            protocol_.cut(rank, now());
            tick_when_due();
        }
    }

    void receive(Rank from, const Frame& frame) {
        const Scenario& scenario = simulation_.scenario_;
        if (self_.value + scenario.stragglers < scenario.nodes) {
            handle(from, frame);
            return;
        }
        busy_until_ =
            std::max(busy_until_, simulation_.now()) + simulation_.random_delay(scenario.straggling_max);
        auto& longest = simulation_.report_.longest_at_a_straggler;
        longest =
            std::max(longest, std::chrono::duration_cast<microseconds>(busy_until_ - simulation_.now()));
        simulation_.at(busy_until_, [this, from, frame] { handle(from, frame); });
    }

    void handle(Rank from, const Frame& frame) {
        if (!alive_) {
            return;
        }
        if (simulation_.now() < paused_until_) {
            simulation_.at(paused_until_, [this, from, frame] { handle(from, frame); });
            return;
        }
        const auto message = decode(frame);
        if (!message) {
            if (message.error().damaged) {
                protocol_.receive_damaged(from, *message.error().damaged, now());
            }
            return;
        }
        if (const auto sound =
                verified(*message, {.nodes = simulation_.scenario_.nodes, .trees = simulation_.trees_});
            !sound) {
            wrong("of what a node sent was refused: " + sound.error().reason);
            return;
        }
        protocol_.receive(from, *message, now());
        tick_when_due();
    }

    void backlog_shrank() {
        if (alive_ && protocol_.mover().reads_queued() > 0 && simulation_.now() >= paused_until_) {
            protocol_.backlog_shrank(now());
            tick_when_due();
        }
    }

    void call() {
        protocol_.call("status", "", simulation_.scenario_.deadline, Call::Silence::is_suspicious, now());
        tick_when_due();
    }

    // Protocol::Effects
    void send(std::span<const Rank> to, const Message& message) override {
        const Frame frame = encode(message);
        for (const Rank rank : to) {
            simulation_.count(self_, rank, message);
            simulation_.transmit(self_, rank, frame);
        }
    }
    ObjectPtr find(const ObjectKey& key) override { return cache_.find(key); }
    ObjectKey current(ObjectKey key) const override { return cache_.current(std::move(key)); }
    void deliver(const ObjectKey& key, const ObjectPtr& object) override {
        cache_.deliver(key, object, protocol_.membership().reads(key) ? Copy::of_reader : Copy::of_another);
    }
    std::uint64_t backlog_bytes(Rank to) override { return simulation_.backlog_[{self_, to}]; }
    std::uint64_t backlog_bytes() override { return simulation_.total_backlog_[self_]; }
    void read(const ObjectKey& key) override {
        ++simulation_.report_.reads[key];
        if (key.kind == ObjectKind::extent && !protocol_.membership().reads(key)) {
            simulation_.oracle_.read_alone(key.path);
        }
        const Scenario& scenario = simulation_.scenario_;
        if (simulation_.readers_lost_ < scenario.readers_lost) {
            ++simulation_.readers_lost_;
            simulation_.after(simulation_.random_delay(scenario.read_delay_max), [this] { crash(); });
        }
        call(key, simulation_.calls_of(key));
    }
    TimePoint latest_call(const ObjectKey& key) override { return latest_calls_.at(key); }
    std::string filesystem_of(const std::string& path) override {
        return simulation_.is_hung(path) ? "/pfs/hung" : "/pfs";
    }
    std::optional<std::string> answer(const Call&) override { return std::to_string(self_.value); }
    void finished(std::uint64_t, std::vector<Answer::Part> parts) override {
        for (const Answer::Part& part : parts) {
            if (part.text != std::to_string(part.rank.value)) {
                wrong("a roll call's answer of another node");
            }
        }
        simulation_.report_.roll_calls.push_back(parts.size());
    }

    void state_changed(Rank, NodeState) override {
        ++simulation_.report_.membership_changes;
        simulation_.oracle_.reader_changed();
    }

  private:
    TimePoint now() const { return simulation_.now() + ahead_; }

    // One of the calls of a read, and then the others.
    void call(const ObjectKey& key, std::uint32_t left) {
        latest_calls_[key] = now();
        simulation_.at(simulation_.end_of_call(self_, key), [this, key, left] {
            if (!alive_) {
                return;
            }
            if (left > 1) {
                call(key, left - 1);
                return;
            }
            latest_calls_.erase(key);
            protocol_.read_done(key, read_store(key), now());
            tick_when_due();
        });
    }

    bool is_broken() const {
        const Scenario& scenario = simulation_.scenario_;
        return self_.value >= scenario.nodes - scenario.broken_mounts;
    }

    ObjectPtr coded(const ObjectPtr& object) {
        const Extent* extent = object->extent();
        if (simulation_.scenario_.extents == Scenario::Extents::plain || extent == nullptr) {
            return object;
        }
        const auto blob = lz4_coded(extent->blob.span());
        if (!blob) {
            return object;
        }
        ++simulation_.report_.coded;
        return make_object(Extent{.attributes = extent->attributes,
                                  .blob = *blob,
                                  .coding = Coding::lz4,
                                  .plain_bytes = extent->plain_bytes},
                           object->lifetime);
    }

    ObjectPtr read_store(const ObjectKey& key) {
        const Trouble trouble = is_broken() ? simulation_.scenario_.trouble : Trouble::none;
        return coded(simulation_.store_.read(key, simulation_.now(), trouble));
    }

    // A cache miss reaches the Mover as an event of its own, as it does in the daemon.
    void want(const ObjectKey& key, FetchFor why) {
        simulation_.oracle_.wanted(key, simulation_.now());
        later(microseconds(20), [this, key, why] {
            protocol_.want(key, why, now());
            tick_when_due();
        });
    }

    void later(microseconds longest, std::function<void()> happen) {
        simulation_.after(simulation_.random_delay(longest), [this, happen = std::move(happen)] {
            if (alive_) {
                happen();
            }
        });
    }

    void tick_when_due() {
        const auto due = protocol_.next_deadline();
        if (due && (!next_tick_ || *due < *next_tick_)) {
            next_tick_ = std::max(*due, now());
            simulation_.at(*next_tick_ - ahead_, [this] { tick(); });
        }
    }

    void tick() {
        if (!alive_) {
            return;
        }
        if (simulation_.now() < paused_until_) {
            simulation_.at(paused_until_, [this] { tick(); });
            return;
        }
        if (next_tick_ && *next_tick_ <= now()) {
            next_tick_.reset();
        }
        protocol_.tick(now());
        tick_when_due();
    }

    void next_operation(std::uint32_t client, std::uint32_t left) {
        if (!alive_ || left == 0) {
            --active_clients_;
            return;
        }
        const StoreShape& shape = simulation_.store_.shape();
        auto& random = simulation_.random_;
        const std::string directory =
            simulation_.store_.directory(static_cast<std::uint32_t>(random() % shape.directories));
        const std::string file = SimulatedStore::file_name(
            static_cast<std::uint32_t>(random() % simulation_.store_.names_per_directory()));
        const TimePoint started = simulation_.now();
        const Scenario& scenario = simulation_.scenario_;
        const bool is_guessed = self_.value >= scenario.nodes - scenario.nodes_that_guess;
        auto done = [this, client, left, started, is_guessed] {
            auto& report = simulation_.report_;
            ++report.operations;
            auto& slowest = is_guessed ? report.slowest_guessed : report.slowest;
            slowest =
                std::max(slowest, std::chrono::duration_cast<microseconds>(simulation_.now() - started));
            simulation_.after(simulation_.random_delay(simulation_.scenario_.pause_between_operations_max),
                              [this, client, left] { next_operation(client, left - 1); });
        };
        if (programs_ != nullptr && random() % 4 == 0) {
            list(directory, {}, 0, nullptr, {started, {}}, done);
        } else if (programs_ != nullptr) {
            programs_->use(join_path(directory, file), done);
        } else if (scenario.reads == Scenario::Reads::own_file) {
            read_extent(numbered_file(self_.value), left, done);
        } else if (scenario.reads == Scenario::Reads::own_small_files) {
            read_extent(numbered_file(left * scenario.nodes + self_.value), 0, done);
        } else if (scenario.reads == Scenario::Reads::all_small_files) {
            read_extent(numbered_file(left), 0, done);
        } else if (scenario.reads == Scenario::Reads::all_from_own_start) {
            const std::uint32_t begin = self_.value * (shape.files_per_directory / scenario.nodes);
            read_extent(numbered_file(left + begin), 0, done);
        } else if (scenario.reads == Scenario::Reads::own_names_in_batches) {
            const std::uint32_t number = self_.value * scenario.clients_per_node + client;
            look_up(simulation_.store_.directory(number % shape.directories),
                    SimulatedStore::file_name(number / shape.directories), done);
        } else if (scenario.reads == Scenario::Reads::own_names) {
            look_up_own_name(client * scenario.operations_per_client + left - 1, is_guessed, done);
        } else if (shape.huge_entries != 0 && random() % 3 == 0) {
            use_huge_directory(done);
        } else if (random() % 4 == 0) {
            look_up(directory, "absent" + std::to_string(random() % 1000), done);
        } else if (random() % 2 == 0) {
            look_up(directory, file, done);
        } else {
            read_file(join_path(directory, file), done);
        }
    }

    std::string numbered_file(std::uint32_t number) const {
        const SimulatedStore& store = simulation_.store_;
        const StoreShape& shape = store.shape();
        return join_path(store.directory(number / shape.files_per_directory % shape.directories),
                         SimulatedStore::file_name(number % shape.files_per_directory));
    }

    void look_up(const std::string& directory, const std::string& name, const std::function<void()>& done) {
        entries_.resolve(directory, name,
                         [this, path = join_path(directory, name), asked = simulation_.now(),
                          done](const Resolution& result) {
                             judge(path, result, {asked, simulation_.now()});
                             done();
                         });
    }

    void judge(const std::string& path, const Resolution& result, Oracle::Times times) {
        const auto life = result.lasts ? Oracle::Life::lasting : Oracle::Life::doubtful;
        Oracle& oracle = simulation_.oracle_;
        if (!result.found) {
            wrong("lookup of " + path + ": " + result.found.error().message());
        } else if (const auto& entry = *result.found) {
            expect(oracle.judge_attributes(path, entry->attributes, life, times));
        } else {
            expect(oracle.judge_absent(path, life, times));
        }
    }

    // An object of its own: the names of its directory are known.
    void look_up_own_name(std::uint32_t number, bool is_guessed, const std::function<void()>& done) {
        const Scenario& scenario = simulation_.scenario_;
        const StoreShape& shape = simulation_.store_.shape();
        const std::uint32_t all = self_.value * scenario.clients_per_node * scenario.operations_per_client;
        const ObjectKey key{
            .kind = ObjectKind::entry,
            .path = join_path(simulation_.store_.directory((all + number) % shape.directories),
                              SimulatedStore::file_name((all + number) / shape.directories))};
        const auto ask = [this, key, done] {
            cache_.get(key, [this, key, done, asked = simulation_.now()](const ObjectPtr& object) {
                if (alive_ && (object->listing() == nullptr || object->listing()->size() != 1)) {
                    wrong("lookup of " + key.path);
                }
                if (!simulation_.is_hung(key.path)) {
                    auto& slowest = simulation_.report_.slowest_elsewhere;
                    slowest = std::max(slowest,
                                       std::chrono::duration_cast<microseconds>(simulation_.now() - asked));
                }
                done();
            });
        };
        if (is_guessed) {
            cache_.get(
                key, [](const ObjectPtr&) {}, FetchFor::guess);
            simulation_.after(milliseconds(10), ask);
        } else {
            ask();
        }
    }

    void use_huge_directory(const std::function<void()>& done) {
        const std::string path = SimulatedStore::huge_directory();
        const auto number = simulation_.random_() % (2 * simulation_.scenario_.store.huge_entries);
        if (simulation_.random_() % 4 == 0) {
            list(path, {}, 0, nullptr, {simulation_.now(), {}}, done);
        } else {
            look_up(path, SimulatedStore::huge_name(number), done);
        }
    }

    // Piece after piece, as programs do; from the start if the directory has other names by now.
    void list(const std::string& path, std::vector<std::string> names, std::uint32_t piece,
              const ObjectPtr& directory, Oracle::Times times, const std::function<void()>& done) {
        if (directory == nullptr) {
            cache_.get({.kind = ObjectKind::directory, .path = path},
                       [this, path, times, done](const ObjectPtr& object) {
                           if (object->directory() != nullptr) {
                               list(path, {}, 0, object, times, done);
                           } else {
                               wrong("no names of " + path);
                               done();
                           }
                       });
            return;
        }
        if (piece == directory->directory()->first_names.size()) {
            times.answered = simulation_.now();
            expect(simulation_.oracle_.judge_names(
                path, names, directory->lifetime ? Oracle::Life::doubtful : Oracle::Life::lasting, times));
            done();
            return;
        }
        get_piece(cache_, path, directory, piece,
                  [this, path, names = std::move(names), piece, directory, times,
                   done](const Piece& found) mutable {
                      if (found.holder->directory() != nullptr && found.names == nullptr) {
                          list(path, {}, 0, found.holder, times, done);
                      } else if (found.names != nullptr) {
                          for (std::size_t i = 0; i < found.names->size(); ++i) {
                              names.emplace_back(found.names->at(i).name);
                          }
                          list(path, std::move(names), piece + 1, directory, times, done);
                      } else {
                          wrong("a piece of " + path);
                          done();
                      }
                  });
    }

    void read_file(const std::string& path, const std::function<void()>& done) {
        const std::uint64_t extents = simulation_.store_.shape().file_bytes_max / extent_bytes + 1;
        read_extent(path, static_cast<std::uint32_t>(simulation_.random_() % extents), done);
    }

    void read_extent(const std::string& path, std::uint32_t index, const std::function<void()>& done) {
        cache_.get({.kind = ObjectKind::extent, .path = path, .index = index},
                   [this, path, index, asked = simulation_.now(), done](const ObjectPtr& object) {
                       judge(path, index, *object, {asked, simulation_.now()});
                       done();
                   });
    }

    void judge(const std::string& path, std::uint32_t index, const Object& object, Oracle::Times times) {
        const Extent* extent = object.extent();
        if (extent == nullptr) {
            expect(simulation_.oracle_.judge_error(path, object.error().value(), times));
            return;
        }
        const auto versions = simulation_.oracle_.versions(path, times);
        if (std::ranges::find(versions, extent->attributes) == versions.end() ||
            !SimulatedStore::is_intact(path, index, *extent)) {
            wrong("bytes of " + path + " extent " + std::to_string(index));
        }
    }

    void expect(const Oracle::Verdict& verdict) {
        if (verdict) {
            wrong(*verdict);
        }
    }

    void wrong(const std::string& what) {
        Report& report = simulation_.report_;
        auto& kept = is_broken() ? report.wrong_of_broken_mounts : report.wrong;
        if (alive_ && kept.size() < wrong_kept_max) {
            kept.push_back("node " + std::to_string(self_.value) + ": " + what);
        }
    }

    Simulation& simulation_;
    const Rank self_;
    bool alive_ = true;
    std::uint64_t active_clients_ = 0;
    Cache cache_;
    Guesses::Counters guess_counters_;
    Guesses guesses_{cache_, simulation_.trees_, guess_counters_, extent_bytes};
    EntryResolver entries_{cache_, simulation_.trees_, [this](const std::string& path, Foresight foresight) {
                               guesses_.looked_up(path, foresight);
                           }};
    Protocol protocol_;
    std::unique_ptr<Programs> programs_;
    std::map<ObjectKey, TimePoint> latest_calls_;  // of reads that have begun
    std::optional<TimePoint> next_tick_;
    TimePoint paused_until_{};
    TimePoint busy_until_{};  // of a straggler
    microseconds ahead_{0};   // of its clock
};

// ---- the world

namespace {

Oracle::Options promise_of(const Scenario& scenario) {
    const bool is_sound = scenario.loss == 0 && scenario.corruption == 0 && scenario.partitions == 0 &&
                          scenario.one_way_cuts == 0 && scenario.clock_jumps == 0 && scenario.crashes == 0 &&
                          scenario.pauses == 0 && scenario.stragglers == 0 && scenario.readers_lost == 0 &&
                          scenario.broken_mounts == 0 && scenario.stall.count() == 0 &&
                          scenario.slow_disks == 0;
    const bool is_one_version = is_sound && scenario.cache_budget_bytes >= Scenario().cache_budget_bytes &&
                                scenario.store.file_bytes_max <= extent_bytes;
    return {.is_one_version = is_one_version,
            .doubtful_max = is_sound ? std::optional(doubtful_lifetime + milliseconds(500)) : std::nullopt};
}

}  // namespace

Simulation::Simulation(const Scenario& scenario, MakePrograms make_programs)
    : scenario_(scenario),
      random_(scenario.seed),
      store_(scenario.store),
      oracle_(promise_of(scenario), store_),
      trees_({SimulatedStore::root()}),
      make_programs_(std::move(make_programs)),
      membership_this_second_(scenario.nodes) {
    for (std::uint32_t rank = 0; rank < scenario.nodes; ++rank) {
        nodes_.push_back(std::make_unique<Node>(*this, Rank{rank}));
    }
}

Simulation::~Simulation() = default;

microseconds Simulation::random_delay(microseconds longest) {
    return microseconds(1 + random_() % static_cast<std::uint64_t>(longest.count()));
}

bool Simulation::chance(double probability) {
    return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

bool Simulation::is_hung(const std::string& path) const {
    for (std::uint32_t i = 0; i < scenario_.hung_directories; ++i) {
        if (is_within(path, store_.directory(i))) {
            return true;
        }
    }
    return false;
}

std::uint32_t Simulation::calls_of(const ObjectKey& key) const {
    const bool is_batch = key.kind == ObjectKind::batch && scenario_.reads_per_second != 0;
    return is_batch ? std::min(scenario_.store.files_per_directory, std::uint32_t{batch_entries}) : 1;
}

TimePoint Simulation::end_of_call(Rank reader, const ObjectKey& key) {
    const bool is_slow = reader.value < scenario_.slow_disks;
    if (scenario_.reads_per_second != 0) {
        served_until_ = std::max(served_until_, now()) +
                        std::chrono::nanoseconds(std::chrono::seconds(1)) / scenario_.reads_per_second;
    }
    const TimePoint end = std::max(now(), served_until_) + random_delay(scenario_.read_delay_max) +
                          (is_slow ? scenario_.slow_disk_delay : microseconds(0));
    const TimePoint stalled = TimePoint{} + scenario_.stall_begin;
    const bool is_stalled = end >= stalled && (scenario_.hung_directories == 0 || is_hung(key.path));
    return is_stalled ? std::max(end, stalled + scenario_.stall) : end;
}

void Simulation::count(Rank from, Rank to, const Message& message) {
    if (std::holds_alternative<Working>(message)) {
        ++report_.working_messages;
    }
    if (!std::holds_alternative<Ping>(message) && !std::holds_alternative<Pong>(message)) {
        return;
    }
    ++report_.membership_messages;
    const auto second = std::chrono::floor<std::chrono::seconds>(now().time_since_epoch()).count();
    if (second != this_second_) {
        this_second_ = second;
        membership_this_second_.assign(nodes_.size(), 0);
    }
    for (const Rank rank : {from, to}) {
        report_.membership_per_second_max =
            std::max(report_.membership_per_second_max, ++membership_this_second_[rank.value]);
    }
}

void Simulation::note(std::uint64_t what) {
    report_.trace =
        mixed(mixed(report_.trace, what), static_cast<std::uint64_t>(now().time_since_epoch().count()));
}

void Simulation::transmit(Rank from, Rank to, const Frame& frame) {
    ++report_.messages;
    report_.bytes += frame.header.size + frame.body.size;
    note((std::uint64_t{from.value} << 32U) | to.value);
    note(frame.header.size + frame.body.size);
    const bool divided = now() < divided_until_ && side_[from.value] != side_[to.value];
    const auto cut = cut_until_.find({from, to});
    const bool is_cut = cut != cut_until_.end() && now() < cut->second;
    if (divided || is_cut || chance(scenario_.loss)) {
        return;
    }
    Frame arriving = frame;
    arriving.body.checksum = 0;  // bytes are all that arrives
    if (chance(scenario_.corruption)) {
        Blob& damaged = frame.body.size != 0 && chance(0.5) ? arriving.body : arriving.header;
        auto bytes = std::make_shared_for_overwrite<std::byte[]>(damaged.size);
        std::memcpy(bytes.get(), damaged.data.get(), damaged.size);
        bytes[static_cast<std::ptrdiff_t>(random_() % damaged.size)] ^= std::byte{1} << (random_() % 8);
        damaged.data = std::move(bytes);
    }
    const std::uint64_t bytes = frame.header.size + frame.body.size;
    backlog_[{from, to}] += bytes;
    total_backlog_[from] += bytes;
    TimePoint& sent = sending_until_[from];
    sent = std::max(sent, now()) + scenario_.send_time +
           microseconds(scenario_.node_bytes_per_us != 0 ? bytes / scenario_.node_bytes_per_us : 0);
    TimePoint& last = last_arrival_[{from, to, frame.lane}];
    const auto rate = to.value < scenario_.slow_nodes ? scenario_.slow_bytes_per_ms : 0;
    const auto transfer = microseconds(1 + (rate != 0 ? bytes * 1000 / rate : 0));
    last = std::max(last, sent + random_delay(scenario_.message_delay_max)) + transfer;
    at(last, [this, from, to, arriving, bytes] {
        backlog_[{from, to}] -= bytes;
        total_backlog_[from] -= bytes;
        nodes_[to.value]->receive(from, arriving);
        nodes_[from.value]->backlog_shrank();
    });
    if (chance(scenario_.duplication)) {
        at(last + random_delay(scenario_.message_delay_max),
           [this, from, to, arriving] { nodes_[to.value]->receive(from, arriving); });
    }
}

void Simulation::crash(Rank rank, bool noticed) {
    nodes_[rank.value]->crash();
    if (!noticed) {
        return;
    }
    for (auto& node : nodes_) {
        after(random_delay(scenario_.deadline), [&node, rank] { node->cut(rank); });
    }
}

void Simulation::divide() {
    const bool in_halves = random_() % 2 == 0;
    const std::size_t alone = random_() % nodes_.size();
    side_.assign(nodes_.size(), false);
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
        side_[rank] = in_halves ? random_() % 2 == 0 : rank == alone;
    }
    divided_until_ = now() + random_delay(scenario_.partition_max);
}

void Simulation::cut_one_way() {
    const auto any_node = [this] { return Rank{static_cast<std::uint32_t>(random_() % nodes_.size())}; };
    const Rank from = any_node();
    cut_until_[{from, any_node()}] = now() + random_delay(scenario_.one_way_cut_max);
}

void Simulation::schedule_faults() {
    const microseconds busy_time = (scenario_.read_delay_max + scenario_.message_delay_max) * 20;
    std::vector<std::uint32_t> victims(scenario_.nodes);
    for (std::uint32_t rank = 0; rank < scenario_.nodes; ++rank) {
        victims[rank] = rank;
    }
    for (std::uint32_t i = 0; i < scenario_.crashes; ++i) {
        std::swap(victims[i], victims[i + random_() % (victims.size() - i)]);
        after(random_delay(busy_time), [this, rank = Rank{victims[i]},
                                        noticed = i < scenario_.crashes_noticed] { crash(rank, noticed); });
    }
    for (std::uint32_t i = 0; i < scenario_.pauses; ++i) {
        after(random_delay(busy_time), [this] {
            nodes_[random_() % nodes_.size()]->pause(now() + random_delay(scenario_.pause_max));
        });
    }
    for (std::uint32_t i = 0; i < scenario_.partitions; ++i) {
        after(random_delay(busy_time), [this] { divide(); });
    }
    for (std::uint32_t i = 0; i < scenario_.one_way_cuts; ++i) {
        after(random_delay(busy_time), [this] { cut_one_way(); });
    }
    for (std::uint32_t i = 0; i < scenario_.clock_jumps; ++i) {
        after(random_delay(busy_time), [this] {
            nodes_[random_() % nodes_.size()]->jump_clock(random_delay(scenario_.clock_jump_max));
        });
    }
    for (std::uint32_t i = 0; i < scenario_.huge_changes; ++i) {
        after(random_delay(busy_time), [this] { store_.change_huge(now()); });
    }
    const microseconds job = scenario_.pause_between_operations_max * scenario_.operations_per_client / 2;
    for (std::uint32_t i = 0; i < scenario_.file_changes; ++i) {
        after(random_delay(std::max(busy_time, job)), [this] { change_a_file(); });
    }
    for (std::uint32_t i = 0; i < scenario_.refreshes; ++i) {
        after(random_delay(std::max(busy_time, job)), [this] { refresh(); });
    }
}

void Simulation::refresh() {
    constexpr milliseconds longest{50};
    const auto directory = static_cast<std::uint32_t>(random_() % scenario_.store.directories);
    const std::string path = random_() % 3 == 0 ? "/" : store_.directory(directory);
    const Refreshed refreshed = {
        .path = path,
        .reach = path != "/" && random_() % 2 == 0 ? Reach::one_level : Reach::everything_below,
        .id = random_() | 1U};
    microseconds last{0};
    for (auto& node : nodes_) {
        const microseconds delay = random_delay(longest);
        last = std::max(last, delay);
        after(delay, [&node, refreshed] { node->refresh(refreshed); });
    }
    oracle_.refreshed({.path = path, .began = now(), .returned = now() + last});
}

std::string Simulation::any_file() {
    const auto directory = static_cast<std::uint32_t>(random_() % scenario_.store.directories);
    const auto number = static_cast<std::uint32_t>(random_() % store_.names_per_directory());
    return join_path(store_.directory(directory), SimulatedStore::file_name(number));
}

void Simulation::change_a_file() {
    const std::string file = any_file();
    const std::string other = any_file();
    const auto state = store_.state(file, now());
    if (state.is_being_written) {
        return;
    }
    const auto kind = random_() % 6;
    if (!state.exists || kind == 0) {
        store_.replace(file, now());
    } else if (kind == 1) {
        store_.change_mode(file, now());
    } else if (kind == 2) {
        store_.remove(file, now());
    } else if (kind == 3 && !store_.state(other, now()).is_being_written) {  // a rename
        store_.remove(file, now());
        store_.replace(other, now());
    } else {
        store_.begin_writing(file, now());
        after(random_delay(scenario_.writing_max), [this, file] { store_.end_writing(file, now()); });
    }
}

void Simulation::schedule_roll_calls() {
    for (int i = 0; i < 2; ++i) {
        after(random_delay(scenario_.read_delay_max * 10), [this] {
            Node& node = *nodes_[random_() % nodes_.size()];
            if (node.alive()) {
                node.call();
            }
        });
    }
}

Report Simulation::run() {
    for (auto& node : nodes_) {
        node->start_clients();
    }
    schedule_faults();
    schedule_roll_calls();
    events_.run(TimePoint{} + longest_job);
    if (make_programs_) {
        for (auto& node : nodes_) {
            after(at_rest + random_delay(milliseconds(1)), [&node] { node->use_all_files(0); });
        }
        events_.run(TimePoint{} + 2 * longest_job);
    }
    report_.has_settled = events_.empty();
    for (auto& node : nodes_) {
        const MoverCounters counters = node->protocol().mover().counters();
        report_.direct_reads += counters.direct_reads;
        report_.corrupt += counters.corrupt;
        report_.retries += counters.retries;
        report_.unshared_reads += counters.unshared_reads;
        report_.duplicates += counters.duplicates;
        report_.passed_on += counters.passed_on;
        report_.resignations += counters.resignations;
        if (node->alive()) {
            ++report_.live_nodes;
            report_.pending_left += node->protocol().mover().pending();
            report_.unfinished += node->active_clients();
        }
    }
    for (const auto& [key, count] : report_.reads) {
        report_.most_reads_of_an_object = std::max(report_.most_reads_of_an_object, count);
        report_.all_reads += count;
    }
    note(report_.operations);
    return report_;
}

Scenario random_scenario(std::uint64_t seed, Faults faults) {
    std::mt19937_64 random(seed ^ 0x5eedU);
    const auto between = [&random](std::uint64_t low, std::uint64_t high) {
        return low + random() % (high - low + 1);
    };
    // Mostly small jobs, where odd shapes are; now and then a large one (and no chain of a thousand hops
    // then).
    const std::uint64_t nodes = between(0, 19) == 0 ? between(100, 1000) : between(1, 40);
    Scenario scenario{.seed = seed,
                      .nodes = static_cast<std::uint32_t>(nodes),
                      .arity = between(nodes > 40 ? 2 : 1, 8),
                      .readers = between(1, nodes),
                      .clients_per_node = static_cast<std::uint32_t>(nodes > 40 ? 1 : between(1, 4)),
                      .operations_per_client = static_cast<std::uint32_t>(nodes > 40 ? 10 : between(5, 60)),
                      .store = {.directories = static_cast<std::uint32_t>(between(1, 12)),
                                .files_per_directory = static_cast<std::uint32_t>(between(1, 20)),
                                .names_to_come = faults == Faults::all ? 2U : 0U,
                                .file_bytes_max = static_cast<std::uint32_t>(
                                    between(0, 9) == 0 && nodes < 20 ? 3 * extent_bytes : between(0, 5000)),
                                .huge_entries = 0,
                                .operation_time = microseconds(seed % 2 == 0 ? 0 : 1000)},
                      .message_delay_max = microseconds(between(2, 5000)),
                      .read_delay_max = microseconds(between(2, 20000))};
    if (faults == Faults::all) {
        scenario.loss = between(0, 2) == 0 ? 0.05 : 0;
        scenario.corruption = between(0, 2) == 0 ? 0.05 : 0;
        scenario.crashes = static_cast<std::uint32_t>(between(0, std::min<std::uint64_t>(nodes - 1, 4)));
        scenario.crashes_noticed = static_cast<std::uint32_t>(between(0, scenario.crashes));
        scenario.pauses = static_cast<std::uint32_t>(between(0, 2));
        if (between(0, 2) == 0) {
            scenario.extents = Scenario::Extents::coded;
        }
        if (between(0, 4) == 0) {
            scenario.slow_nodes = static_cast<std::uint32_t>(between(1, nodes));
            scenario.slow_bytes_per_ms = between(1000, 100000);
        }
        scenario.duplication = between(0, 2) == 0 ? 0.05 : 0;
        scenario.partitions = static_cast<std::uint32_t>(between(0, 2) == 0 ? between(1, 2) : 0);
        scenario.clock_jumps = static_cast<std::uint32_t>(between(0, 2) == 0 ? between(1, 3) : 0);
        scenario.slow_disks = static_cast<std::uint32_t>(between(0, 2) == 0 ? between(1, nodes) : 0);
        scenario.slow_disk_delay = microseconds(between(1, 1000000));
        if (between(0, 2) == 0) {
            scenario.stall_begin = microseconds(between(1, 100000));
            scenario.stall = microseconds(between(1, 10000000));
        }
        scenario.file_changes = static_cast<std::uint32_t>(between(0, 10));
        scenario.deadline = milliseconds(between(50, 2000));
        if (between(0, 3) == 0) {
            scenario.cache_budget_bytes = between(0, 20000);
        }
        scenario.one_way_cuts = static_cast<std::uint32_t>(between(0, 2) == 0 ? between(1, 10) : 0);
        scenario.one_way_cut_max = microseconds(between(1, 20000000));
        scenario.pause_max = microseconds(between(1, 20000000));
        scenario.stragglers = static_cast<std::uint32_t>(between(0, 2) == 0 ? between(1, nodes) : 0);
        scenario.straggling_max = microseconds(between(1, 3000));
        scenario.refreshes = static_cast<std::uint32_t>(between(0, 2) == 0 ? between(1, 5) : 0);
    }
    return scenario;
}

std::string describe(const Scenario& s) {
    std::ostringstream text;
    text << "seed " << s.seed << ": " << s.nodes << " nodes, arity " << s.arity << ", " << s.readers
         << " readers, " << s.clients_per_node << " clients x " << s.operations_per_client << " operations, "
         << s.store.directories << " x " << s.store.files_per_directory << " files of up to "
         << s.store.file_bytes_max << " bytes, delays " << s.message_delay_max.count() << "/"
         << s.read_delay_max.count() << " us, deadline " << s.deadline.count() << " ms, loss " << s.loss
         << ", corruption " << s.corruption << ", crashes " << s.crashes << " (" << s.crashes_noticed
         << " noticed), pauses " << s.pauses << ", partitions " << s.partitions << ", one-way cuts "
         << s.one_way_cuts << ", stragglers " << s.stragglers << " (" << s.straggling_max.count()
         << " us), clock jumps " << s.clock_jumps << ", duplication " << s.duplication << ", slow disks "
         << s.slow_disks << " (" << s.slow_disk_delay.count() << " us), stall " << s.stall_begin.count()
         << "+" << s.stall.count() << (s.extents == Scenario::Extents::coded ? " us, coded" : " us")
         << ", slow nodes " << s.slow_nodes << " (" << s.slow_bytes_per_ms << " bytes/ms), changes "
         << s.file_changes << ", refreshes " << s.refreshes << ", budget " << s.cache_budget_bytes;
    return text.str();
}

}  // namespace copper::sim
