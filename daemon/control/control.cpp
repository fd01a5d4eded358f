#include "daemon/control/control.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <system_error>

#include "base/error_text.hpp"
#include "base/json_text.hpp"
#include "base/unique_fd.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// Extra time for a reply, on top of the patience that the request grants the nodes.
constexpr milliseconds reply_margin{10000};
constexpr milliseconds patience_max{600000};

tl::expected<UniqueFd, std::string> connect_to(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        return tl::make_unexpected(path + ": too long for a socket's name");
    }
    path.copy(address.sun_path, path.size());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) {
        return tl::make_unexpected("cannot make a socket: " + error_text());
    }
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        const bool dead = errno == ECONNREFUSED || errno == ENOENT;
        return tl::make_unexpected(dead ? "no daemon listens at " + path : path + ": " + error_text());
    }
    // From here on, poll() bounds every wait.
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    return fd;
}

tl::expected<void, std::string> wait_for(int fd, short events, SteadyClock::time_point deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now());
    pollfd polled = {.fd = fd, .events = events, .revents = 0};
    const int timeout = left.count() > 0 ? static_cast<int>(left.count()) : 0;
    const int ready = retry_eintr([&] { return ::poll(&polled, 1, timeout); });
    if (ready == 0) {
        return tl::make_unexpected("the daemon did not answer in time");
    }
    if (ready < 0) {
        return tl::make_unexpected("poll: " + error_text());
    }
    return {};
}

bool would_block() {
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

tl::expected<void, std::string> send_all(int fd, std::string_view text, SteadyClock::time_point deadline) {
    while (!text.empty()) {
        const ssize_t sent = retry_eintr([&] { return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); });
        if (sent >= 0) {
            text.remove_prefix(static_cast<std::size_t>(sent));
            continue;
        }
        if (!would_block()) {
            return tl::make_unexpected("the daemon ended the connection: " + error_text());
        }
        if (auto ready = wait_for(fd, POLLOUT, deadline); !ready) {
            return ready;
        }
    }
    return {};
}

tl::expected<std::string, std::string> receive_line(int fd, SteadyClock::time_point deadline) {
    std::string text;
    std::array<char, 65536> buffer;
    while (text.size() <= control_reply_bytes_max) {
        const ssize_t got = retry_eintr([&] { return ::recv(fd, buffer.data(), buffer.size(), 0); });
        if (got > 0) {
            text.append(buffer.data(), static_cast<std::size_t>(got));
            if (text.back() == '\n') {
                text.pop_back();
                return text;
            }
            continue;
        }
        if (got == 0) {
            return tl::make_unexpected("the daemon ended the connection without an answer");
        }
        if (!would_block()) {
            return tl::make_unexpected("the daemon ended the connection: " + error_text());
        }
        if (auto ready = wait_for(fd, POLLIN, deadline); !ready) {
            return tl::make_unexpected(ready.error());
        }
    }
    return tl::make_unexpected("the daemon's answer is too long");
}

}  // namespace

std::string to_line(const ControlRequest& request) {
    return json_line({{"verb", request.verb},
                      {"argument", request.argument},
                      {"patience_ms", request.patience.count()}}) +
           "\n";
}

std::string to_line(const ControlReply& reply) {
    auto parts = nlohmann::json::array();
    for (const auto& part : reply.parts) {
        parts.push_back({{"rank", part.rank}, {"body", part.body}});
    }
    auto silent = nlohmann::json::array();
    for (const auto& [rank, host] : reply.silent) {
        silent.push_back({{"rank", rank}, {"host", host}});
    }
    return json_line({{"job", reply.job},
                      {"nodes", reply.nodes},
                      {"parts", std::move(parts)},
                      {"silent", std::move(silent)},
                      {"error", reply.error}}) +
           "\n";
}

tl::expected<ControlRequest, std::string> parse_request(std::string_view line) {
    if (line.size() > control_request_bytes_max) {
        return tl::make_unexpected("the request is longer than " + std::to_string(control_request_bytes_max) +
                                   " bytes");
    }
    try {
        const auto json = parse_json(line);
        const milliseconds patience(whole_number<std::int64_t>(json.at("patience_ms")));
        if (patience < milliseconds::zero() || patience > patience_max) {
            return tl::make_unexpected("patience_ms is not within 0 to " +
                                       std::to_string(patience_max.count()));
        }
        return ControlRequest{.verb = json.at("verb").get<std::string>(),
                              .argument = json.at("argument").get<std::string>(),
                              .patience = patience};
    } catch (const std::exception& error) {
        return tl::make_unexpected(std::string("not a request: ") + error.what());
    }
}

tl::expected<ControlReply, std::string> parse_reply(std::string_view line) {
    try {
        const auto json = parse_json(line);
        ControlReply reply{.job = json.at("job").get<std::string>(),
                           .nodes = whole_number<std::uint32_t>(json.at("nodes")),
                           .parts = {},
                           .silent = {},
                           .error = json.at("error").get<std::string>()};
        if (reply.nodes > control_nodes_max) {
            return tl::make_unexpected("not a reply: of more than " + std::to_string(control_nodes_max) +
                                       " nodes");
        }
        for (const auto& part : json.at("parts")) {
            reply.parts.push_back(
                {.rank = whole_number<std::uint32_t>(part.at("rank")), .body = part.at("body")});
        }
        for (const auto& node : json.value("silent", nlohmann::json::array())) {
            reply.silent[whole_number<std::uint32_t>(node.at("rank"))] = node.at("host").get<std::string>();
        }
        return reply;
    } catch (const std::exception& error) {
        return tl::make_unexpected(std::string("not a reply: ") + error.what());
    }
}

tl::expected<ControlReply, std::string> ask(const std::string& socket_path, const ControlRequest& request) {
    const auto deadline = SteadyClock::now() + request.patience + reply_margin;
    const auto fd = connect_to(socket_path);
    if (!fd) {
        return tl::make_unexpected(fd.error());
    }
    const auto sent = send_all(fd->get(), to_line(request), deadline);
    // The server may refuse a client at once, so read the reply even if sending failed.
    const auto line = receive_line(fd->get(), deadline);
    if (!sent && !line) {
        return tl::make_unexpected(sent.error());
    }
    return line ? parse_reply(*line) : tl::make_unexpected(line.error());
}

}  // namespace copper
