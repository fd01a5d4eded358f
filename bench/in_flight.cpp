// Asks for the attributes of all files of a directory, a number of them at a time: from threads, or through
// io_uring(7). Prints the seconds, and the processor time of this process and of the kernel for it.
// bench/in_flight.py runs it on an emulated filesystem.
#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Paths = std::vector<std::string>;

// Both return how many could not be had.
std::size_t by_threads(const Paths& paths, unsigned threads) {
    std::atomic<std::size_t> next = 0, failed = 0;
    const auto work = [&] {
        struct statx found;
        for (std::size_t at = next++; at < paths.size(); at = next++) {
            failed +=
                ::statx(AT_FDCWD, paths[at].c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &found) != 0 ? 1
                                                                                                          : 0;
        }
    };
    std::vector<std::jthread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back(work);
    }
    running.clear();
    return failed;
}

std::size_t by_ring(const Paths& paths, unsigned in_flight) {
    io_uring ring;
    if (::io_uring_queue_init(in_flight, &ring, 0) < 0) {
        return paths.size();
    }
    std::vector<struct statx> found(in_flight);
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < in_flight; ++i) {
        free.push_back(i);
    }
    std::size_t failed = 0;
    for (std::size_t next = 0, done = 0; done < paths.size(); ++done) {
        for (; !free.empty() && next < paths.size(); ++next) {
            io_uring_sqe* const entry = ::io_uring_get_sqe(&ring);
            ::io_uring_prep_statx(entry, AT_FDCWD, paths[next].c_str(), AT_SYMLINK_NOFOLLOW,
                                  STATX_BASIC_STATS, &found[free.back()]);
            ::io_uring_sqe_set_data64(entry, free.back());
            free.pop_back();
        }
        ::io_uring_submit(&ring);
        io_uring_cqe* ended = nullptr;
        if (::io_uring_wait_cqe(&ring, &ended) < 0) {
            return paths.size();
        }
        failed += ended->res != 0 ? 1 : 0;
        free.push_back(::io_uring_cqe_get_data64(ended));
        ::io_uring_cqe_seen(&ring, ended);
    }
    ::io_uring_queue_exit(&ring);
    return failed;
}

double processor_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

int main(int count, char** words) {
    unsigned in_flight = 0;
    const std::string_view way = count == 4 ? words[2] : "";
    const std::string_view number = count == 4 ? words[3] : "";
    std::from_chars(number.data(), number.data() + number.size(), in_flight);
    if (in_flight < 1 || in_flight > 4096 || (way != "threads" && way != "ring")) {
        std::fputs("usage: copper_in_flight DIRECTORY threads|ring NUMBER\n", stderr);
        return 2;
    }
    Paths paths;
    for (const auto& entry : std::filesystem::directory_iterator(words[1])) {
        paths.push_back(entry.path());
    }
    const auto began = std::chrono::steady_clock::now();
    const std::size_t failed = way == "ring" ? by_ring(paths, in_flight) : by_threads(paths, in_flight);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    if (failed != 0) {
        std::fprintf(stderr, "copper_in_flight: %zu of %zu failed\n", failed, paths.size());
        return 1;
    }
    std::printf("%.3f %.3f\n", seconds.count(), processor_seconds());
}
