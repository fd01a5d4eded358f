// A network link with a delay between two network namespaces: a TUN device in each of them, and this program
// in between (tuntap.rst of the kernel's documentation). For kernels without netem.
//
//   copper_delay_link PID PID DEVICE MICROSECONDS
//
// PID: a process in each namespace. Says "ready" when both devices are there, and ends when its standard
// input does. Needs root.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t packet_bytes_max = 1 << 16;
constexpr std::size_t packets_max =
    4096;  // on their way in one direction; then they are dropped, as routers do

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

int open_file(const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
    if (fd < 0) {
        fail(path);
    }
    return fd;
}

// Leaves the calling process in the namespace.
int make_device(const std::string& pid, const std::string& name) {
    const int space = open_file("/proc/" + pid + "/ns/net", O_RDONLY);
    if (::setns(space, CLONE_NEWNET) != 0) {
        fail("setns");
    }
    ::close(space);
    const int device = open_file("/dev/net/tun", O_RDWR | O_NONBLOCK);
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    if (::ioctl(device, TUNSETIFF, &request) != 0) {
        fail("TUNSETIFF");
    }
    return device;
}

class Direction {
  public:
    Direction(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

    void take() {
        std::array<char, packet_bytes_max> buffer;
        for (;;) {
            const ssize_t bytes = ::read(from_, buffer.data(), buffer.size());
            if (bytes <= 0) {
                return;
            }
            if (packets_.size() < packets_max) {
                packets_.push_back({Clock::now() + delay_, {buffer.data(), buffer.data() + bytes}});
            }
        }
    }

    void give() {
        for (; !packets_.empty() && packets_.front().due <= Clock::now(); packets_.pop_front()) {
            // A device that is full drops it.
            [[maybe_unused]] const ssize_t bytes =
                ::write(to_, packets_.front().content.data(), packets_.front().content.size());
        }
    }

    Clock::time_point next() const {
        return packets_.empty() ? Clock::time_point::max() : packets_.front().due;
    }

  private:
    struct Packet {
        Clock::time_point due;
        std::vector<char> content;
    };
    const int from_;
    const int to_;
    const Clock::duration delay_;
    std::deque<Packet> packets_;
};

void relay(int one, int other, Clock::duration delay) {
    Direction there(one, other, delay);
    Direction back(other, one, delay);
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        there.give();
        back.give();
        std::array<pollfd, 3> files{{{one, POLLIN, 0}, {other, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
        const auto next = std::min(there.next(), back.next());
        const auto wait = std::max(next - Clock::now(), Clock::duration::zero());
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
        const timespec left{seconds.count(), std::chrono::nanoseconds(wait - seconds).count()};
        const int ready =
            ::ppoll(files.data(), files.size(), next == Clock::time_point::max() ? nullptr : &left, nullptr);
        if (ready < 0 && errno != EINTR) {
            fail("ppoll");
        }
        if (files[2].revents != 0) {
            return;
        }
        there.take();
        back.take();
    }
}

}  // namespace

int main(int count, char** arguments) {
    const std::vector<std::string> words(arguments, arguments + count);
    if (count != 5) {
        std::cerr << "usage: " << words[0] << " PID PID DEVICE MICROSECONDS\n";
        return 2;
    }
    try {
        const int one = make_device(words[1], words[3]);
        const int other = make_device(words[2], words[3]);
        std::cout << "ready" << std::endl;
        relay(one, other, std::chrono::microseconds(std::stol(words[4])));
        return 0;
    } catch (const std::exception& error) {
        std::cerr << words[0] << ": " << error.what() << "\n";
        return 1;
    }
}
