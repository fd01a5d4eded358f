// How `copper launch` hands the job's key to the daemons: in their environment, whose name alone the command
// line has.
#pragma once

#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/job_key.hpp"

namespace copper {

inline constexpr const char* job_key_variable = "COPPER_JOB_KEY";

// Takes the key out of this process's environment and wipes it there, so that neither /proc/<pid>/environ nor
// a child has it. Nothing where there is none: a daemon that was started by hand. The error is what is there
// and no key. REQUIRES: no other thread runs yet.
tl::expected<std::optional<JobKey>, std::string> take_job_key();

enum class KeyNeed { optional, required };
// An error if the key is none, or is missing where the launcher says that there is one: the daemon would talk
// to whoever has no key either.
tl::expected<void, std::string> check_job_key(const tl::expected<std::optional<JobKey>, std::string>& key,
                                              KeyNeed need);

}  // namespace copper
