// The daemon's log.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "daemon/control/options.hpp"

namespace copper {

// Makes spdlog's default logger: to `log_dir`/<host>-<pid>-output.log; to standard error if there is none, or
// with `log_to_output` too. Call it before other threads start.
tl::expected<void, std::string> start_log(const DaemonOptions& options);

}  // namespace copper
