// `copper launch` hands the job's key to the daemons in their environment. The command line holds only the
// name of the variable.
#pragma once

#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/job_key.hpp"

namespace copper {

inline constexpr const char* job_key_variable = "COPPER_JOB_KEY";

// Takes the key out of this process's environment and wipes it, so that neither /proc/<pid>/environ nor a
// child has it. Nothing if there is none, as for a daemon started by hand. An error if the text is no key.
// REQUIRES: no other thread runs yet.
tl::expected<std::optional<JobKey>, std::string> take_job_key();

enum class KeyNeed { optional, required };
// An error if the key is damaged, or if it is missing and the launcher says that there is one. A daemon
// without a key accepts messages from any process without a key.
tl::expected<void, std::string> check_job_key(const tl::expected<std::optional<JobKey>, std::string>& key,
                                              KeyNeed need);

}  // namespace copper
