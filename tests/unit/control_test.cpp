#include "daemon/control/control.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <filesystem>
#include <future>
#include <thread>

#include "base/unique_fd.hpp"
#include "daemon/control_server.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;

TEST(ControlCodec, RequestsComeBack) {
    const ControlRequest request{.verb = "stats", .argument = "a\n\"b\"", .patience = milliseconds(1234)};
    std::string line = to_line(request);
    ASSERT_EQ(line.find('\n'), line.size() - 1);
    line.pop_back();
    const auto back = parse_request(line);
    ASSERT_TRUE(back) << back.error();
    EXPECT_EQ(back->verb, request.verb);
    EXPECT_EQ(back->argument, request.argument);
    EXPECT_EQ(back->patience, request.patience);
}

TEST(ControlCodec, RepliesComeBack) {
    const ControlReply reply{.job = "17",
                             .nodes = 3,
                             .parts = {{.rank = 2, .body = {{"host", "cn2"}}}},
                             .silent = {{1, "cn1"}},
                             .error = "no\nway"};
    const auto back = parse_reply(to_line(reply));
    ASSERT_TRUE(back) << back.error();
    EXPECT_EQ(back->job, "17");
    EXPECT_EQ(back->nodes, 3U);
    ASSERT_EQ(back->parts.size(), 1U);
    EXPECT_EQ(back->parts[0].rank, 2U);
    EXPECT_EQ(back->parts[0].body, reply.parts[0].body);
    EXPECT_EQ(back->silent, reply.silent);
    EXPECT_EQ(back->error, reply.error);
}

TEST(ControlCodec, TextThatIsNotUtf8IsStillALine) {
    EXPECT_TRUE(parse_request(to_line(ControlRequest{.verb = "x", .argument = "\xff\xfe"})));
}

TEST(ControlCodec, WhatNestsTooDeepForTheStackIsRefused) {
    constexpr std::size_t depth = 1'000'000;
    const std::string nested = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_FALSE(
        parse_reply(R"({"job":"","nodes":1,"error":"","parts":[{"rank":0,"body":)" + nested + "}]}"));
}

TEST(ControlCodec, NumbersOutOfTheirRangeAreRefused) {
    const auto reply = [](const std::string& nodes, const std::string& rank) {
        return parse_reply(R"({"job":"","error":"","nodes":)" + nodes + R"(,"parts":[{"body":{},"rank":)" +
                           rank + "}]}");
    };
    EXPECT_TRUE(reply("1048576", "0"));
    for (const char* nodes : {"-1", "1.5", "1048577", "4294967296", "1e300"}) {
        EXPECT_FALSE(reply(nodes, "0")) << nodes;
    }
    for (const char* rank : {"-1", "0.5", "4294967296", "1e300"}) {
        EXPECT_FALSE(reply("1", rank)) << rank;
    }
    EXPECT_FALSE(parse_request(R"({"verb":"x","argument":"","patience_ms":1.5})"));
}

TEST(ControlCodec, GarbageIsRefused) {
    for (const char* line :
         {"", "{", "[]", "17", "{\"verb\":1,\"argument\":\"\",\"patience_ms\":1}",
          "{\"verb\":\"x\",\"argument\":\"\"}", "{\"verb\":\"x\",\"argument\":\"\",\"patience_ms\":-1}",
          "{\"verb\":\"x\",\"argument\":\"\",\"patience_ms\":999999999}"}) {
        EXPECT_FALSE(parse_request(line)) << line;
        EXPECT_FALSE(parse_reply(line)) << line;
    }
    EXPECT_FALSE(parse_request(std::string(control_request_bytes_max + 1, ' ')));
}

class ControlServerTest : public testing::Test {
  protected:
    ControlServerTest() {
        std::string name = std::filesystem::temp_directory_path() / "copper-control-XXXXXX";
        directory_ = ::mkdtemp(name.data());
        socket_ = directory_ / "control";
    }
    ~ControlServerTest() override {
        server_.reset();
        std::filesystem::remove_all(directory_);
    }

    void start(ControlServer::Options options, ControlServer::Handler handler) {
        options.socket_path = socket_;
        auto server = ControlServer::start(std::move(options), std::move(handler));
        ASSERT_TRUE(server) << server.error();
        server_ = std::move(*server);
    }
    static void echo(const ControlRequest& request, const ControlServer::Reply& reply) {
        reply([name = request.argument] {
            return ControlReply{.job = name, .nodes = 1, .parts = {}, .error = {}};
        });
    }
    UniqueFd connect() const {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        socket_.copy(address.sun_path, sizeof(address.sun_path) - 1);
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return fd;
    }
    // Until the server closes.
    static std::string read_all(const UniqueFd& fd) {
        std::string text;
        std::array<char, 4096> buffer;
        for (ssize_t got = 0; (got = ::recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;) {
            text.append(buffer.data(), static_cast<std::size_t>(got));
        }
        return text;
    }

    std::filesystem::path directory_;
    std::string socket_;
    std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, Answers) {
    start({}, echo);
    const auto reply = ask(socket_, {.verb = "x", .argument = "hello"});
    ASSERT_TRUE(reply) << reply.error();
    EXPECT_EQ(reply->job, "hello");
}

TEST_F(ControlServerTest, AnswersLaterFromAnotherThreadAndOutOfOrder) {
    std::promise<ControlServer::Reply> first;
    start({}, [&first](const ControlRequest& request, const ControlServer::Reply& reply) {
        if (request.argument == "first") {
            first.set_value(reply);
        } else {
            echo(request, reply);
        }
    });
    auto waiting =
        std::async(std::launch::async, [&] { return ask(socket_, {.verb = "x", .argument = "first"}); });
    const auto reply = first.get_future().get();
    EXPECT_EQ(ask(socket_, {.verb = "x", .argument = "second"})->job, "second");
    reply([&] { return ControlReply{.job = "done", .nodes = 1, .parts = {}, .error = {}}; });
    EXPECT_EQ(waiting.get()->job, "done");
    reply([&] { return ControlReply{}; });  // once too often, and nobody there
}

TEST_F(ControlServerTest, LargeReplies) {
    const std::string large(20U << 20, 'x');
    start({}, [&large](const ControlRequest&, const ControlServer::Reply& reply) {
        reply([&] { return ControlReply{.job = large, .nodes = 1, .parts = {}, .error = {}}; });
    });
    EXPECT_EQ(ask(socket_, {.verb = "x"})->job.size(), large.size());
}

TEST_F(ControlServerTest, GarbageGetsAnErrorAndOthersAreServed) {
    start({}, echo);
    const UniqueFd fd = connect();
    ASSERT_GT(::send(fd.get(), "GET / HTTP/1.1\n", 15, MSG_NOSIGNAL), 0);
    const auto reply = parse_reply(read_all(fd));
    ASSERT_TRUE(reply);
    EXPECT_TRUE(reply->error.starts_with("not a request"));
    EXPECT_TRUE(ask(socket_, {.verb = "x"}));
}

TEST_F(ControlServerTest, AnEndlessRequestIsRefused) {
    start({}, echo);
    const UniqueFd fd = connect();
    const std::string endless(control_request_bytes_max + 8192, 'x');
    ::send(fd.get(), endless.data(), endless.size(), MSG_NOSIGNAL);
    const auto text = read_all(fd);
    // The answer may be lost as the server closes with unread bytes; but it closes.
    EXPECT_TRUE(text.empty() || parse_reply(text)->error == "the request is too long");
    EXPECT_TRUE(ask(socket_, {.verb = "x"}));
}

TEST_F(ControlServerTest, AClientThatSaysNothingIsDropped) {
    start({.socket_path = {}, .clients_max = 1, .request_time_max = milliseconds(50)}, echo);
    const UniqueFd silent = connect();
    EXPECT_TRUE(ask(socket_, {.verb = "x"}));  // gets the only place when the other's time is over
    EXPECT_EQ(read_all(silent), "");
}

TEST_F(ControlServerTest, AClientThatLeavesFreesItsPlace) {
    std::promise<ControlServer::Reply> asked;
    start({.socket_path = {}, .clients_max = 1},
          [&asked](const ControlRequest& request, const ControlServer::Reply& reply) {
              if (request.verb == "wait") {
                  asked.set_value(reply);
              } else {
                  echo(request, reply);
              }
          });
    {
        const UniqueFd leaving = connect();
        const std::string line = to_line(ControlRequest{.verb = "wait"});
        ASSERT_GT(::send(leaving.get(), line.data(), line.size(), MSG_NOSIGNAL), 0);
        asked.get_future().wait();
    }
    EXPECT_TRUE(ask(socket_, {.verb = "x"}));
}

TEST_F(ControlServerTest, AReadyReplyIsDeliveredBeforeTheEnd) {
    const std::string large(1U << 20, 'x');
    std::promise<void> replied;
    start({}, [&](const ControlRequest&, const ControlServer::Reply& reply) {
        reply([&] { return ControlReply{.job = large, .nodes = 1, .parts = {}, .error = {}}; });
        replied.set_value();
    });
    auto reply = std::async(std::launch::async, [&] { return ask(socket_, {.verb = "x"}); });
    replied.get_future().wait();
    server_.reset();
    ASSERT_TRUE(reply.get());
}

TEST_F(ControlServerTest, OtherUsersAreTurnedAway) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "needs root, to become another user";
    }
    std::atomic<int> served = 0;
    start({}, [&served](const ControlRequest& request, const ControlServer::Reply& reply) {
        ++served;
        echo(request, reply);
    });
    std::filesystem::permissions(directory_, std::filesystem::perms(0755));
    std::filesystem::permissions(socket_, std::filesystem::perms(0777));
    const pid_t child = ::fork();
    if (child == 0) {
        constexpr uid_t nobody = 65534;
        const bool changed = ::setuid(nobody) == 0;
        const auto reply = ask(socket_, {.verb = "x"});
        const bool refused = reply && reply->error == "this daemon serves user 0 only";
        ::_exit(changed && refused ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(retry_eintr([&] { return ::waitpid(child, &status, 0); }), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(served, 0);
}

TEST_F(ControlServerTest, NobodyListens) {
    const auto reply = ask(socket_, {.verb = "x"});
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error(), "no daemon listens at " + socket_);
    EXPECT_FALSE(ask("/tmp/" + std::string(200, 'x'), {.verb = "x"}));
}

}  // namespace
}  // namespace copper
