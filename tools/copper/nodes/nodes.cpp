#include "tools/copper/nodes/nodes.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/error_text.hpp"
#include "base/host_name.hpp"
#include "base/shell_quote.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

using Hosts = std::vector<std::string>;

// `named_by`: the option or variable that holds the path.
Result<Hosts> nodes_in_file(const std::string& named_by, const std::string& path) {
    const std::string advice =
        "; name the nodes with --nodes-from FILE (one host per line) or HOST,HOST ('cn1,' for one host)";
    std::ifstream file(path);
    if (!file) {
        return misused(named_by + " " + path + ": " + error_text() + advice);
    }
    std::stringstream text;
    text << file.rdbuf();
    auto hosts = parse_hosts(text.str());
    if (hosts.empty()) {
        return misused(named_by + " " + path + ": the file names no host" + advice);
    }
    return hosts;
}

// What a program of the batch system prints, one host per line or word.
Result<Hosts> nodes_said_by(const std::vector<std::string>& command) {
    const auto output = capture(command, question_patience);
    if (!output) {
        return tl::make_unexpected(output.error());
    }
    auto text = output->text;
    std::replace(text.begin(), text.end(), ' ', '\n');
    auto hosts = succeeded(*output) ? parse_hosts(text) : Hosts();
    if (hosts.empty()) {
        return failed(shell_quote(command) + ": " + output->text);
    }
    return hosts;
}

Result<Hosts> nodes_of_pbs() {
    return nodes_in_file("PBS_NODEFILE", std::getenv("PBS_NODEFILE"));
}

Result<Hosts> expanded_by_slurm(const char* variable) {
    return nodes_said_by({"scontrol", "show", "hostnames", std::getenv(variable)});
}

// Of a heterogeneous job, SLURM_JOB_NODELIST has the hosts of the first component only.
Result<Hosts> nodes_of_slurm() {
    auto components = slurm_components();
    if (!components) {
        return tl::make_unexpected(components.error());
    }
    if (components->empty()) {
        return expanded_by_slurm("SLURM_JOB_NODELIST");
    }
    Hosts hosts;
    for (auto& component : *components) {
        std::ranges::move(component, std::back_inserter(hosts));
    }
    return hosts;
}

// Those that are neither down nor drained. What `flux run` started has the nodes of its run; for "avail"
// there, Flux would look for all nodes of the batch job among those of the run.
Result<Hosts> nodes_of_flux() {
    return nodes_said_by({"flux", "hostlist", "--expand", is_set("FLUX_JOB_ID") ? "local" : "avail"});
}

// The variable holds "host slots host slots ...".
Result<Hosts> nodes_of_lsf() {
    if (is_set("LSB_DJOB_HOSTFILE")) {
        return nodes_in_file("LSB_DJOB_HOSTFILE", std::getenv("LSB_DJOB_HOSTFILE"));
    }
    std::istringstream words(is_set("LSB_MCPU_HOSTS") ? std::getenv("LSB_MCPU_HOSTS") : "");
    std::string text;
    for (std::string host, slots; words >> host >> slots;) {
        text += host + "\n";
    }
    auto hosts = parse_hosts(text);
    if (hosts.empty()) {
        return misused(
            "neither LSB_DJOB_HOSTFILE nor LSB_MCPU_HOSTS names the hosts of this LSF job: give "
            "them with --nodes-from");
    }
    return hosts;
}

Result<Hosts> nodes_of_grid_engine() {
    return nodes_in_file("PE_HOSTFILE", std::getenv("PE_HOSTFILE"));
}

struct Source {
    const char* name;
    const char* sign;  // set in its jobs
    Result<Hosts> (*nodes)();
};
constexpr std::array sources = {
    Source{"pbs", "PBS_NODEFILE", nodes_of_pbs}, Source{"slurm", "SLURM_JOB_NODELIST", nodes_of_slurm},
    Source{"flux", "FLUX_URI", nodes_of_flux}, Source{"lsf", "LSB_JOBID", nodes_of_lsf},
    Source{"sge", "PE_HOSTFILE", nodes_of_grid_engine}};

}  // namespace

Result<std::vector<Hosts>> slurm_components() {
    // sbatch passes on its environment: a job that was submitted in one has the variables of that one, too.
    const char* first = std::getenv("SLURM_JOB_ID_HET_GROUP_0");
    const char* own = std::getenv("SLURM_JOB_ID");
    std::vector<Hosts> components;
    if (first == nullptr || own == nullptr || std::string_view(first) != own) {
        return components;
    }
    Hosts before;
    const auto variable = [&] { return "SLURM_JOB_NODELIST_HET_GROUP_" + std::to_string(components.size()); };
    while (is_set(variable().c_str())) {  // sbatch(1), "Output environment variables"
        const auto hosts = expanded_by_slurm(variable().c_str());
        if (!hosts) {
            return tl::make_unexpected(hosts.error());
        }
        components.push_back(hosts_without(*hosts, before));
        before.insert(before.end(), hosts->begin(), hosts->end());
    }
    return components;
}

Result<Hosts> find_nodes(const std::string& from) {
    for (const auto& source : sources) {
        if (from == source.name && !is_set(source.sign)) {
            return misused("--nodes-from " + from + ": " + source.sign +
                           " is not set (not within such a job?)");
        }
        if (from == source.name || (from == "auto" && is_set(source.sign))) {
            return source.nodes();
        }
    }
    if (from == "auto") {
        return Hosts{host_name()};
    }
    if (from.find_first_of(",[") == std::string::npos) {
        return nodes_in_file("--nodes-from", from);
    }
    auto hosts = expand_hosts(from);
    if (!hosts) {
        return misused("--nodes-from " + from + ": " + hosts.error());
    }
    return std::move(*hosts);
}

}  // namespace copper::cli
