#include "daemon/profile_keeper.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "profile/profile_file.hpp"
#include "tests/support/no_files.hpp"
#include "tests/support/temporary_directory.hpp"
#include "wire/wire.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;
using Others = ProfileKeeper::Others;

constexpr std::uint32_t nodes = nodes_asked_max;
constexpr std::size_t answer_bytes = 1U << 19;  // of one node, about

// The other nodes of a job, all of them below rank 0. When all calls are answered, the next step of the test
// comes.
class OtherNodes final : public Fabric {
  public:
    using AnswerOf = std::function<std::string(Rank rank, const std::string& argument)>;
    explicit OtherNodes(AnswerOf answer) : answer_(std::move(answer)) {}

    std::deque<std::function<void()>> steps;
    bool are_asked_alone = true;  // the calls are not to be passed on

    Rank self() const override { return Rank{0}; }
    std::uint32_t size() const override { return nodes; }
    void send(Rank to, const Frame& frame) override {
        const auto message = decode(frame);
        if (const auto* call = message ? std::get_if<Call>(&*message) : nullptr) {
            asked_.emplace_back(to, *call);
            are_asked_alone = are_asked_alone && call->patience == 0ms;
        }
    }
    std::uint64_t backlog_bytes(Rank) const override { return 0; }
    std::uint64_t backlog_bytes() const override { return 0; }
    bool progress(const Receive& receive, const Lost&) override {
        if (!asked_.empty()) {
            const auto [rank, call] = asked_.front();
            asked_.pop_front();
            receive(rank, encode(Answer{.id = call.id,
                                        .origin = call.origin,
                                        .parts = {{.rank = rank, .text = answer_(rank, call.argument)}}}));
        } else if (!steps.empty()) {
            const auto step = std::move(steps.front());
            steps.pop_front();
            step();
        }
        return true;
    }
    bool flushed() const override { return true; }
    Arrivals arrivals() const override { return Arrivals::silent; }
    FabricCounters counters() const override { return {}; }

  private:
    const AnswerOf answer_;
    std::deque<std::pair<Rank, Call>> asked_;
};

// Stands for the filesystem of the profiles, too: whoever logs waits for `open`.
class Log final : public spdlog::sinks::base_sink<std::mutex> {
  public:
    std::shared_future<void> open;
    std::set<std::thread::id> threads;  // that logged

  private:
    void sink_it_(const spdlog::details::log_msg&) override {
        threads.insert(std::this_thread::get_id());
        if (open.valid()) {
            open.wait();
        }
    }
    void flush_() override {}
};

class ProfileKeeperTest : public testing::Test {
  protected:
    ProfileKeeperTest() { spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log)); }
    ~ProfileKeeperTest() override { spdlog::set_default_logger(logger_before); }

    static ProgressLoop::Options loop_options() {
        ProgressLoop::Options options;
        options.arity = nodes;
        options.failure_detector.patience = 1h;  // nobody answers pings
        options.pool.threads_max = 1;
        return options;
    }
    static ObjectKey file(std::size_t number, const std::string& directory = "/app") {
        static const std::string name(200, 'x');
        return {.kind = ObjectKind::entry,
                .path = directory + "/" + std::to_string(number) + "/" + name + "/" + name + "/" + name};
    }
    // Each node uses so many files that all others use, too, and as many that it uses alone.
    void use(std::size_t count) {
        for (std::uint32_t rank = 0; rank < nodes; ++rank) {
            for (std::size_t i = 0; i < count; ++i) {
                uses[rank].note(file(i));
                uses[rank].note(file(i, "/app/rank" + std::to_string(rank)));
            }
        }
    }
    std::string answer(Rank rank, const std::string& argument) {
        const std::string text = answer_uses(uses[rank.value], rank, argument);
        bytes_told += text.size();
        return text;
    }
    // Each step begins when what the last one asks of the nodes is answered.
    void run(std::deque<std::function<void()>> steps) {
        fabric.steps = std::move(steps);
        fabric.steps.emplace_back([this] { loop.leave(0ms); });
        loop.run();
    }
    void wait() {
        do {
            keeper().wait_until_written();
        } while (keeper().is_stuck());
    }
    using Counts = std::map<std::uint32_t, std::size_t>;  // {nodes that used a file: how many such files}
    Counts recorded() const {
        Counts counts;
        if (const auto profile = read_profile(options.file)) {
            EXPECT_EQ(profile->nodes_asked, nodes);
            EXPECT_EQ(profile->trees, std::vector<std::string>{"/app"});
            for (const Profile::Use& use : profile->uses) {
                ++counts[use.nodes];
            }
        }
        return counts;
    }

    ProfileKeeper& keeper() {
        if (keeper_ == nullptr) {
            keeper_ = std::make_unique<ProfileKeeper>(options, trees, loop, cache, uses[0]);
        }
        return *keeper_;
    }

    const std::shared_ptr<spdlog::logger> logger_before = spdlog::default_logger();
    const std::shared_ptr<Log> log = std::make_shared<Log>();
    test::TemporaryDirectory directory;
    // The other nodes answer in the thread that would lose patience with them.
    ProfileKeeper::Options options{
        .file = directory / "profile", .substitutes = {}, .replay = {}, .patience = 1h};
    std::deque<UseLog> uses = std::deque<UseLog>(nodes);  // by rank
    std::size_t bytes_told = 0;
    OtherNodes::AnswerOf answer_of = [this](Rank rank, const std::string& argument) {
        return answer(rank, argument);
    };
    OtherNodes fabric{[this](Rank rank, const std::string& argument) { return answer_of(rank, argument); }};
    const Trees trees{{"/app"}};
    std::vector<std::string> fetched;
    Cache cache{{}, [this](const ObjectKey& key, FetchFor) { fetched.push_back(key.path); }};
    test::NoFiles no_files;
    ProgressLoop loop{loop_options(),
                      {.trees = trees, .cache = cache, .backing = no_files, .fabric = fabric},
                      [this](const std::string&, const std::string& argument, const ProgressLoop::Later&) {
                          return answer_of(Rank{0}, argument);
                      },
                      [](const std::string&, const std::string&, const ProgressLoop::Parts&) {
                          return std::optional<std::string>();
                      }};

  private:
    std::unique_ptr<ProfileKeeper> keeper_;
};

TEST_F(ProfileKeeperTest, RecordsWhatAllNodesUsed) {
    constexpr std::size_t count = 600;
    use(count);
    run({[this] { keeper().finish(Others::are_there); }});
    EXPECT_GT(bytes_told, nodes * answer_bytes) << "in several parts";
    EXPECT_TRUE(fabric.are_asked_alone) << "a large job has other nodes, too";
    wait();
    EXPECT_EQ(recorded(), (Counts{{1, nodes * count}, {nodes, count}}));
}

TEST_F(ProfileKeeperTest, RecordsItsOwnUsesOnceWhenOthersAreGone) {
    constexpr std::size_t count = 100;
    use(count);
    run({[this] { keeper().finish(Others::are_there); },
         [this] {
             uses[0].note(file(0, "/app/last"));
             keeper().finish(Others::are_there);
             keeper().finish(Others::are_gone);  // before any answer
         }});
    wait();
    EXPECT_EQ(recorded(), (Counts{{1, nodes * count + 1}, {nodes, count}}));
}

TEST_F(ProfileKeeperTest, FetchesAheadWhatLiesInTheTrees) {
    ASSERT_TRUE(write_profile(options.file, {.uses = {{.key = file(0)}, {.key = file(1, "/elsewhere")}}}));
    run({[this] {
             keeper().begin();
             loop.at(std::chrono::steady_clock::now(), [this] { wait(); });
         },
         [] {}, [] {}});
    EXPECT_EQ(fetched, std::vector<std::string>{file(0).path});
    EXPECT_EQ(log->threads.size(), 1U);
    EXPECT_FALSE(log->threads.contains(std::this_thread::get_id())) << "the loop does not read it";
}

TEST_F(ProfileKeeperTest, TheLoopDoesNotLookIntoAnswers) {
    use(1);
    std::string question;
    answer_of = [&](Rank rank, const std::string& argument) {
        question = argument;
        return rank == Rank{1} ? "7 nonsense" : answer(rank, argument);
    };
    run({[this] { keeper().finish(Others::are_there); }});
    EXPECT_NE(question.find(R"("1":7,)"), std::string::npos) << question;
    wait();
    EXPECT_EQ(recorded(), (Counts{{1, nodes - 1}, {nodes - 1, 1}}));
}

TEST_F(ProfileKeeperTest, RecordsWhatCameInTime) {
    constexpr std::size_t count = 600;
    use(count);
    answer_of = [this](Rank rank, const std::string& argument) {
        if (argument != "{}") {
            loop.leave(0ms);
        }
        return answer(rank, argument);
    };
    run({[this] { keeper().finish(Others::are_there); }});
    wait();
    EXPECT_GT(recorded()[nodes], 0U);
    EXPECT_LT(recorded()[nodes], count);
}

// Its thread waits for the filesystem meanwhile.
TEST_F(ProfileKeeperTest, FewAnswersWaitForItsThread) {
    constexpr std::size_t count = 1200;
    ASSERT_TRUE(write_profile(options.file, {.uses = {{.key = file(0)}}}));
    options.waiting_bytes_max = nodes * answer_bytes;
    std::promise<void> opened;
    log->open = opened.get_future();
    use(count);
    run({[this] {
             keeper().begin();
             keeper().finish(Others::are_there);
         },
         [&] {
             EXPECT_TRUE(keeper().is_stuck());
             EXPECT_LT(bytes_told, 2 * options.waiting_bytes_max);
             opened.set_value();
             wait();
             EXPECT_GT(recorded()[nodes], 0U);
             EXPECT_LT(recorded()[nodes], count);
         }});
}

}  // namespace
}  // namespace copper
