// Serves the control protocol (control.hpp) of this node.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tl/expected.hpp>

#include "base/clock.hpp"
#include "base/guarded.hpp"
#include "base/unique_fd.hpp"
#include "daemon/control/control.hpp"

namespace copper {

// Has one thread, which never waits for a client: the time, bytes and places of each client are limited.
class ControlServer {
  public:
    // Makes a reply, in the server's thread: putting together the answers of thousands of nodes takes long.
    using MakeReply = std::function<ControlReply()>;
    // Call it from any thread, once. Later calls, and calls for a client that is gone, do nothing.
    using Reply = std::function<void(MakeReply)>;
    // Runs in the server's thread. Must not block.
    using Handler = std::function<void(ControlRequest, Reply)>;

    struct Options {
        std::string socket_path;  // in a directory that only this user can enter
        std::size_t clients_max = 64;
        std::chrono::milliseconds request_time_max{5000};
        // For taking a reply, or for waiting longer than its own patience.
        std::chrono::milliseconds reply_time_max{10000};
        std::chrono::milliseconds closing_time_max{2000};  // for unfinished replies when the server closes
    };
    static tl::expected<std::unique_ptr<ControlServer>, std::string> start(Options options, Handler handler);

    // Accepts no more clients, finishes the replies that are ready, and ends.
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

  private:
    enum class Stage { requesting, waiting, replying };
    struct Client {
        UniqueFd fd;
        Stage stage = Stage::requesting;
        std::string text;      // of the request as received so far; later of the reply
        std::size_t sent = 0;  // bytes of the reply
        TimePoint deadline;
    };
    // Shared with the Replies, which can outlive the server.
    struct Mailbox {
        struct Letters {
            std::vector<std::pair<std::uint64_t, MakeReply>> replies;
            bool closing = false;
        };
        UniqueFd wake;
        Guarded<Letters> letters;
    };

    ControlServer(Options options, Handler handler, UniqueFd listener);
    void serve();
    void poll_once();
    int poll_timeout_ms() const;
    void accept_client();
    bool is_trusted(int fd) const;
    void take_letters();
    // These functions return false when the client is finished.
    bool advance(std::uint64_t id, Client& client, short events);
    bool read_request(std::uint64_t id, Client& client);
    bool start_request(std::uint64_t id, Client& client);
    bool write_reply(Client& client);
    void set_reply(Client& client, std::string line);
    void drop_late(TimePoint now);
    bool is_finished() const;

    const Options options_;
    const Handler handler_;
    const std::shared_ptr<Mailbox> mailbox_;
    UniqueFd listener_;
    std::map<std::uint64_t, Client> clients_;
    std::uint64_t next_id_ = 1;
    bool closing_ = false;
    TimePoint closing_deadline_;
    std::thread thread_;
};

}  // namespace copper
