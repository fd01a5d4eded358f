// What the parts of a request cost by themselves: build/bench/copper_micro [--benchmark_filter=REGEX]
#include <benchmark/benchmark.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "base/path.hpp"
#include "base/trees.hpp"
#include "base/unique_fd.hpp"
#include "cache/cache.hpp"
#include "cache/codec.hpp"
#include "cache/entry_resolver.hpp"
#include "collectives/topology.hpp"
#include "fabric/envelope.hpp"
#include "wire/wire.hpp"

namespace copper {
namespace {

ObjectPtr listing_of(std::size_t entries) {
    std::vector<Listing::NewEntry> names;
    for (std::size_t i = 0; i < entries; ++i) {
        names.push_back({"module" + std::to_string(i) + ".py", {}, {.inode = i}});
    }
    return make_object(Listing(std::move(names), Listing::Detail::attributes));
}

std::vector<ObjectKey> keys_of(int thread) {
    std::vector<ObjectKey> keys;
    const std::string directory =
        "/lus/sw/lib/python3.11/site-packages/package" + std::to_string(thread) + '/';
    for (int i = 0; i < 4096; ++i) {
        keys.push_back({.kind = ObjectKind::directory, .path = directory + std::to_string(i)});
    }
    return keys;
}

Cache cache({.budget_bytes = std::uint64_t{1} << 30}, [](const ObjectKey&, FetchFor) {});

void cache_insert(benchmark::State& state) {  // each thread its own keys
    const auto keys = keys_of(state.thread_index());
    const ObjectPtr object = listing_of(1);
    std::size_t i = 0;
    for (auto _ : state) {
        cache.deliver(keys[i++ % keys.size()], object);
    }
}
BENCHMARK(cache_insert)->ThreadRange(1, 8)->UseRealTime();

void cache_lookup(benchmark::State& state) {  // all threads the same keys
    const auto keys = keys_of(0);
    for (const ObjectKey& key : keys) {
        cache.deliver(key, listing_of(1));
    }
    auto i = static_cast<std::size_t>(state.thread_index()) * 511;
    for (auto _ : state) {
        cache.get(keys[i++ % keys.size()], [](const ObjectPtr& object) {
            const Object* found = object.get();
            benchmark::DoNotOptimize(found);
        });
    }
}
BENCHMARK(cache_lookup)->ThreadRange(1, 8)->UseRealTime();

// What bench/scale takes for a request that a node's cache answers, besides the kernel's part: looking a name
// up, and handing over a part of a file. Its bytes go to pages of a memfd here, as they do to those of a file
// in a mirror.
void hit_lookup(benchmark::State& state) {
    static const Trees trees({"/lus"});
    const auto keys = keys_of(0);
    std::vector<Listing::NewEntry> names;
    for (const ObjectKey& key : keys) {
        names.push_back({std::string(base_name(key.path)), {}, {.mode = S_IFREG | 0644U}});
        cache.deliver({.kind = ObjectKind::entry, .path = key.path},
                      make_object(Listing({names.back()}, Listing::Detail::attributes)));
    }
    const std::string directory(parent_path(keys.front().path));
    Directory listed;
    listed.entries = names.size();
    listed.names = Listing(names, Listing::Detail::names_only);
    cache.deliver({.kind = ObjectKind::directory, .path = directory}, make_object(std::move(listed)));
    EntryResolver entries(cache, trees);
    std::size_t i = 0;
    for (auto _ : state) {
        entries.resolve(directory, names[i++ % names.size()].name, [](const Resolution& resolution) {
            bool is_there = resolution.found && resolution.found->has_value();
            benchmark::DoNotOptimize(is_there);
        });
    }
}
BENCHMARK(hit_lookup);

void hit_read(benchmark::State& state) {
    const auto bytes = static_cast<std::size_t>(state.range());
    const ObjectKey key{ObjectKind::extent, "/lus/sw/lib/libtorch.so", 1};
    cache.deliver(key, make_object(Extent{{}, copy_to_blob(std::vector<std::byte>(bytes))}));
    const UniqueFd pages(::memfd_create("pages", 0));
    for (auto _ : state) {
        cache.get(key, [&](const ObjectPtr& object) {
            const Blob& blob = object->extent()->blob;
            benchmark::DoNotOptimize(::pwrite(pages.get(), blob.data.get(), blob.size, 0));
            benchmark::DoNotOptimize(::ftruncate(pages.get(), 0));
        });
    }
    state.SetBytesProcessed(state.iterations() * state.range());
}
BENCHMARK(hit_read)->Arg(4 << 10)->Arg(128 << 10)->Arg(extent_bytes);

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t size) {
    std::mt19937_64 random(1);
    Bytes bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return std::byte(random()); });
    return bytes;
}

// This program, again and again: what is in a shared library.
Bytes machine_code(std::size_t size) {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const std::string code(std::istreambuf_iterator<char>(file), {});
    Bytes bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&, i = std::size_t{0}]() mutable {
        return static_cast<std::byte>(code[i++ % code.size()]);
    });
    return bytes;
}

void codec_code(benchmark::State& state, Bytes (*make)(std::size_t)) {
    const Bytes plain = make(extent_bytes);
    std::optional<Blob> coded;
    for (auto _ : state) {
        coded = lz4_coded(plain);
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(plain.size()));
    state.counters["coded_bytes"] = static_cast<double>(coded ? coded->size : plain.size());
}
BENCHMARK_CAPTURE(codec_code, machine_code, machine_code);
BENCHMARK_CAPTURE(codec_code, random, random_bytes);

void codec_decode(benchmark::State& state) {
    const Extent extent{{}, lz4_coded(machine_code(extent_bytes)).value(), Coding::lz4, extent_bytes};
    const auto memory = ExtentMemory::make();
    for (auto _ : state) {
        benchmark::DoNotOptimize(read_plain(extent, 0, static_cast<std::size_t>(state.range()), *memory));
    }
    state.SetBytesProcessed(state.iterations() * state.range());
}
BENCHMARK(codec_decode)->Arg(128 << 10)->Arg(extent_bytes);

void checksum(benchmark::State& state) {
    const Bytes bytes = random_bytes(extent_bytes);
    for (auto _ : state) {
        benchmark::DoNotOptimize(checksum_of(bytes));
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(checksum);

Message publication_of(std::int64_t bytes) {  // an extent; 0: a small listing
    Blob blob = copy_to_blob(random_bytes(static_cast<std::size_t>(bytes)));
    blob.checksum = checksum_of(blob.span());  // as who read the file leaves it
    const ObjectPtr object = bytes == 0 ? listing_of(50) : make_object(Extent{{}, std::move(blob)});
    return Publication{.key = {bytes == 0 ? ObjectKind::batch : ObjectKind::extent, "/lus/sw/lib/x"},
                       .root = {},
                       .lane = Lane::bulk,
                       .object = object};
}

void wire_encode(benchmark::State& state) {
    const Message message = publication_of(state.range());
    for (auto _ : state) {
        benchmark::DoNotOptimize(encode(message));
    }
}
BENCHMARK(wire_encode)->Arg(0)->Arg(64 << 10)->Arg(extent_bytes);

void wire_decode(benchmark::State& state) {  // and verify
    const Frame frame = encode(publication_of(state.range()));
    for (auto _ : state) {
        benchmark::DoNotOptimize(decode(frame));
    }
}
BENCHMARK(wire_decode)->Arg(0)->Arg(64 << 10)->Arg(extent_bytes);

// What a message of one frame costs besides: its envelope, and the tag where the job has a key.
const Frame small_frame =
    encode(Interest{.key = {ObjectKind::directory, "/lus/sw/lib/python3.11/site-packages"}});

void envelope_seal(benchmark::State& state, bool has_key) {
    const Sealer sealer(has_key ? std::optional(JobKey::random()) : std::nullopt);
    std::vector<std::byte> message;
    for (std::uint64_t number = 0; auto _ : state) {
        sealer.seal({.from = Rank{1}, .to = Rank{2}, .number = ++number}, {&small_frame, 1}, message);
        benchmark::DoNotOptimize(message.data());
    }
    state.counters["header_bytes"] = static_cast<double>(small_frame.header.size);
}
BENCHMARK_CAPTURE(envelope_seal, without_key, false);
BENCHMARK_CAPTURE(envelope_seal, with_key, true);

void envelope_check(benchmark::State& state, bool has_key) {
    const Sealer sealer(has_key ? std::optional(JobKey::random()) : std::nullopt);
    std::vector<std::byte> message;
    sealer.seal({.from = Rank{1}, .to = Rank{2}}, {&small_frame, 1}, message);
    for (auto _ : state) {
        benchmark::DoNotOptimize(sealer.is_sealed({.from = Rank{1}, .to = Rank{2}}, message));
    }
}
BENCHMARK_CAPTURE(envelope_check, without_key, false);
BENCHMARK_CAPTURE(envelope_check, with_key, true);

// What a MAC of whole bodies would cost.
void poly1305(benchmark::State& state) {
    const Bytes bytes = random_bytes(extent_bytes);
    std::array<unsigned char, crypto_onetimeauth_poly1305_BYTES> tag;
    std::array<unsigned char, crypto_onetimeauth_poly1305_KEYBYTES> key = {};
    for (auto _ : state) {
        crypto_onetimeauth_poly1305(tag.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                                    bytes.size(), key.data());
        benchmark::DoNotOptimize(tag);
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(poly1305);

void checksum_keyed(benchmark::State& state) {
    key_checksums(JobKey::random());
    checksum(state);
    key_checksums(std::nullopt);
}
BENCHMARK(checksum_keyed);

void topology(benchmark::State& state) {  // a node's parent and children among 8,192
    const TreeShape tree{.size = 8192, .arity = 4, .first = tree_root(8192, 9)};
    for (Rank self; auto _ : state) {
        self.value = (self.value + 1) % tree.size;
        benchmark::DoNotOptimize(tree_parent(tree, self));
        benchmark::DoNotOptimize(tree_children(tree, self));
    }
}
BENCHMARK(topology);

}  // namespace
}  // namespace copper

int main(int argc, char** argv) {
    // Else libsodium uses what every processor can run.
    if (sodium_init() < 0) {
        return 1;
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
