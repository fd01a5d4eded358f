#include "daemon/pinning.hpp"

#include <hwloc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

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
constexpr std::size_t cores_auto_max = 8;

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
std::optional<std::size_t> leading_number(const std::string& text) {
    std::size_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<std::size_t> cores_of_job(const SchedulerVariables& scheduler) {
    for (const char* variable : {"SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "NCPUS"}) {
        if (const auto found = scheduler.find(variable); found != scheduler.end()) {
            return leading_number(found->second);
        }
    }
    return std::nullopt;
}

// A hardware thread.
struct Thread {
    unsigned number;  // as the kernel counts
    unsigned core;    // of the lowest numbers first
    unsigned in_core;
    bool is_free = true;  // in whatever order the job fills the machine
};

std::vector<Thread> threads_of(hwloc_topology_t machine) {
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(machine);
    const bool has_cores = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE) > 0;
    const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    std::map<int, Bitmap> cores;  // by the lowest thread
    for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(machine, type, core)) != nullptr;) {
        Bitmap threads(hwloc_bitmap_alloc());
        hwloc_bitmap_and(threads.get(), core->cpuset, allowed);
        if (hwloc_bitmap_iszero(threads.get()) == 0) {
            cores.emplace(hwloc_bitmap_first(threads.get()), std::move(threads));
        }
    }
    std::vector<Thread> all;
    unsigned core = 0;
    for (const auto& [lowest, threads] : cores) {
        unsigned in_core = 0;
        for (int thread = lowest; thread >= 0; thread = hwloc_bitmap_next(threads.get(), thread)) {
            all.push_back({.number = static_cast<unsigned>(thread), .core = core, .in_core = in_core++});
        }
        ++core;
    }
    return all;
}

std::string choose_free_cores(hwloc_topology_t machine, const std::string& near_network,
                              const SchedulerVariables& scheduler) {
    std::vector<Thread> threads = threads_of(machine);
    const std::size_t used = cores_of_job(scheduler).value_or(threads.size());
    const auto fill = [&](const auto& order) {
        std::ranges::sort(threads, {}, order);
        for (std::size_t i = 0; i < std::min(used, threads.size()); ++i) {
            threads[i].is_free = false;
        }
    };
    fill([](const Thread& one) { return std::pair(one.core, one.in_core); });
    fill([](const Thread& one) { return std::pair(one.in_core, one.core); });
    std::erase_if(threads, [](const Thread& one) { return !one.is_free; });
    const auto is_on_idle_core = [&](const Thread& one) { return one.core >= used; };
    if (std::ranges::any_of(threads, is_on_idle_core)) {
        std::erase_if(threads, std::not_fn(is_on_idle_core));
    }
    const Bitmap near = parse_list(near_network);
    std::ranges::sort(threads, std::greater(), [&](const Thread& one) {
        const bool is_near = near != nullptr && hwloc_bitmap_isset(near.get(), one.number) != 0;
        return std::tuple(is_near, one.core, one.in_core);
    });
    const Bitmap chosen(hwloc_bitmap_alloc());
    for (std::size_t i = 0; i < std::min(cores_auto_max, threads.size()); ++i) {
        hwloc_bitmap_set(chosen.get(), threads[i].number);
    }
    return to_list(chosen.get());
}

// Of the first port that MPI is likely to use: Slingshot's, or any with verbs.
std::string cores_near_network() {
    namespace fs = std::filesystem;
    for (const char* kind : {"/sys/class/cxi", "/sys/class/infiniband"}) {
        std::error_code error;
        for (fs::directory_iterator port(kind, error), end; !error && port != end; port.increment(error)) {
            std::string cores;
            std::getline(std::ifstream(port->path() / "device/local_cpulist"), cores);
            return cores;
        }
    }
    return {};
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

tl::expected<std::string, std::string> choose_cores(const std::string& wanted, hwloc_topology* machine,
                                                    const std::string& near_network,
                                                    const SchedulerVariables& scheduler) {
    if (wanted == "none") {
        return std::string();
    }
    if (wanted == "auto") {
        return choose_free_cores(machine, near_network, scheduler);
    }
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(machine);
    const Bitmap chosen = parse_list(wanted);
    if (chosen == nullptr || hwloc_bitmap_iszero(chosen.get()) != 0 ||
        hwloc_bitmap_weight(chosen.get()) < 0) {
        return tl::make_unexpected("--cores " + wanted + ": not a list of cores such as 0,2-3");
    }
    if (hwloc_bitmap_isincluded(chosen.get(), allowed) == 0) {
        const Bitmap missing(hwloc_bitmap_alloc());
        hwloc_bitmap_andnot(missing.get(), chosen.get(), allowed);
        return tl::make_unexpected("--cores " + wanted + ": this machine has no core " +
                                   to_list(missing.get()) + ", or does not allow it; it has " +
                                   to_list(allowed));
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
    const std::string near_network = wanted == "auto" ? cores_near_network() : "";
    const auto chosen = choose_cores(wanted, topology.get(), near_network, scheduler);
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
