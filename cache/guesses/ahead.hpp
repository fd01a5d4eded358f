// What guessers fetch, and how much of it at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/guarded.hpp"
#include "base/trees.hpp"
#include "cache/cache.hpp"
#include "cache/codec.hpp"

namespace copper {

// The files of one guesser.
struct GuessCounters {
    std::atomic<std::uint64_t> fetched = 0;
    std::atomic<std::uint64_t> used = 0;  // of those, by a program
};

// Of the bytes of a file.
struct FileSpan {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

// A file with its first extent.
struct FirstBytes {
    std::string path;
    Attributes attributes;
    ObjectPtr extent;
};

// By its name: libm.so.6, _C.cpython-311-x86_64-linux-gnu.so.
bool is_library(std::string_view name);

// Names and attributes are fetched first, then bytes. What the cache has is answered at once, in the caller's
// thread; otherwise the thread that delivers calls `then`. `then` is not called for what cannot be had, and
// not if too much is queued.
//
// Thread-safe. Owned by all that wait for what it fetches. `cache` and the counters must outlive it.
class Ahead : public std::enable_shared_from_this<Ahead> {
  public:
    static constexpr std::size_t in_flight_max = 24;  // of a node: demand has readers left
    static constexpr std::uint64_t bytes_in_flight_max = 8 * extent_bytes;
    static constexpr std::size_t bytes_looked_at_max = 256U << 10;  // of a file: the progress loop waits
    static constexpr std::size_t queued_max = 4096;
    static constexpr std::uint64_t unused_min = 256;          // files that a guesser may have fetched in vain
    static constexpr std::size_t remembered_max = 1U << 16U;  // files; then all is forgotten

    Ahead(Cache& cache, Trees trees, std::uint64_t file_bytes_max);

    // Names of a directory in the trees that is small enough, on a filesystem that does not answer at once.
    // Otherwise `then` is not called.
    void names(const std::string& directory, std::function<void(const Directory&)> then);
    // The same if the node has them already.
    ObjectPtr known_names(const std::string& directory);

    // Attributes, if there are any.
    void entry(const std::string& path, std::function<void(const Listing::Entry&)> then);

    // The first extent of a file that a guesser expects to be used, following links. Does nothing if too many
    // of the guesser's files were not used.
    void file(const std::string& path, GuessCounters& counters, std::function<void(const FirstBytes&)> then);
    // The bytes of a file of one extent. The caller counts it.
    void small_file(const std::string& path);
    // A program used this file. Returns whether a guesser fetched it by file().
    bool used(const std::string& path);

    // Of a file whose first extent is there. `then` is not called if they cannot be had.
    enum class Needed : std::uint8_t { soon, later };
    void extents(const FirstBytes& file, FileSpan span, Needed needed);
    void bytes(const FirstBytes& file, std::uint64_t offset, std::size_t size,
               std::function<void(std::string_view)> then);
    // The first bytes_looked_at_max of them.
    std::optional<PlainBytes> first_bytes(const FirstBytes& file);

    // False if it was remembered already.
    bool remember(const std::string& what);

  private:
    using Then = std::function<void(const ObjectPtr&)>;
    struct Wish {
        ObjectKey key;
        Then then;
        std::uint64_t bytes = 0;  // of a file
        Needed needed = Needed::soon;
    };
    struct File {
        GuessCounters* guess = nullptr;  // whose
        bool is_used = false;            // perhaps before the guess arrived: that is a hit, too
    };
    struct State {
        std::array<std::deque<Wish>, 3> queues;  // names and attributes; bytes; bytes that are needed later
        std::size_t in_flight = 0;
        std::uint64_t bytes_in_flight = 0;
        std::unordered_map<std::string, File> files;
        std::unordered_set<std::string> remembered;

        File& file(const std::string& path);
    };

    void guessed(const std::string& path, GuessCounters& counters);
    void get(Wish wish);
    void get_extent(const FirstBytes& file, std::uint64_t index, Then then, Needed needed = Needed::soon);
    void pump();
    void done(std::uint64_t bytes);
    std::optional<Wish> take();
    struct Limits {
        std::uint64_t bytes;
        int links;
    };
    void file_at(const std::string& path, Limits limits, std::function<void(const FirstBytes&)> then);

    Cache& cache_;
    const Trees trees_;
    const std::uint64_t file_bytes_max_;
    const std::shared_ptr<ExtentMemory> decoded_ = ExtentMemory::make();
    Guarded<State> state_;
};

}  // namespace copper
