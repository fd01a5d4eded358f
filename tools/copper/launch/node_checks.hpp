// What a node must have for a daemon. `copper launch` and `copper doctor` share these checks.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace copper::cli {

enum class Verdict { good, warning, problem };

struct Finding {
    std::string check;  // "fuse"
    Verdict verdict = Verdict::good;
    std::string text;    // what was found
    std::string advice;  // what to do about it; empty if all is well
    auto operator<=>(const Finding&) const = default;
};
nlohmann::json to_json(const Finding& finding);
// Throws a std::exception if it is no finding.
Finding finding_from(const nlohmann::json& json);

Finding check_fuse(bool allow_other);
// The limits that a launcher and daemons inherit. With fewer open files, or no room in files, some launchers
// neither start anything nor end. Raises this process's own limit of open files if it is allowed to.
Finding check_limits();
Finding check_copperd(const std::string& copperd);
Finding check_memory(std::uint64_t cache_bytes);
Finding check_cores();
Finding check_room_for_files();
Finding check_mount(const std::string& mount, const std::string& batch_job);
// What else of this user is on this node: mirrors at other places, and what dead ones left.
std::vector<Finding> check_others(const std::string& mount, const std::string& batch_job);
// Whether `copper run` can show the mirror at the original paths.
Finding check_view();
Finding check_tree(const std::string& tree);

}  // namespace copper::cli
