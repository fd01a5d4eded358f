// Runs the protocol in one thread: Protocol and the fabric work only there. Other threads reach them through
// an inbox.
#pragma once

#include <tbb/concurrent_queue.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/thread_pool.hpp"
#include "base/trees.hpp"
#include "cache/backing_store.hpp"
#include "cache/cache.hpp"
#include "cache/compressor.hpp"
#include "collectives/protocol.hpp"
#include "daemon/backing_reads.hpp"
#include "daemon/core_gauge.hpp"
#include "daemon/health.hpp"
#include "daemon/pacer.hpp"
#include "daemon/pinning.hpp"
#include "daemon/vitals.hpp"
#include "fabric/fabric.hpp"
#include "fuse/counters.hpp"

namespace copper {

class ProgressLoop final : private Protocol::Effects {
  public:
    using Task = std::function<void()>;
    using Parts = std::vector<Answer::Part>;
    // Then the loop looks for messages again, because other nodes wait for answers.
    static constexpr std::size_t events_of_a_turn_max = 1024;

    struct Options {
        std::size_t arity = 4;
        std::size_t readers = 16;
        Mover::Options mover;
        FailureDetector::Options failure_detector;
        // They wait for the filesystem most of the time, so there are many more than cores. The threads that
        // answer programs and nodes go first: each of their turns is short, and somebody waits for it.
        ThreadPool::Options pool{.threads_max = 512, .threads_min = 1, .nice = 10};
        Pacer::Options pacer;
        Cores cores = Cores::shared;
        Compression compression = Compression::automatic;
        // If the inbox holds this many events, a thread reads the object it wants directly. Other events are
        // bounded: the loop itself started them, or one of the few clients of the control server did.
        std::size_t inbox_events_max = 1U << 20;
    };
    // All of these outlive the loop.
    struct Surroundings {
        const Trees& trees;
        Cache& cache;
        BackingStore& backing;
        Fabric& fabric;
        std::atomic<Activity>* activity = nullptr;  // the loop writes here what it is doing
        // With bytes that programs of all nodes will use.
        std::function<void(const ObjectKey&, const Extent&)> fill = nullptr;
    };
    // This node's answer to a roll call. Runs in the loop's thread. Nothing: it calls the last argument
    // later, from any thread.
    using Later = std::function<void(std::string)>;
    using AnswerCall = std::function<std::optional<std::string>(const std::string& verb,
                                                                const std::string& argument, const Later&)>;

    // RollCall::Effects::joined(). Runs in the loop's thread.
    using JoinAnswers = std::function<std::optional<std::string>(const std::string& verb,
                                                                 const std::string& argument, const Parts&)>;

    ProgressLoop(Options options, const Surroundings& surroundings, AnswerCall answer_call,
                 JoinAnswers join_answers);
    ~ProgressLoop() override = default;

    // From any thread.
    void want(const ObjectKey& key, FetchFor why);  // after a cache miss
    void post(Task task);                           // runs in the loop's thread

    // All functions below belong to the loop's thread, which is also the fabric's thread.
    void run();  // until leave()
    // Ends run() as soon as no roll call passes through this node and everything is sent, at the latest after
    // `time_max`.
    void leave(std::chrono::milliseconds time_max);
    // Asks all nodes. `done` gets the answers.
    void call(std::string verb, std::string argument, std::chrono::milliseconds patience,
              std::function<void(Parts)> done, Call::Silence silence = Call::Silence::is_suspicious);
    // Asks these nodes alone.
    void ask(const std::vector<Rank>& whom, std::string verb, std::string argument,
             std::chrono::milliseconds patience, std::function<void(Parts)> done);
    void at(TimePoint due, Task task);
    // This node has made a direct read within the last minute.
    bool is_degraded() const { return health_.is_degraded(); }
    // Tells the neighbours in the trees that this node ends, and sends each of them this call.
    void announce_leave(std::string verb, std::string argument);

    std::string name_of(Rank rank) const { return around_.fabric.name_of(rank); }
    const Membership& membership() const { return protocol_.membership(); }
    MoverCounters mover_counters() const { return protocol_.mover().counters(); }
    std::uint64_t nodes_lost() const { return protocol_.nodes_lost(); }
    std::uint64_t frames_refused() const { return frames_refused_; }
    // How long the turns took that had work to do. During a turn, the node answers nobody.
    const LatencyHistogram& turns() const { return turns_; }
    // As Mover::silent(), for how long.
    std::map<std::string, std::chrono::seconds> silent_filesystems() const;
    std::uint64_t reads_in_flight() const { return protocol_.mover().reads_in_flight(); }

  private:
    struct Want {
        ObjectKey key;
        FetchFor why;
    };
    struct ReadDone {
        ObjectKey key;
        ObjectPtr object;
    };
    using Event = std::variant<Want, ReadDone, Task>;

    // Protocol::Effects
    ObjectPtr find(const ObjectKey& key) override;
    ObjectKey current(ObjectKey key) const override;
    void deliver(const ObjectKey& key, const ObjectPtr& object) override;
    void is_for_all(const ObjectKey& key, const ObjectPtr& object) override;
    void read(const ObjectKey& key) override;
    TimePoint latest_call(const ObjectKey& key) override;
    std::string filesystem_of(const std::string& path) override;
    bool is_serial(const std::string& filesystem) override;
    void send(std::span<const Rank> to, const Message& message) override;
    std::uint64_t backlog_bytes(Rank to) override;
    std::uint64_t backlog_bytes() override;
    std::optional<std::string> answer(const Call& call) override;
    std::optional<std::string> joined(const std::string& verb, const std::string& argument,
                                      const Parts& parts) override;
    void finished(std::uint64_t id, Parts parts) override;
    void state_changed(Rank rank, NodeState state) override;

    bool push(Event event, std::size_t events_max);
    bool take_events();
    void handle(Event& event, TimePoint now);
    void receive(Rank from, const Frame& frame);
    bool poll_fabric();
    bool run_due();
    std::optional<TimePoint> next_deadline() const;
    bool may_leave() const;
    void is_at(Activity activity) const {
        if (around_.activity != nullptr) {
            around_.activity->store(activity, std::memory_order_relaxed);
        }
    }
    void pause(Pacer::Activity activity);
    Pacer::Machine machine(Fabric::Arrivals arrivals, TimePoint time);

    const Options options_;
    const Surroundings around_;
    const AnswerCall answer_call_;
    const JoinAnswers join_answers_;

    tbb::concurrent_queue<Event> inbox_;
    Protocol protocol_;
    Health health_;
    Pacer pacer_;
    CoreGauge cores_;
    std::map<std::uint64_t, std::function<void(Parts)>> callers_;
    std::multimap<TimePoint, Task> tasks_;
    std::uint64_t frames_refused_ = 0;
    LatencyHistogram turns_;
    std::optional<TimePoint> leave_by_;
    BackingReads reads_;  // last: they end before the members they use
};

}  // namespace copper
