#include "daemon/supervisor_link.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/read_in_time.hpp"

namespace copper {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t descriptors_max = 3;
constexpr std::chrono::seconds answer_patience{2};

void set_text(Packet& packet, const std::string& text) {
    std::copy_n(text.data(), std::min(text.size(), packet.text.size() - 1), packet.text.data());
}

void send_packet(int socket, const Packet& packet, std::span<const int> descriptors = {}) {
    iovec bytes{.iov_base = const_cast<Packet*>(&packet), .iov_len = sizeof(packet)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(descriptors_max * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    }
    retry_eintr([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

}  // namespace

void SupervisorLink::keep(const HandOver& hand_over, Place place, const std::string& mount) {
    Packet packet{.word = Word::keep, .place = place};
    set_text(packet, mount);
    send_packet(socket_.get(), packet, std::array{hand_over.device.get(), hand_over.memory.get()});
}

bool SupervisorLink::keep(const View& view) {
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return false;
    }
    const UniqueFd answer(ends[0]);
    UniqueFd theirs(ends[1]);
    const std::array descriptors = {theirs.get(), view.mount_namespace.get(), view.user_namespace.get()};
    send_packet(socket_.get(), {.word = Word::keep_view},
                std::span(descriptors).first(view.user_namespace ? 3 : 2));
    theirs.reset();
    std::string heard;
    return read_all(answer.get(), steady_clock::now() + answer_patience, heard) && !heard.empty();
}

void SupervisorLink::hold(int descriptor) {
    send_packet(socket_.get(), {.word = Word::hold}, {&descriptor, 1});
}

void SupervisorLink::begin() {
    send_packet(socket_.get(), {.word = Word::begin});
}

void SupervisorLink::is_alive() {
    send_packet(socket_.get(), {.word = Word::is_alive});
}

void SupervisorLink::launcher_ends(const std::string& why) {
    Packet packet{.word = Word::launcher_ends};
    set_text(packet, why);
    send_packet(socket_.get(), packet);
}

void SupervisorLink::release() {
    send_packet(socket_.get(), {.word = Word::release});
}

void SupervisorLink::dismiss() {
    send_packet(socket_.get(), {.word = Word::dismiss});
}

std::optional<Packet> receive_packet(int socket, std::vector<UniqueFd>& descriptors) {
    Packet packet;
    iovec bytes{.iov_base = &packet, .iov_len = sizeof(packet)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(descriptors_max * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = retry_eintr([&] { return ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC); });
    if (got != sizeof(packet)) {
        return std::nullopt;
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
        std::vector<int> numbers((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        std::memcpy(numbers.data(), CMSG_DATA(header), numbers.size() * sizeof(int));
        descriptors = std::vector<UniqueFd>(numbers.begin(), numbers.end());
    }
    return packet;
}

}  // namespace copper
