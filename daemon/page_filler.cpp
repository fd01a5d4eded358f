#include "daemon/page_filler.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/answer_in_time.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"

namespace copper {
namespace {

// It takes less, unless it waits for an answer.
constexpr int end_patience_ms = 100;

struct Span {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

// One at a time: programs' requests must not queue behind many of these. The kernel reads a span in the
// background; whoever reads its last byte waits for it.
void fill_span(int file, Span span) {
    const auto offset = static_cast<off_t>(span.offset);
    char last = 0;
    if (span.bytes != 0 && ::readahead(file, offset, span.bytes) == 0) {
        [[maybe_unused]] const auto read =
            ::pread(file, &last, 1, offset + static_cast<off_t>(span.bytes) - 1);
    }
}

// Keeps a directory open as long as there is work: each name on the way would be looked up again.
void fill_pages(int requests) {
    std::string directory_path;
    UniqueFd directory;
    for (;;) {
        pollfd polled{.fd = requests, .events = POLLIN | POLLRDHUP, .revents = 0};
        if (::poll(&polled, 1, 0) == 0) {
            directory.reset();  // the mirror must not look busy
        } else if ((polled.revents & (POLLRDHUP | POLLHUP)) != 0) {
            return;  // whatever it was still told
        }
        Span span;
        std::array<char, path_bytes_max> text;
        std::array<iovec, 2> parts = {{{&span, sizeof span}, {text.data(), text.size()}}};
        const auto got = retry_eintr([&] { return ::readv(requests, parts.data(), parts.size()); });
        if (got <= static_cast<ssize_t>(sizeof span)) {
            return;
        }
        const std::string path(text.data(), static_cast<std::size_t>(got) - sizeof span);
        if (!directory || directory_path != parent_path(path)) {
            directory_path = parent_path(path);
            directory = UniqueFd(::open(directory_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        }
        const UniqueFd file(::openat(directory.get(), std::string(base_name(path)).c_str(),
                                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        if (file) {
            fill_span(file.get(), span);
        }
    }
}

}  // namespace

PageFiller PageFiller::start() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return {};
    }
    PageFiller filler;
    filler.requests_ = UniqueFd(ends[0]);
    UniqueFd others(ends[1]);
    const bool begun = run_detached([&others] {
        ::prctl(PR_SET_NAME, "copperd-pages");
        close_descriptors_except({others.get()});
        const pid_t self = ::getpid();
        if (::send(others.get(), &self, sizeof self, MSG_NOSIGNAL) == sizeof self) {
            fill_pages(others.get());
        }
    });
    others.reset();
    pid_t process = 0;
    if (!begun || retry_eintr([&] { return ::read(ends[0], &process, sizeof process); }) !=
                      static_cast<ssize_t>(sizeof process)) {
        return {};
    }
    filler.process_ = process;
    return filler;
}

void PageFiller::end() {
    if (requests_) {
        ::shutdown(requests_.get(), SHUT_WR);
        pollfd ended{.fd = requests_.get(), .events = POLLIN, .revents = 0};
        retry_eintr([&] { return ::poll(&ended, 1, end_patience_ms); });
        requests_.reset();
    }
}

void PageFiller::fill(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
    if (!requests_) {
        return;
    }
    const Span span{.offset = offset, .bytes = bytes};
    const std::string request = std::string(reinterpret_cast<const char*>(&span), sizeof span) + path;
    ::send(requests_.get(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace copper
