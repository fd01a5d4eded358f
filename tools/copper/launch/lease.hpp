// The command of a daemon's supervisor that ends a mirror whose job is over (daemon/lease.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {

// `copper __if-over JOB COMMAND...` runs a command of `copper` if that job of PBS is over.
inline constexpr std::string_view if_over_command = "__if-over";
bool is_over(const std::string& job);

// Its words, but for the mount. Empty where the batch system ends what it has started: over ssh, PBS does not
// know the daemons. Slurm, Flux, Grid Engine and LSF start them themselves.
std::vector<std::string> lease_of(const Launcher& launcher, const std::string& batch_job);

}  // namespace copper::cli
