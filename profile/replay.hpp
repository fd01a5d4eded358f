// Fetches objects ahead of the programs that will use them: those of a profile, or everything below a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>

#include "cache/cache.hpp"
#include "profile/profile.hpp"
#include "profile/use_log.hpp"

namespace copper {

// One node of a job replays; the objects go to all nodes (FetchFor::everyone), each from its own reader. A
// bounded number is in flight, in the order of the profile.
//
// A program that the profile does not foretell ends the replay: what is not used costs the filesystem as much
// as what is.
//
// Not thread-safe: one thread calls its methods, and `later` runs functions in that thread. (Any thread may
// make the replay of a large profile, which takes long.) What is in flight when it is destroyed is fetched,
// and nothing more.
class Replay {
  public:
    struct Options {
        std::size_t in_flight_max = 32;
        std::uint64_t bytes_in_flight_max = std::uint64_t{32} << 20;  // of file data
        std::uint64_t bytes_max = UINT64_MAX;                         // of file data, altogether
        std::function<bool(std::uint64_t bytes)> has_room = nullptr;  // for these besides; null: always
        std::uint64_t file_bytes_max = UINT64_MAX;  // each node reads larger files for itself
        // Judge after so many first uses of programs of this node; most of them must have been foretold.
        std::size_t uses_to_judge = 64;
    };
    using Task = std::function<void()>;
    using Later = std::function<void(Task)>;  // callable from any thread

    enum class State : std::uint8_t {
        running,
        done,
        wrong,  // programs use something else
        full,   // bytes_max has been reached, or there is no room
    };
    struct Progress {
        State state = State::running;
        std::uint64_t fetched = 0;  // objects
        std::uint64_t bytes = 0;    // of file data
        std::uint64_t failed = 0;   // objects that are not there (any more), or could not be read
        std::uint64_t left = 0;     // objects that are known to follow
        // First uses by programs of this node since the replay began: of its objects, and of others.
        std::uint64_t foretold = 0;
        std::uint64_t unforeseen = 0;
        int error = 0;  // the errno value of the first failure; 0: none
    };

    // `cache` must outlive this object, and what is in flight. So must `log`. Begins by way of `later`.
    static std::unique_ptr<Replay> of_profile(Cache& cache, Options options, Later later,
                                              const Profile& profile, const UseLog& log);
    // The path and everything below it, for all nodes.
    static std::unique_ptr<Replay> of_path(Cache& cache, Options options, Later later, std::string path);
    ~Replay();

    // Up to date at each call.
    Progress progress();

  private:
    struct Fetcher;
    explicit Replay(std::shared_ptr<Fetcher> fetcher) : fetcher_(std::move(fetcher)) {}

    const std::shared_ptr<Fetcher> fetcher_;  // also of what is in flight
};

const char* to_string(Replay::State state);

}  // namespace copper
