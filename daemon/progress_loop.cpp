#include "daemon/progress_loop.hpp"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "collectives/timers.hpp"
#include "wire/verify.hpp"
#include "wire/wire.hpp"

namespace copper {
namespace {

TimePoint now() {
    return std::chrono::steady_clock::now();
}

// By default, the kernel may lengthen each pause by 50 us, which is more than the shortest pause.
constexpr unsigned long timer_slack_ns = 1000;

const char* description_of(NodeState state) {
    switch (state) {
        case NodeState::serving:
            return "serves";
        case NodeState::resigned:
            return "stops reading for others for a while: another node could read what it could not";
        case NodeState::suspect:
            return "does not answer";
        case NodeState::dead:
            return "takes part no more";
    }
    return "?";
}

// While this node leaves, the others do, too.
spdlog::level::level_enum level_of_losses(const std::optional<TimePoint>& leave_by) {
    return leave_by ? spdlog::level::debug : spdlog::level::warn;
}

Mover::Options with_threads(Mover::Options options, std::size_t threads) {
    options.reading.reads_max = threads;
    return options;
}

template <typename... Ts>
struct Overloaded : Ts... {
    using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;  // Clang 14 needs this guide

}  // namespace

ProgressLoop::ProgressLoop(Options options, const Surroundings& surroundings, AnswerCall answer_call,
                           JoinAnswers join_answers)
    : options_(std::move(options)),
      around_(surroundings),
      answer_call_(std::move(answer_call)),
      join_answers_(std::move(join_answers)),
      protocol_({.membership = {.size = around_.fabric.size(),
                                .self = around_.fabric.self(),
                                .arity = options_.arity,
                                .readers = options_.readers},
                 .mover = with_threads(options_.mover, options_.pool.threads_max),
                 .failure_detector = options_.failure_detector},
                around_.trees, *this),
      pacer_(options_.pacer),
      reads_(options_.pool, options_.compression, around_.trees, around_.backing,
             [this](const ObjectKey& key, ObjectPtr object) {
                 push(ReadDone{key, std::move(object)}, SIZE_MAX);
             }) {}

bool ProgressLoop::push(Event event, std::size_t events_max) {
    if (inbox_.unsafe_size() >= events_max) {  // about so many
        return false;
    }
    inbox_.push(std::move(event));
    around_.fabric.doorbell().ring();
    return true;
}

void ProgressLoop::want(const ObjectKey& key, FetchFor why) {
    if (!push(Want{key, why}, options_.inbox_events_max)) {
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
        around_.fabric.doorbell().reset();
        is_at(Activity::own_requests);
        bool moved = take_events();
        is_at(Activity::fabric);
        moved = poll_fabric() || moved;
        is_at(Activity::what_was_due);
        const bool was_due = run_due();
        is_at(Activity::starting_reads);
        protocol_.backlog_shrank(now());  // each message that leaves moves the loop
        if (moved || was_due) {
            turns_.record(now() - began);
        }
        is_at(Activity::waiting);
        pause(moved                             ? Pacer::Activity::moved
              : protocol_.mover().pending() > 0 ? Pacer::Activity::waiting
                                                : Pacer::Activity::none);
    }
}

bool ProgressLoop::may_leave() const {
    if (!leave_by_) {
        return false;
    }
    const bool quiet = !protocol_.roll_call().next_deadline() && around_.fabric.flushed();
    return quiet || now() >= *leave_by_;
}

void ProgressLoop::leave(std::chrono::milliseconds time_max) {
    const TimePoint by = now() + time_max;
    leave_by_ = leave_by_ ? std::min(*leave_by_, by) : by;
}

bool ProgressLoop::take_events() {
    const TimePoint time = now();
    std::size_t taken = 0;
    for (Event event; taken < events_of_a_turn_max && inbox_.try_pop(event); ++taken) {
        handle(event, time);
    }
    return taken > 0;
}

void ProgressLoop::handle(Event& event, TimePoint time) {
    std::visit(Overloaded{[&](Want& want) { protocol_.want(want.key, want.why, time); },
                          [&](ReadDone& done) {
                              reads_.end(done.key);
                              protocol_.read_done(done.key, done.object, time);
                          },
                          [](Task& task) { task(); }},
               event);
}

bool ProgressLoop::poll_fabric() {
    return around_.fabric.arrivals() != Fabric::Arrivals::none &&
           around_.fabric.progress(
               [this](Rank from, const Frame& frame) {
                   is_at(Activity::message);
                   receive(from, frame);
                   is_at(Activity::fabric);
               },
               [this](Rank rank) {
                   spdlog::log(level_of_losses(leave_by_), "the link to {} is broken", name_of(rank));
                   protocol_.cut(rank, now());
               });
}

void ProgressLoop::announce_leave(std::string verb, std::string argument) {
    const std::vector<Rank> neighbours = protocol_.leave(now());
    send(neighbours,
         Call{.origin = membership().self(), .verb = std::move(verb), .argument = std::move(argument)});
}

void ProgressLoop::state_changed(Rank rank, NodeState state) {
    spdlog::log(level_of_losses(leave_by_), "{} {}", name_of(rank), description_of(state));
}

void ProgressLoop::receive(Rank from, const Frame& frame) {
    const auto message = decode(frame).and_then([this](Message decoded) {
        return verified(std::move(decoded), {.nodes = around_.fabric.size(), .trees = around_.trees});
    });
    if (!message) {
        ++frames_refused_;
        spdlog::warn("a message from {} was refused: {}", name_of(from), message.error().reason);
        if (message.error().damaged) {
            protocol_.receive_damaged(from, *message.error().damaged, now());
        }
        return;
    }
    protocol_.receive(from, *message, now());
}

// True if anything was due.
bool ProgressLoop::run_due() {
    const TimePoint time = now();
    const auto due = next_deadline();
    protocol_.tick(time);
    if (health_.is_due(time)) {
        health_.look(mover_counters().direct_reads, around_.fabric.counters().refused, time);
    }
    while (!tasks_.empty() && tasks_.begin()->first <= time) {
        tasks_.extract(tasks_.begin()).mapped()();
    }
    return due && *due <= time;
}

std::optional<TimePoint> ProgressLoop::next_deadline() const {
    const auto next = earlier(leave_by_, protocol_.next_deadline());
    return tasks_.empty() ? next : earlier(next, tasks_.begin()->first);
}

void ProgressLoop::pause(Pacer::Activity activity) {
    if (may_leave() || !inbox_.empty()) {
        return;
    }
    auto until = next_deadline();
    if (const auto arrivals = around_.fabric.arrivals(); arrivals != Fabric::Arrivals::none) {
        const TimePoint time = now();
        const auto length = pacer_.next(activity, machine(arrivals, time), time);
        if (length == Pacer::Pause::zero()) {
            ::sched_yield();
            return;
        }
        until = earlier(until, time + length);
    }
    around_.fabric.doorbell().wait(until);
}

Pacer::Machine ProgressLoop::machine(Fabric::Arrivals arrivals, TimePoint time) {
    if (arrivals == Fabric::Arrivals::rung) {
        return Pacer::Machine::rings;
    }
    const bool crowded = options_.cores == Cores::shared && cores_.is_crowded(time);
    return crowded ? Pacer::Machine::crowded : Pacer::Machine::has_idle_cores;
}

ObjectPtr ProgressLoop::find(const ObjectKey& key) {
    return around_.cache.find(key);
}

ObjectKey ProgressLoop::current(ObjectKey key) const {
    return around_.cache.current(std::move(key));
}

void ProgressLoop::deliver(const ObjectKey& key, const ObjectPtr& object) {
    around_.cache.deliver(key, object, membership().reads(key) ? Copy::of_reader : Copy::of_another);
}

void ProgressLoop::is_for_all(const ObjectKey& key, const ObjectPtr& object) {
    const Extent* extent = key.kind == ObjectKind::extent && !object->lifetime ? object->extent() : nullptr;
    if (extent != nullptr && around_.fill) {
        around_.fill(key, *extent);
    }
}

std::uint64_t ProgressLoop::backlog_bytes(Rank to) {
    return around_.fabric.backlog_bytes(to);
}

std::uint64_t ProgressLoop::backlog_bytes() {
    return around_.fabric.backlog_bytes();
}

void ProgressLoop::read(const ObjectKey& key) {
    reads_.begin(key, around_.fabric.link());
}

TimePoint ProgressLoop::latest_call(const ObjectKey& key) {
    return reads_.latest_call(key);
}

std::string ProgressLoop::filesystem_of(const std::string& path) {
    return around_.backing.filesystem_of(path);
}

bool ProgressLoop::is_serial(const std::string& filesystem) {
    return around_.backing.is_serial(filesystem);
}

void ProgressLoop::send(std::span<const Rank> to, const Message& message) {
    if (to.empty()) {
        return;
    }
    const Frame frame = encode(message);
    for (const Rank rank : to) {
        around_.fabric.send(rank, frame);
    }
}

std::optional<std::string> ProgressLoop::answer(const Call& call) {
    auto text = answer_call_(call.verb, call.argument, [this, call](std::string later) {
        post([this, call, later = std::move(later)] { protocol_.answered(call, later); });
    });
    if (text && text->size() > answer_text_bytes_max) {
        spdlog::warn("the answer to \"{} {}\" has {} bytes, too many to send", call.verb, call.argument,
                     text->size());
        return R"({"error":"the answer is too long"})";
    }
    return text;
}

std::optional<std::string> ProgressLoop::joined(const std::string& verb, const std::string& argument,
                                                const Parts& parts) {
    auto text = join_answers_(verb, argument, parts);
    return text && text->size() <= answer_text_bytes_max ? std::move(text) : std::nullopt;
}

void ProgressLoop::finished(std::uint64_t id, Parts parts) {
    if (auto caller = callers_.extract(id)) {
        caller.mapped()(std::move(parts));
    }
}

void ProgressLoop::call(std::string verb, std::string argument, std::chrono::milliseconds patience,
                        std::function<void(Parts)> done, Call::Silence silence) {
    callers_[protocol_.call(std::move(verb), std::move(argument), patience, silence, now())] =
        std::move(done);
}

std::map<std::string, std::chrono::seconds> ProgressLoop::silent_filesystems() const {
    const TimePoint time = now();
    std::map<std::string, std::chrono::seconds> found;
    for (const auto& [filesystem, since] : protocol_.mover().silent(time)) {
        found.emplace(filesystem, std::chrono::duration_cast<std::chrono::seconds>(time - since));
    }
    return found;
}

void ProgressLoop::ask(const std::vector<Rank>& whom, std::string verb, std::string argument,
                       std::chrono::milliseconds patience, std::function<void(Parts)> done) {
    callers_[protocol_.ask(whom, std::move(verb), std::move(argument), patience, now())] = std::move(done);
}

void ProgressLoop::at(TimePoint due, Task task) {
    tasks_.emplace(due, std::move(task));
}

}  // namespace copper
