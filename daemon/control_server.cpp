#include "daemon/control_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <limits>
#include <system_error>

#include "base/error_text.hpp"

namespace copper {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

tl::unexpected<std::string> failure(const std::string& path) {
    return tl::make_unexpected(path + ": " + error_text());
}

tl::expected<UniqueFd, std::string> listen_at(const std::string& path, std::size_t clients_max) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        return tl::make_unexpected(path + ": too long for a socket's name");
    }
    path.copy(address.sun_path, path.size());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(fd.get(), static_cast<int>(clients_max)) != 0) {
        return failure(path);
    }
    return fd;
}

std::string refusal(std::string why) {
    return to_line(ControlReply{.job = {}, .nodes = 0, .parts = {}, .error = std::move(why)});
}

}  // namespace

tl::expected<std::unique_ptr<ControlServer>, std::string> ControlServer::start(Options options,
                                                                               Handler handler) {
    auto listener = listen_at(options.socket_path, options.clients_max);
    if (!listener) {
        return tl::make_unexpected(listener.error());
    }
    std::unique_ptr<ControlServer> server(
        new ControlServer(std::move(options), std::move(handler), std::move(*listener)));
    if (!server->mailbox_->wake) {
        return failure("eventfd");
    }
    server->thread_ = std::thread([running = server.get()] { running->serve(); });
    return server;
}

ControlServer::ControlServer(Options options, Handler handler, UniqueFd listener)
    : options_(std::move(options)),
      handler_(std::move(handler)),
      mailbox_(std::make_shared<Mailbox>()),
      listener_(std::move(listener)) {
    mailbox_->wake = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

ControlServer::~ControlServer() {
    if (thread_.joinable()) {
        mailbox_->letters.lock()->closing = true;
        ::eventfd_write(mailbox_->wake.get(), 1);
        thread_.join();
    }
}

void ControlServer::serve() {
    while (!is_finished()) {
        poll_once();
    }
}

bool ControlServer::is_finished() const {
    return closing_ && (clients_.empty() || SteadyClock::now() >= closing_deadline_);
}

int ControlServer::poll_timeout_ms() const {
    auto next = closing_ ? closing_deadline_ : TimePoint::max();
    for (const auto& [id, client] : clients_) {
        next = std::min(next, client.deadline);
    }
    if (next == TimePoint::max()) {
        return -1;
    }
    const auto left = std::chrono::ceil<milliseconds>(next - SteadyClock::now()).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, std::numeric_limits<int>::max()));
}

void ControlServer::poll_once() {
    std::vector<pollfd> polled = {{.fd = mailbox_->wake.get(), .events = POLLIN, .revents = 0}};
    // When all places are taken, callers wait in the listen queue.
    const bool accepting = !closing_ && clients_.size() < options_.clients_max;
    polled.push_back({.fd = accepting ? listener_.get() : -1, .events = POLLIN, .revents = 0});
    std::vector<std::uint64_t> ids;
    for (const auto& [id, client] : clients_) {
        // For a waiting client, only hanging up matters; poll always reports that.
        const short events = client.stage == Stage::requesting ? POLLIN
                             : client.stage == Stage::replying ? POLLOUT
                                                               : 0;
        polled.push_back({.fd = client.fd.get(), .events = events, .revents = 0});
        ids.push_back(id);
    }
    retry_eintr([&] { return ::poll(polled.data(), polled.size(), poll_timeout_ms()); });
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const short events = polled[i + 2].revents;
        if (events != 0 && !advance(ids[i], clients_.at(ids[i]), events)) {
            clients_.erase(ids[i]);
        }
    }
    drop_late(SteadyClock::now());
    if (polled[0].revents != 0) {
        take_letters();
    }
    if (polled[1].revents != 0) {
        accept_client();
    }
}

// The mode of the directory keeps others out already. This check holds even if somebody changes the mode.
bool ControlServer::is_trusted(int fd) const {
    ucred peer = {};
    socklen_t size = sizeof(peer);
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == ::geteuid() || peer.uid == 0);
}

void ControlServer::accept_client() {
    UniqueFd fd(retry_eintr(
        [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
    if (!fd) {
        return;
    }
    if (!is_trusted(fd.get())) {
        const std::string line = refusal("this daemon serves user " + std::to_string(::geteuid()) + " only");
        retry_eintr([&] { return ::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL); });
        return;
    }
    clients_.emplace(next_id_++, Client{.fd = std::move(fd),
                                        .stage = Stage::requesting,
                                        .text = {},
                                        .sent = 0,
                                        .deadline = SteadyClock::now() + options_.request_time_max});
}

void ControlServer::take_letters() {
    eventfd_t count = 0;
    ::eventfd_read(mailbox_->wake.get(), &count);
    std::vector<std::pair<std::uint64_t, MakeReply>> replies;
    {
        auto letters = mailbox_->letters.lock();
        replies.swap(letters->replies);
        if (letters->closing && !closing_) {
            closing_ = true;
            closing_deadline_ = SteadyClock::now() + options_.closing_time_max;
        }
    }
    for (const auto& [id, make] : replies) {
        const auto client = clients_.find(id);
        if (client != clients_.end() && client->second.stage == Stage::waiting) {
            set_reply(client->second, to_line(make()));
        }
    }
    if (closing_) {
        listener_.reset();
        std::erase_if(clients_, [](const auto& entry) { return entry.second.stage != Stage::replying; });
    }
}

void ControlServer::set_reply(Client& client, std::string line) {
    client.stage = Stage::replying;
    client.text =
        line.size() <= control_reply_bytes_max ? std::move(line) : refusal("the answer is too long");
    client.deadline = SteadyClock::now() + options_.reply_time_max;
}

bool ControlServer::advance(std::uint64_t id, Client& client, short events) {
    switch (client.stage) {
        case Stage::requesting:
            return read_request(id, client);
        case Stage::replying:
            return write_reply(client);
        case Stage::waiting:
            return (events & (POLLHUP | POLLERR)) == 0;
    }
    return false;
}

bool ControlServer::read_request(std::uint64_t id, Client& client) {
    std::array<char, 4096> buffer;
    const ssize_t got = retry_eintr([&] { return ::recv(client.fd.get(), buffer.data(), buffer.size(), 0); });
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
    client.text.append(buffer.data(), static_cast<std::size_t>(got));
    if (client.text.size() > control_request_bytes_max) {
        set_reply(client, refusal("the request is too long"));
        return true;
    }
    const auto end = client.text.find('\n');
    if (end != std::string::npos) {
        client.text.resize(end);
        return start_request(id, client);
    }
    return true;
}

bool ControlServer::start_request(std::uint64_t id, Client& client) {
    auto request = parse_request(client.text);
    client.text.clear();
    if (!request) {
        set_reply(client, refusal(request.error()));
        return true;
    }
    client.stage = Stage::waiting;
    client.deadline = SteadyClock::now() + request->patience + options_.reply_time_max;
    handler_(std::move(*request), [mailbox = mailbox_, id](MakeReply make) {
        mailbox->letters.lock()->replies.emplace_back(id, std::move(make));
        ::eventfd_write(mailbox->wake.get(), 1);
    });
    return true;
}

bool ControlServer::write_reply(Client& client) {
    const std::string_view rest = std::string_view(client.text).substr(client.sent);
    const ssize_t sent =
        retry_eintr([&] { return ::send(client.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL); });
    if (sent < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    client.sent += static_cast<std::size_t>(sent);
    return client.sent < client.text.size();
}

void ControlServer::drop_late(TimePoint now) {
    std::erase_if(clients_, [now](const auto& entry) { return now >= entry.second.deadline; });
}

}  // namespace copper
