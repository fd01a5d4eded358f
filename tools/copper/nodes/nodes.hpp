// Finds the nodes of the job.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/common/failure.hpp"

namespace copper::cli {

// `from` as in --nodes-from: pbs, slurm, flux, lsf, sge, auto, a list of hosts or a file.
Result<std::vector<std::string>> find_nodes(const std::string& from);

// Of a heterogeneous job of Slurm: the hosts of each component, without those of the ones before. Empty in
// another job.
Result<std::vector<std::vector<std::string>>> slurm_components();

}  // namespace copper::cli
