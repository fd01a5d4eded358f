#include "daemon/node_metrics.hpp"

#include <unistd.h>

#include <fstream>

#include "daemon/control/metrics.hpp"

namespace copper {
namespace {

using nlohmann::json;

json fuse_group(const FuseCounters& fuse) {
    return {{"requests", fuse.requests.load()},
            {"lookup", fuse.lookup.load()},
            {"getattr", fuse.getattr.load()},
            {"readdir", fuse.readdir.load()},
            {"readlink", fuse.readlink.load()},
            {"open", fuse.open.load()},
            {"read", fuse.read.load()},
            {"files_read", fuse.files_read.load()},
            {"ioctl", fuse.ioctl.load()},
            {"bytecode_absent", fuse.bytecode_absent.load()},
            {"bytes_read", fuse.bytes_read.load()},
            {"bytes_filled", fuse.bytes_filled.load()},
            {"siblings_fetched", fuse.guesses.siblings.fetched.load()},
            {"siblings_used", fuse.guesses.siblings.used.load()},
            {"imports_fetched", fuse.guesses.imports.fetched.load()},
            {"imports_used", fuse.guesses.imports.used.load()},
            {"libraries_fetched", fuse.guesses.libraries.fetched.load()},
            {"libraries_used", fuse.guesses.libraries.used.load()}};
}

json backing_group(const BackingCounters& backing) {
    return {{"listings", backing.listings.load()},     {"stats", backing.stats.load()},
            {"file_opens", backing.file_opens.load()}, {"reads", backing.reads.load()},
            {"bytes", backing.bytes.load()},           {"readlinks", backing.readlinks.load()},
            {"xattrs", backing.xattrs.load()}};
}

json cache_group(const Cache::Statistics& cache) {
    return {{"objects", cache.objects}, {"bytes", cache.bytes},   {"budget_bytes", cache.budget_bytes},
            {"hits", cache.hits},       {"misses", cache.misses}, {"evictions", cache.evictions}};
}

json fabric_group(const NodeCounts& counts) {
    return {{"messages_sent", counts.fabric.messages_sent},
            {"bytes_sent", counts.fabric.bytes_sent},
            {"messages_received", counts.fabric.messages_received},
            {"bytes_received", counts.fabric.bytes_received},
            {"messages_dropped", counts.fabric.dropped},
            {"frames_refused", counts.frames_refused + counts.fabric.refused},
            {"bytes_saved_by_compression", counts.fabric.bytes_saved},
            {"interests_sent", counts.mover.interests_sent},
            {"interests_refused", counts.mover.interests_refused},
            {"interests_merged", counts.mover.interests_merged},
            {"publications_sent", counts.mover.publications_sent},
            {"duplicates", counts.mover.duplicates},
            {"retries", counts.mover.retries},
            {"passed_on", counts.mover.passed_on},
            {"resignations", counts.mover.resignations},
            {"passed_over", counts.mover.passed_over},
            {"unshared_reads", counts.mover.unshared_reads}};
}

json fallbacks_group(const MoverCounters& mover, std::uint64_t nodes_lost) {
    return {{"direct_reads", mover.direct_reads},
            {"deadline", mover.direct_reads},
            {"peer_lost", nodes_lost},
            {"corrupt", mover.corrupt}};
}

}  // namespace

std::uint64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");  // proc(5): size and resident size, in pages
    std::uint64_t size_pages = 0;
    std::uint64_t resident_pages = 0;
    statm >> size_pages >> resident_pages;
    return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

json top_paths(HotPaths& paths, std::size_t paths_max) {
    json listed = json::array();
    for (const auto& [path, counts] : paths.top(paths_max)) {
        listed.push_back({{"path", path},
                          {"requests", counts.requests},
                          {"absent", counts.absent},
                          {"bytes_read", counts.bytes_read}});
    }
    return listed;
}

json metrics_of(const NodeCounts& counts) {
    return {{"fuse", fuse_group(counts.fuse)},
            {"backing", backing_group(counts.backing)},
            {"local", backing_group(counts.local)},
            {"cache", cache_group(counts.cache)},
            {"fabric", fabric_group(counts)},
            {"profile",
             {{"fetched", counts.replay.fetched},
              {"bytes_fetched", counts.replay.bytes},
              {"foretold", counts.replay.foretold},
              {"unforeseen", counts.replay.unforeseen}}},
            {"fallbacks", fallbacks_group(counts.mover, counts.nodes_lost)},
            {"latency_us",
             {{"lookup", latency_summary(counts.fuse.lookup_latency.buckets())},
              {"read", latency_summary(counts.fuse.read_latency.buckets())},
              {"turn", latency_summary(counts.turns)}}},
            {"memory", {{"rss_bytes", resident_bytes()}}}};
}

}  // namespace copper
