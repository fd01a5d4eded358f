#include "tools/copper/nodes/ready.hpp"

#include <sstream>

#include <nlohmann/json.hpp>

#include "base/json_text.hpp"

namespace copper::cli {

namespace {

constexpr std::size_t tail_lines_max = 20;
constexpr std::size_t line_bytes_max = 16U << 20;

Readiness readiness_from(const nlohmann::json& json) {
    Readiness readiness;
    readiness.ready = whole_number<std::uint32_t>(json.at("ready"));
    readiness.nodes = whole_number<std::uint32_t>(json.at("nodes"));
    readiness.done = json.value("done", false);
    readiness.serves = json.value("serves", false);
    readiness.missing = json.value("missing", std::vector<std::string>());
    for (const auto& failed : json.value("failed", nlohmann::json::array())) {
        readiness.failed.push_back({.host = failed.value("host", std::string()),
                                    .reason = failed.value("reason", std::string()),
                                    .taken = failed.value("taken", std::string()),
                                    .batch_job = failed.value("batch_job", std::string()),
                                    .batch_run = failed.value("batch_run", std::string()),
                                    .launch = failed.value("launch", std::string()),
                                    .is_served = failed.value("is_served", false)});
    }
    return readiness;
}

}  // namespace

std::optional<Readiness> parse_readiness(std::string_view line) {
    const auto start = line.find("{\"copper\":\"ready\"");
    if (start == std::string_view::npos) {
        return std::nullopt;
    }
    line.remove_prefix(start);
    if (json_depth(line) > json_depth_max) {
        return std::nullopt;
    }
    // operator>> stops at the end of the value; parse_json() would refuse the text after it.
    std::istringstream input{std::string(line)};
    try {
        nlohmann::json json;
        input >> json;
        return readiness_from(json);
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

std::optional<Readiness> ReadyReader::feed(std::string_view text) {
    std::optional<Readiness> last;
    unfinished_.append(text);
    std::size_t start = 0;
    for (auto end = unfinished_.find('\n'); end != std::string::npos; end = unfinished_.find('\n', start)) {
        if (auto readiness = take_line(std::string_view(unfinished_).substr(start, end - start))) {
            last = std::move(readiness);
        }
        start = end + 1;
    }
    unfinished_.erase(0, start);
    if (unfinished_.size() > line_bytes_max) {
        unfinished_.clear();
    }
    return last;
}

std::optional<Readiness> ReadyReader::take_line(std::string_view line) {
    auto readiness = parse_readiness(line);
    if (!readiness && !line.empty()) {
        if (other_lines_.size() == tail_lines_max) {
            other_lines_.erase(other_lines_.begin());
        }
        other_lines_.emplace_back(line);
    }
    return readiness;
}

std::vector<std::string> ReadyReader::tail() const {
    auto lines = other_lines_;
    if (!unfinished_.empty()) {
        lines.push_back(unfinished_);
    }
    return lines;
}

}  // namespace copper::cli
