// Tables for people.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace copper::cli {

// A field of a node's answer as text for a table; "-" if it is missing.
std::string text_of(const nlohmann::json& body, const char* key);

// Rows as aligned columns. The first row is the head.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace copper::cli
