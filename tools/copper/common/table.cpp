#include "tools/copper/common/table.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace copper::cli {

std::string text_of(const nlohmann::json& body, const char* key) {
    const auto value = body.find(key);
    if (value == body.end() || value->is_null()) {
        return "-";
    }
    if (value->is_string()) {
        return value->get<std::string>().empty() ? "-" : value->get<std::string>();
    }
    if (value->is_boolean()) {
        return value->get<bool>() ? "yes" : "no";
    }
    if (value->is_number_float()) {
        std::ostringstream whole;
        whole << std::fixed << std::setprecision(0) << std::trunc(value->get<double>());
        return whole.str();
    }
    return value->dump();
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

}  // namespace copper::cli
