// The page of `copper report`: HTML that needs nothing else. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace copper::cli {

// `statistics`: as in stats.json (statistics_json()). Throws a std::exception if it is something else. What
// is missing in it is left out of the page.
std::string report_page(const nlohmann::json& statistics);

}  // namespace copper::cli
