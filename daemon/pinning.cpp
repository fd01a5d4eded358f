#include "daemon/pinning.hpp"

#include <hwloc.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <system_error>

#include "base/error_text.hpp"

namespace copper {
namespace {

struct BitmapDeleter {
    void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

struct TopologyDeleter {
    void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

// More free cores than this do not make the daemon faster, and may belong to somebody else.
constexpr int cores_auto_max = 8;

Bitmap parse_list(const std::string& list) {
    Bitmap bitmap(hwloc_bitmap_alloc());
    if (hwloc_bitmap_list_sscanf(bitmap.get(), list.c_str()) != 0) {
        bitmap.reset();
    }
    return bitmap;
}

std::string to_list(hwloc_const_bitmap_t bitmap) {
    char* text = nullptr;
    if (hwloc_bitmap_list_asprintf(&text, bitmap) < 0) {
        return {};
    }
    const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
    return text;
}

// The first number of e.g. "64(x2)", Slurm's text for two equal nodes.
std::optional<int> leading_number(const std::string& text) {
    int value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<int> cores_of_job(const SchedulerVariables& scheduler) {
    for (const char* variable : {"SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "NCPUS"}) {
        if (const auto found = scheduler.find(variable); found != scheduler.end()) {
            return leading_number(found->second);
        }
    }
    return std::nullopt;
}

std::string choose_free_cores(hwloc_const_bitmap_t allowed, const SchedulerVariables& scheduler) {
    const auto used = cores_of_job(scheduler);
    int free = used ? hwloc_bitmap_weight(allowed) - *used : 0;
    free = std::min(free, cores_auto_max);
    const Bitmap chosen(hwloc_bitmap_alloc());
    for (int core = hwloc_bitmap_last(allowed); core >= 0 && free > 0; --core) {
        if (hwloc_bitmap_isset(allowed, static_cast<unsigned>(core)) != 0) {
            hwloc_bitmap_set(chosen.get(), static_cast<unsigned>(core));
            --free;
        }
    }
    return to_list(chosen.get());
}

Topology load_topology() {
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) {
        return nullptr;
    }
    Topology owner(topology);
    return hwloc_topology_load(topology) == 0 ? std::move(owner) : nullptr;
}

}  // namespace

SchedulerVariables scheduler_variables() {
    SchedulerVariables variables;
    for (const char* name : {"SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "NCPUS"}) {
        if (const char* value = std::getenv(name); value != nullptr) {
            variables[name] = value;
        }
    }
    return variables;
}

tl::expected<std::string, std::string> choose_cores(const std::string& wanted, const std::string& allowed,
                                                    const SchedulerVariables& scheduler) {
    if (wanted == "none") {
        return std::string();
    }
    const Bitmap allowed_cores = parse_list(allowed);
    if (wanted == "auto") {
        return choose_free_cores(allowed_cores.get(), scheduler);
    }
    const Bitmap chosen = parse_list(wanted);
    if (chosen == nullptr || hwloc_bitmap_iszero(chosen.get()) != 0 ||
        hwloc_bitmap_weight(chosen.get()) < 0) {
        return tl::make_unexpected("--cores " + wanted + ": not a list of cores such as 0,2-3");
    }
    if (hwloc_bitmap_isincluded(chosen.get(), allowed_cores.get()) == 0) {
        const Bitmap missing(hwloc_bitmap_alloc());
        hwloc_bitmap_andnot(missing.get(), chosen.get(), allowed_cores.get());
        return tl::make_unexpected("--cores " + wanted + ": this machine has no core " +
                                   to_list(missing.get()) + ", or does not allow it; it has " + allowed);
    }
    return to_list(chosen.get());
}

tl::expected<Placement, std::string> pin_process(const std::string& wanted) {
    if (wanted == "none") {
        return Placement{.description = "not pinned: --cores none"};
    }
    const auto scheduler = scheduler_variables();
    if (wanted == "auto" && scheduler.empty()) {
        // Do not even look at the machine.
        return Placement{.description = "not pinned: no scheduler says which cores the job uses"};
    }
    const Topology topology = load_topology();
    if (topology == nullptr) {
        return tl::make_unexpected(std::string("hwloc cannot tell the machine's cores"));
    }
    const std::string allowed = to_list(hwloc_topology_get_allowed_cpuset(topology.get()));
    const auto chosen = choose_cores(wanted, allowed, scheduler);
    if (!chosen) {
        return tl::make_unexpected(chosen.error());
    }
    if (chosen->empty()) {
        return Placement{.description = "not pinned: the job uses all cores of " + allowed};
    }
    const Bitmap cores = parse_list(*chosen);
    if (hwloc_set_cpubind(topology.get(), cores.get(), HWLOC_CPUBIND_PROCESS) != 0) {
        return tl::make_unexpected("cannot run on cores " + *chosen + ": " + error_text());
    }
    return Placement{.cores = Cores::dedicated,
                     .description = "pinned to cores " + *chosen + " of " + allowed};
}

}  // namespace copper
