// Our broadcast beside MPI_Bcast, of the same bytes between the same ranks in the same run:
//
//   mpirun -n 4 build/bench/copper_bcast [--runs N] [--arity K] [--mpi-only] [BYTES...]
//
// Each rank runs what a daemon runs below its mount: cache, Mover, wire format and MPI fabric; the reader
// "reads" from memory. A file of BYTES is broadcast, and the time is that until the last rank has verified
// all of it. Three ways, interleaved:
//   MPI     MPI_Bcast into memory that has been used before
//   pushed  only the reader asks; the others get what is broadcast
//   asked   all ranks ask at the same time, extent after extent with a window of read-ahead, as an
//           application on each node does; nothing is sent to a rank that has not asked
// Prints the medians, and their ratios to MPI_Bcast; with --mpi-only the median of that alone, in seconds.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.hpp"
#include "collectives/mover.hpp"
#include "fabric/mpi/mpi_fabric.hpp"
#include "tests/support/drop.hpp"
#include "wire/wire.hpp"

namespace copper {
namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint64_t largest = 256U << 20;
constexpr std::uint32_t window_extents = 16;

// Files of any size that exist in memory already.
class MemoryStore {
  public:
    explicit MemoryStore(std::uint64_t bytes) {
        auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
        std::mt19937_64 random(1);
        for (std::uint64_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
            const std::uint64_t word = random();
            std::memcpy(memory.get() + at, &word, sizeof(word));
        }
        memory_ = std::move(memory);
    }

    ObjectPtr read(const ObjectKey& key) const {
        const std::uint64_t size = key.version;
        const std::uint64_t offset = key.index * extent_bytes;
        Blob blob{{memory_, memory_.get() + offset}, std::min(extent_bytes, size - offset)};
        blob.checksum = checksum_of(blob.span());  // once, as the thread that reads a file does
        return make_object(Extent{.attributes = {.size = size}, .blob = std::move(blob)});
    }

  private:
    std::shared_ptr<const std::byte[]> memory_;
};

enum class Way { pushed, asked };

Spreading::Options spreading_of(Way way) {
    if (way == Way::asked) {
        return {.push = Push::never};
    }
    // Nodes that do not ask must not be passed over.
    return {.push = Push::always,
            .backlog_bytes_max = ~std::uint64_t{0},
            .total_backlog_bytes_max = ~std::uint64_t{0}};
}

class Rig final : private Mover::Effects {
  public:
    Rig(Fabric& fabric, const MemoryStore& store, Way way, std::size_t arity)
        : way_(way),
          fabric_(fabric),
          store_(store),
          cache_({.budget_bytes = 2 * largest},
                 [this](const ObjectKey& key, FetchFor) {
                     if (asks_) {
                         wanted_.push_back(key);
                     }
                 }),
          membership_({.size = fabric.size(), .self = fabric.self(), .arity = arity, .readers = 1}),
          mover_({.spreading = spreading_of(way)}, trees_, membership_, *this) {}

    Rank reader() const { return membership_.readers().front(); }

    Seconds run(std::uint64_t bytes) {
        key_ = {.kind = ObjectKind::extent, .path = "/bench/" + std::to_string(++files_), .version = bytes};
        extents_ = static_cast<std::uint32_t>(extents_of(bytes));
        asks_ = way_ == Way::asked || fabric_.self() == reader();
        next_ = 0;
        done_ = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        const auto start = SteadyClock::now();
        // Whoever does not ask waits for everything.
        for (std::uint32_t i = 0; i < (asks_ ? window_extents : extents_); ++i) {
            get_next();
        }
        progress_until([this] { return done_ == extents_ && fabric_.flushed(); });
        // The others may still want something of this rank.
        MPI_Request all_done = MPI_REQUEST_NULL;
        MPI_Ibarrier(MPI_COMM_WORLD, &all_done);
        progress_until([&all_done] {
            int done = 0;
            MPI_Test(&all_done, &done, MPI_STATUS_IGNORE);
            return done != 0;
        });
        for (key_.index = 0; key_.index < extents_; ++key_.index) {
            test::drop(cache_, key_);
        }
        return finished_ - start;
    }

  private:
    void get_next() {
        if (next_ == extents_) {
            return;
        }
        key_.index = next_++;
        cache_.get(key_, [this](const ObjectPtr& object) {
            if (object->extent() == nullptr) {
                std::fprintf(stderr, "copper_bcast: an extent is missing\n");
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            if (++done_ == extents_) {
                finished_ = SteadyClock::now();
            } else if (asks_) {
                get_next();
            }
        });
    }

    template <typename Condition>
    void progress_until(Condition condition) {
        while (!condition()) {
            const auto now = SteadyClock::now();
            mover_.backlog_shrank(now);
            while (!wanted_.empty()) {
                mover_.want(std::exchange(wanted_.front(), {}), FetchFor::demand, now);
                wanted_.pop_front();
            }
            while (!reads_.empty()) {
                const ObjectKey key = reads_.front();
                reads_.pop_front();
                mover_.read_done(key, store_.read(key), now);
            }
            const bool moved =
                fabric_.progress([this](Rank from, const Frame& frame) { receive(from, frame); },
                                 [](Rank) { MPI_Abort(MPI_COMM_WORLD, 1); });
            if (!moved && wanted_.empty()) {
                ::sched_yield();
            }
        }
    }

    void receive(Rank from, const Frame& frame) {
        const auto message = decode(frame);
        const auto now = SteadyClock::now();
        if (!message) {
            std::fprintf(stderr, "copper_bcast: %s\n", message.error().reason.c_str());
            MPI_Abort(MPI_COMM_WORLD, 1);
        } else if (const auto* interest = std::get_if<Interest>(&*message)) {
            mover_.receive(from, *interest, now);
        } else if (const auto* publication = std::get_if<Publication>(&*message)) {
            mover_.receive(from, *publication, now);
        }
    }

    // Mover::Effects
    ObjectPtr find(const ObjectKey& key) override { return cache_.find(key); }
    void deliver(const ObjectKey& key, const ObjectPtr& object) override { cache_.deliver(key, object); }
    std::uint64_t backlog_bytes(Rank to) override { return fabric_.backlog_bytes(to); }
    std::uint64_t backlog_bytes() override { return fabric_.backlog_bytes(); }
    void read(const ObjectKey& key) override { reads_.push_back(key); }
    TimePoint latest_call(const ObjectKey&) override { return {}; }
    std::string filesystem_of(const std::string&) override { return "/"; }
    void send(std::span<const Rank> to, const Message& message) override {
        const Frame frame = encode(message);
        for (const Rank rank : to) {
            fabric_.send(rank, frame);
        }
    }

    const Way way_;
    const Trees trees_{{"/bench"}};
    Fabric& fabric_;
    const MemoryStore& store_;
    Cache cache_;
    Membership membership_;
    Mover mover_;
    bool asks_ = true;
    ObjectKey key_;
    std::uint32_t files_ = 0;
    std::uint32_t extents_ = 0;
    std::uint32_t next_ = 0;
    std::uint32_t done_ = 0;
    std::deque<ObjectKey> wanted_;
    std::deque<ObjectKey> reads_;
    SteadyClock::time_point finished_;
};

Seconds run_mpi(std::vector<std::byte>& buffer, std::uint64_t bytes, int root) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = SteadyClock::now();
    MPI_Bcast(buffer.data(), static_cast<int>(bytes), MPI_BYTE, root, MPI_COMM_WORLD);
    return SteadyClock::now() - start;
}

// Of the slowest rank.
double slowest(Seconds time) {
    double seconds = time.count();
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

int run(int argc, char** argv) {
    std::vector<std::uint64_t> sizes;
    std::size_t runs = 9;
    std::size_t arity = Membership::Options{}.arity;
    bool mpi_only = false;
    for (int i = 1; i < argc; ++i) {
        if (argv[i] == std::string("--runs") && i + 1 < argc) {
            runs = std::strtoul(argv[++i], nullptr, 10);
        } else if (argv[i] == std::string("--arity") && i + 1 < argc) {
            arity = std::strtoul(argv[++i], nullptr, 10);
        } else if (argv[i] == std::string("--mpi-only")) {
            mpi_only = true;
        } else {
            sizes.push_back(std::strtoull(argv[i], nullptr, 10));
        }
    }
    if (sizes.empty()) {
        sizes = {64, 512, 4096, 32768, 262144, 1U << 20, 8U << 20, 64U << 20, largest};
    }
    auto fabric = MpiFabric::start({});
    if (!fabric) {
        std::fprintf(stderr, "copper_bcast: %s\n", fabric.error().c_str());
        return 1;
    }
    const bool speaks = (*fabric)->self() == Rank{0};
    MemoryStore store(largest);
    std::vector<std::byte> buffer(largest);
    auto pushing = std::make_unique<Rig>(**fabric, store, Way::pushed, arity);
    auto asking = std::make_unique<Rig>(**fabric, store, Way::asked, arity);
    const int root = static_cast<int>(pushing->reader().value);
    if (speaks && !mpi_only) {
        std::printf("| ranks |     bytes | MPI_Bcast us | pushed us | asked us | pushed/MPI | asked/MPI |\n");
        std::printf("|---|---|---|---|---|---|---|\n");
    }
    for (const std::uint64_t bytes : sizes) {
        std::vector<double> mpi;
        std::vector<double> pushed;
        std::vector<double> asked;
        for (std::size_t i = 0; i <= runs; ++i) {
            const double one_mpi = slowest(run_mpi(buffer, bytes, root));
            const double one_pushed = mpi_only ? 0 : slowest(pushing->run(bytes));
            const double one_asked = mpi_only ? 0 : slowest(asking->run(bytes));
            if (i > 0) {  // the first warms up
                mpi.push_back(one_mpi);
                pushed.push_back(one_pushed);
                asked.push_back(one_asked);
            }
        }
        if (speaks && mpi_only) {
            std::printf("%.6f\n", median(mpi));
        } else if (speaks) {
            const double m = median(mpi) * 1e6;
            const double p = median(pushed) * 1e6;
            const double a = median(asked) * 1e6;
            std::printf("| %5u | %9llu | %12.1f | %9.1f | %8.1f | %10.2f | %9.2f |\n", (*fabric)->size(),
                        static_cast<unsigned long long>(bytes), m, p, a, p / m, a / m);
            std::fflush(stdout);
        }
    }
    pushing.reset();
    asking.reset();
    (*fabric)->finish(MpiFabric::Ending::together);
    return 0;
}

}  // namespace
}  // namespace copper

int main(int argc, char** argv) {
    return copper::run(argc, argv);
}
