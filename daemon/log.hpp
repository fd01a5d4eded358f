// The daemon's log.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "daemon/control/options.hpp"

namespace copper {

// Makes spdlog's default logger. It writes to `log_dir`/<host>-<pid>-output.log; without `log_dir`, or with
// `log_to_output`, to standard error. Call it before other threads start.
tl::expected<void, std::string> start_log(const DaemonOptions& options);

}  // namespace copper
