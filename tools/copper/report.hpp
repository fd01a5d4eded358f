// The output of `copper stats` as JSON and as text, from the nodes' answers. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace copper::cli {

struct JobStatistics {
    std::string job;
    std::string mount;
    std::vector<nlohmann::json> nodes;  // one each, by rank; lost ones, too (per_node() of common.hpp)
    std::size_t top_paths = 0;          // how many of the most requested paths to report
};

bool is_lost(const nlohmann::json& node);

// Schema 1: its keys are stable; more may be added.
nlohmann::json statistics_json(const JobStatistics& job);

// Six lines that say what Copper saved; or a table of all totals. Then one of the paths, if asked for.
std::string statistics_summary(const JobStatistics& job);
std::string statistics_text(const JobStatistics& job);

}  // namespace copper::cli
