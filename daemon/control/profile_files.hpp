// Which profile belongs to a job, and where it lies.
//
// A job finds the profile of an earlier one if it mirrors the same trees and runs the same thing. What it
// runs, nobody knows when it is launched. So its name stands for that: a job script keeps its name from one
// submission to the next.
#pragma once

#include <string>
#include <vector>

namespace copper {

// Where this user's profiles lie: copper/profiles in $XDG_CACHE_HOME or ~/.cache (the XDG Base Directory
// Specification). Empty: the user has no home.
std::string profiles_directory();
// Beside them: where `copper stop` keeps the statistics of jobs.
std::string statistics_directory();

// What this job is called: by PBS or Slurm; otherwise the script that called this process; otherwise the
// shell.
std::string program_of_job();

inline constexpr const char* profile_suffix = ".profile";
// In a site's directory (--profile-dir): for any program that has no profile of its own.
inline constexpr const char* any_program = "any";

// "<program>-<hash of the trees>.profile". `trees` in any order.
std::string profile_name(const std::string& program, std::vector<std::string> trees);

}  // namespace copper
