#include "daemon/progress_loop.hpp"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "collectives/verify.hpp"
#include "collectives/wire.hpp"

namespace copper {
namespace {

TimePoint now() {
    return std::chrono::steady_clock::now();
}

// By default the kernel may lengthen each pause by 50 us, which is more than the shortest of them.
constexpr unsigned long timer_slack_ns = 1000;

constexpr std::chrono::seconds degraded_for{60};  // after a direct read

constexpr std::size_t events_of_a_turn_max = 1024;

FailureDetector::Options detector_options(FailureDetector::Options options, const Fabric& fabric) {
    options.self = fabric.self();
    options.nodes = fabric.size();
    return options;
}

// Of a call that RollCall knows nothing of; its own begin with 1.
constexpr std::uint64_t acquaintance_call_id = 0;

template <typename... Ts>
struct Overloaded : Ts... {
    using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;  // Clang 14 does not find it by itself

}  // namespace

ProgressLoop::ProgressLoop(Options options, const Surroundings& surroundings, AnswerCall answer_call)
    : options_(std::move(options)),
      around_(surroundings),
      answer_call_(std::move(answer_call)),
      membership_({.size = around_.fabric.size(),
                   .self = around_.fabric.self(),
                   .arity = options_.arity,
                   .readers = options_.readers}),
      mover_(options_.mover, around_.trees, membership_, *this),
      roll_call_(membership_, *this),
      failure_detector_(detector_options(options_.failure_detector, around_.fabric)),
      pacer_(options_.pacer),
      acquainted_(around_.fabric.size()),
      compressor_(options_.compression),
      pool_(options_.pool) {}

bool ProgressLoop::push(Event event, std::size_t events_max) {
    bool notify = false;
    {
        auto inbox = inbox_.lock();
        if (inbox->events.size() >= events_max) {
            return false;
        }
        inbox->events.push_back(std::move(event));
        notify = inbox->sleeping;
        inbox->sleeping = false;
    }
    if (notify) {
        wake_.notify_one();
    }
    return true;
}

void ProgressLoop::want(const ObjectKey& key) {
    if (!push(Want{key}, options_.inbox_events_max)) {
        around_.cache.deliver(key, around_.backing.read(key));
    }
}

void ProgressLoop::post(Task task) {
    push(std::move(task), SIZE_MAX);
}

void ProgressLoop::run() {
    ::prctl(PR_SET_TIMERSLACK, timer_slack_ns);
    while (!may_leave()) {
        const TimePoint began = now();
        is_at(Activity::own_requests);
        bool moved = take_events();
        is_at(Activity::fabric);
        moved = poll_fabric() || moved;
        is_at(Activity::what_was_due);
        run_due();
        is_at(Activity::starting_reads);
        start_reads();
        if (moved) {
            turns_.record(now() - began);
        }
        is_at(Activity::waiting);
        pause(moved                  ? Pacer::Activity::moved
              : mover_.pending() > 0 ? Pacer::Activity::waiting
                                     : Pacer::Activity::none);
    }
}

bool ProgressLoop::may_leave() const {
    if (!leave_by_) {
        return false;
    }
    const bool quiet = told_.empty() && !roll_call_.next_deadline() && around_.fabric.flushed();
    return quiet || now() >= *leave_by_;
}

void ProgressLoop::leave(std::chrono::milliseconds time_max) {
    const TimePoint by = now() + time_max;
    leave_by_ = leave_by_ ? std::min(*leave_by_, by) : by;
}

// Not all at once: other nodes wait for answers meanwhile.
bool ProgressLoop::take_events() {
    if (next_taken_ == taken_.size()) {
        taken_.clear();
        next_taken_ = 0;
        inbox_.lock()->events.swap(taken_);
    }
    const TimePoint time = now();
    const std::size_t end = std::min(taken_.size(), next_taken_ + events_of_a_turn_max);
    const bool any = next_taken_ < end;
    while (next_taken_ < end) {
        handle(taken_[next_taken_++], time);
    }
    return any;
}

void ProgressLoop::handle(Event& event, TimePoint time) {
    std::visit(Overloaded{[&](Want& want) { mover_.want(want.key, time); },
                          [&](ReadDone& done) {
                              --reads_for(done.whom).in_flight;
                              mover_.read_done(done.key, done.object, time);
                          },
                          [](Task& task) { task(); }},
               event);
}

bool ProgressLoop::poll_fabric() {
    return around_.fabric.must_poll() &&
           around_.fabric.progress(
               [this](Rank from, const Frame& frame) {
                   is_at(Activity::message);
                   receive(from, frame);
                   is_at(Activity::fabric);
               },
               [this](Rank rank) { lose_for_good(rank, "the link to it is broken"); });
}

void ProgressLoop::lose_for_good(Rank rank, const std::string& why) {
    acquainted_[rank.value] = false;
    lose({{.rank = rank}}, why);
}

void ProgressLoop::lose(const std::vector<LostNode>& nodes, const std::string& why) {
    if (nodes.empty()) {
        return;
    }
    for (const LostNode& node : nodes) {
        if (membership_.is_alive(node.rank)) {
            spdlog::warn("node {} is lost: {}", node.rank.value, why);
        }
    }
    mover_.peers_lost(nodes, now());
    for (const LostNode& node : nodes) {
        roll_call_.peer_lost(node.rank);
        told_.erase(node.rank);
    }
}

// What another node holds of its peers.
void ProgressLoop::heed(Rank from, const View& view, TimePoint time) {
    membership_.note_epoch(view.epoch);
    const auto is_self = [this](const Sighting& suspect) { return suspect.rank == membership_.self(); };
    if (std::any_of(view.suspects.begin(), view.suspects.end(), is_self)) {
        send({&from, 1}, Pong{});
    }
    for (const auto& [rank, heard, epoch] : FailureDetector::returned(view, membership_, time)) {
        regain(rank, heard, time);
    }
    lose(failure_detector_.lost(view, membership_, time), "node " + std::to_string(from.value) + " says so");
}

void ProgressLoop::regain(Rank rank, TimePoint heard, TimePoint time) {
    if (membership_.is_alive(rank)) {
        return;
    }
    mover_.peer_regained(rank, heard, time);
    if (membership_.is_alive(rank)) {
        spdlog::warn("node {} is back", rank.value);
    }
}

void ProgressLoop::heard(Rank from, TimePoint time) {
    failure_detector_.heard(from, time);
    regain(from, time, time);
}

void ProgressLoop::look_after_peers(TimePoint time) {
    std::set<Rank> awaited = mover_.awaited();
    awaited.merge(roll_call_.awaited());
    const auto verdict = failure_detector_.look(awaited, membership_.suspects(), time);
    send(verdict.to_ping, Ping{});
    lose(verdict.lost, "it does not answer");
}

// Once: whoever sends them could fill the log.
void ProgressLoop::warn_of_strangers() {
    if (!warned_of_strangers_ && around_.fabric.counters().refused != 0) {
        warned_of_strangers_ = true;
        spdlog::warn(
            "messages are refused that do not have this job's key (or a node has none); they are counted in "
            "fabric.frames_refused");
    }
}

void ProgressLoop::look_after_itself(TimePoint time) {
    if (const auto direct_reads = mover_.counters().direct_reads; direct_reads != direct_reads_seen_) {
        direct_reads_seen_ = direct_reads;
        last_direct_read_ = time;
        if (!std::exchange(degraded_, true)) {
            spdlog::warn(
                "degraded: objects do not come in time, and are read from the filesystem out of turn");
        }
    } else if (degraded_ && time - last_direct_read_ >= degraded_for) {
        degraded_ = false;
        spdlog::info("not degraded any more: no object has been read out of turn for a minute");
    }
}

void ProgressLoop::receive(Rank from, const Frame& frame) {
    const auto message = decode(frame).and_then([this](Message decoded) {
        return verified(std::move(decoded), {.nodes = around_.fabric.size(), .trees = around_.trees});
    });
    if (!message) {
        ++frames_refused_;
        spdlog::warn("a message from node {} was refused: {}", from.value, message.error().reason);
        if (message.error().corrupt_object) {
            mover_.corrupt(*message.error().corrupt_object);
        }
        return;
    }
    const TimePoint time = now();
    heard(from, time);
    acquainted_[from.value] = true;
    std::visit(Overloaded{[&](const Interest& interest) {
                              heed(from, interest.view, time);
                              mover_.receive(from, interest, time);
                          },
                          [&](const Publication& publication) {
                              heed(from, publication.view, time);
                              mover_.receive(from, publication, time);
                          },
                          [&](const Decline& decline) { mover_.receive(from, decline, time); },
                          [&](const Working& working) { mover_.receive(from, working, time); },
                          [&](const Call& call) { roll_call_.receive(from, call, time); },
                          [&](const Answer& answer) {
                              if (answer.id == acquaintance_call_id) {
                                  told_.erase(from);
                              } else {
                                  roll_call_.receive(from, answer, time);
                              }
                          },
                          [&](const Ping&) {
                              send({&from, 1}, Pong{});
                          },
                          [](const Pong&) {}},
               *message);
}

void ProgressLoop::run_due() {
    const TimePoint time = now();
    if (const auto due = mover_.next_deadline(); due && *due <= time) {
        mover_.tick(time);
    }
    if (const auto due = roll_call_.next_deadline(); due && *due <= time) {
        roll_call_.tick(time);
    }
    if (time >= next_look_) {
        look_after_peers(time);
        warn_of_strangers();
        look_after_itself(time);
        next_look_ = time + failure_detector_.options().interval;
    }
    while (!tasks_.empty() && tasks_.begin()->first <= time) {
        tasks_.extract(tasks_.begin()).mapped()();
    }
}

std::optional<TimePoint> ProgressLoop::next_deadline() const {
    std::optional<TimePoint> next = leave_by_;
    const auto consider = [&next](std::optional<TimePoint> due) {
        if (due) {
            next = next ? std::min(*next, *due) : due;
        }
    };
    consider(mover_.next_deadline());
    consider(roll_call_.next_deadline());
    if (mover_.pending() > 0 || roll_call_.next_deadline()) {
        consider(next_look_);
    }
    if (!tasks_.empty()) {
        consider(tasks_.begin()->first);
    }
    return next;
}

void ProgressLoop::pause(Pacer::Activity activity) {
    if (may_leave() || next_taken_ < taken_.size()) {
        return;
    }
    const auto due = next_deadline();
    if (!around_.fabric.must_poll()) {
        wait_for_events(due);
        return;
    }
    const TimePoint time = now();
    const bool crowded = options_.cores == Cores::shared && cores_.is_crowded(time);
    const auto length =
        pacer_.next(activity, crowded ? Pacer::Machine::crowded : Pacer::Machine::has_idle_cores, time);
    if (length == Pacer::Pause::zero()) {
        ::sched_yield();
        return;
    }
    wait_for_events(due ? std::min(*due, time + length) : time + length);
}

void ProgressLoop::wait_for_events(std::optional<TimePoint> until) {
    auto inbox = inbox_.lock();
    inbox->sleeping = inbox->events.empty();
    const auto awake = [&inbox] { return !inbox->sleeping; };
    if (until) {
        wake_.wait_until(inbox.lock(), *until, awake);
    } else {
        wake_.wait(inbox.lock(), awake);
    }
    inbox->sleeping = false;
}

ObjectPtr ProgressLoop::find(const ObjectKey& key) {
    return around_.cache.find(key);
}

void ProgressLoop::deliver(const ObjectKey& key, const ObjectPtr& object, Retention retention) {
    around_.cache.deliver(key, object, retention);
}

std::uint64_t ProgressLoop::backlog_bytes(Rank to) {
    return around_.fabric.backlog_bytes(to);
}

std::uint64_t ProgressLoop::backlog_bytes() {
    return around_.fabric.backlog_bytes();
}

void ProgressLoop::read(const ObjectKey& key, ReadFor whom) {
    reads_for(whom).waiting.push_back(key);
    start_reads();
}

// In a thread of the pool. What is never sent stays plain.
ObjectPtr ProgressLoop::read_and_code(const ObjectKey& key, const Link& link) {
    ObjectPtr object = around_.backing.read(key);
    if (object->extent() == nullptr && object->bytes() > object_bytes_max) {
        if (!warned_of_large_object_.exchange(true)) {
            spdlog::warn(
                "{} takes {} bytes, which is too much for an object; it and its like are answered \"{}\"",
                to_string(key), object->bytes(), std::generic_category().message(E2BIG));
        }
        return make_error(E2BIG);
    }
    const bool is_shared = key.kind == ObjectKind::extent && around_.trees.contains(key.path);
    return is_shared ? compressor_.compress(key, std::move(object), link) : object;
}

// What may not begin yet waits here: each read that ends posts an event, and whatever leaves for other nodes
// moves the loop, after which it comes back.
void ProgressLoop::start_reads() {
    for (const ReadFor whom : {ReadFor::itself, ReadFor::others}) {
        auto& waiting = reads_for(whom).waiting;
        while (!waiting.empty() && may_read(whom) && start_read(waiting.front(), whom)) {
            waiting.pop_front();
        }
    }
}

bool ProgressLoop::may_read(ReadFor whom) const {
    return whom == ReadFor::itself ||
           reads_for_others_.in_flight * extent_bytes + around_.fabric.backlog_bytes() <
               options_.mover.bytes_for_others_max;
}

bool ProgressLoop::start_read(const ObjectKey& key, ReadFor whom) {
    const bool submitted = pool_.submit([this, key, whom, link = around_.fabric.link()] {
        push(ReadDone{key, whom, read_and_code(key, link)}, SIZE_MAX);
    });
    reads_for(whom).in_flight += submitted ? 1 : 0;
    return submitted;
}

void ProgressLoop::send(std::span<const Rank> to, const Message& message) {
    if (to.empty()) {
        return;
    }
    const Frame frame = encode(message);
    for (const Rank rank : to) {
        acquainted_[rank.value] = true;
        around_.fabric.send(rank, frame);
    }
}

std::string ProgressLoop::answer(const std::string& verb, const std::string& argument) {
    std::string text = answer_call_(verb, argument);
    if (text.size() > answer_text_bytes_max) {
        spdlog::warn("the answer to \"{} {}\" has {} bytes, which is too much to send", verb, argument,
                     text.size());
        return R"({"error":"the answer is too long"})";
    }
    return text;
}

void ProgressLoop::finished(std::uint64_t id, Parts parts) {
    if (auto caller = callers_.extract(id)) {
        caller.mapped()(parts);
    }
}

void ProgressLoop::call(std::string verb, std::string argument, std::chrono::milliseconds patience,
                        std::function<void(const Parts&)> done, Call::Silence silence) {
    callers_[roll_call_.call(std::move(verb), std::move(argument), patience, now(), silence)] =
        std::move(done);
}

void ProgressLoop::tell_acquaintances(const std::string& verb, const std::string& argument) {
    std::vector<Rank> ranks;
    for (std::uint32_t rank = 0; rank < acquainted_.size(); ++rank) {
        if (acquainted_[rank] && Rank{rank} != around_.fabric.self()) {
            ranks.push_back(Rank{rank});
        }
    }
    // One that is held to be lost is told, but not waited for.
    std::copy_if(ranks.begin(), ranks.end(), std::inserter(told_, told_.end()),
                 [this](Rank rank) { return membership_.is_alive(rank); });
    // Without patience: each addressee answers for itself alone.
    send(ranks, Call{.id = acquaintance_call_id,
                     .origin = around_.fabric.self(),
                     .verb = verb,
                     .argument = argument,
                     .patience = std::chrono::milliseconds(0)});
}

void ProgressLoop::at(TimePoint due, Task task) {
    tasks_.emplace(due, std::move(task));
}

}  // namespace copper
