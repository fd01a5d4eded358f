#include "tools/copper/look/page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <sstream>
#include <vector>

#include "daemon/control/sum.hpp"
#include "daemon/control/timeline.hpp"
#include "report_html.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/look/statistics.hpp"
#include "tools/copper/look/template.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

constexpr std::size_t paths_shown = 20;
constexpr std::ptrdiff_t lost_shown = 50;

// "12,345".
std::string with_commas(std::uint64_t number) {
    std::string text = std::to_string(number);
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
        text.insert(static_cast<std::size_t>(at), 1, ',');
    }
    return text;
}

std::string short_number(double number) {
    std::ostringstream text;
    text.precision(3);
    text << number;
    return number < 1000 ? text.str() : with_commas(static_cast<std::uint64_t>(std::llround(number)));
}

std::string duration(double seconds) {
    const auto whole = static_cast<std::uint64_t>(seconds);
    if (whole < 120) {
        return short_number(seconds) + " s";
    }
    return whole < 7200 ? std::to_string(whole / 60) + " min"
                        : std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

std::uint64_t count_of(const json& object, const char* key) {
    return object.value(key, std::uint64_t{0});
}

std::uint64_t count_in(const json& value) {
    return value.is_null() ? 0 : value.get<std::uint64_t>();
}

// One count as a part of another, or of itself if it is larger; in percent.
std::string share(std::uint64_t part, std::uint64_t whole) {
    return part == 0
               ? "0"
               : short_number(100 * static_cast<double>(part) / static_cast<double>(std::max(part, whole)));
}

std::string times(std::uint64_t wanted, std::uint64_t made) {
    const auto times = made == 0 ? 0.0 : static_cast<double>(wanted) / static_cast<double>(made);
    return times < 1 ? "-" : short_number(std::floor(times * 10) / 10);
}

const Formats& formats() {
    static const Formats all = {
        {"text",
         [](const Values& values) {
             return text_of({{"it", values[0]}}, "it");
         }},
        {"number", [](const Values& values) { return with_commas(count_in(values[0])); }},
        {"short", [](const Values& values) { return short_number(values[0]); }},
        {"bytes", [](const Values& values) { return in_units(count_in(values[0])); }},
        {"milliseconds",
         [](const Values& us) {
             return short_number(std::ceil(static_cast<double>(count_in(us[0])) / 10) / 100) + " ms";
         }},
        {"duration",
         [](const Values& seconds) { return duration(seconds[0].is_null() ? 0 : seconds[0].get<double>()); }},
        {"share", [](const Values& values) { return share(count_in(values[0]), count_in(values[1])); }},
        {"times", [](const Values& values) { return times(count_in(values[0]), count_in(values[1])); }},
        {"fewer", [](const Values& values) { return times_fewer(count_in(values[0]), count_in(values[1])); }},
    };
    return all;
}

// 1, 2 or 5 times a power of ten (for bytes: of a unit), at least `value`.
double rounded_up(double value, bool bytes = false) {
    double unit = 1;
    while (bytes && value / unit >= 1000) {
        unit *= 1024;
    }
    if (value <= 0) {
        return 1;
    }
    const double power = std::pow(10, std::floor(std::log10(value / unit)));
    for (const double step : {1.0, 2.0, 5.0}) {
        if (value <= step * power * unit) {
            return step * power * unit;
        }
    }
    return 10 * power * unit;
}

// The part of the time line that the page draws: after it, next to nothing happened.
struct Drawn {
    std::vector<std::pair<double, Timeline::Counts>> steps;  // seconds since the first step
    double step = 0;                                         // seconds
    double end = 0;
    double all = 0;  // to the end of the last step
};
enum ColumnNumber : std::size_t { nodes_ready, requests, operations, bytes, bytes_read, direct_reads };

Drawn drawn_of(const Timeline& timeline) {
    constexpr double most_of_all = 0.99;
    constexpr double steps_min = 20;
    Drawn drawn{.steps = {}, .step = std::chrono::duration<double>(timeline.step()).count()};
    std::array<double, Timeline::columns.size()> rest = {};  // of each column, after the part to draw
    for (const auto& [number, counts] : timeline.steps()) {
        const auto since = static_cast<double>(number - timeline.steps().begin()->first);
        drawn.steps.emplace_back(since * drawn.step, counts);
        drawn.all = (since + 1) * drawn.step;
        for (const auto column : {operations, requests, bytes_read}) {
            rest[column] += most_of_all * static_cast<double>(counts[column]);
        }
        rest[nodes_ready] += static_cast<double>(counts[nodes_ready]);
    }
    for (const auto& [at, counts] : drawn.steps) {
        for (const auto column : {nodes_ready, operations, requests, bytes_read}) {
            drawn.end = rest[column] > 0 ? at + drawn.step : drawn.end;
            rest[column] -= static_cast<double>(counts[column]);
        }
    }
    drawn.end =
        std::min(std::max(drawn.end * 1.1, steps_min * drawn.step), std::max(drawn.all, drawn.step * 4));
    return drawn;
}

struct Curve {
    std::string name;
    const char* colour;
    std::size_t column;
};
struct Panel {
    std::string title;
    std::vector<Curve> curves;
    std::function<std::string(double)> text_of;
    bool is_sum = false;  // of all until then, instead of what happened per second
    bool is_bytes = false;
};

// Where a panel's curves are; report.html has the same numbers.
constexpr double left = 92, right = 950, upper = 12, lower = 122;

double y_of(double part) {
    return lower - (lower - upper) * part;
}

std::string number(double value) {
    std::ostringstream text;
    text << std::round(value * 10) / 10;
    return text.str();
}

std::string point(char command, double x, double y) {
    return command + number(x) + " " + number(y);
}

class Plot {
  public:
    explicit Plot(const Drawn& drawn) : drawn_(drawn) {}

    json draw(const Panel& panel) const {
        std::vector<std::vector<double>> values;
        double top = 0;
        for (const auto& curve : panel.curves) {
            values.push_back(values_of(panel, curve));
            for (const double value : values.back()) {
                top = std::max(top, value);
            }
        }
        top = panel.is_sum ? std::max(top, 1.0) : rounded_up(top, panel.is_bytes);
        json grid, legend, areas;
        for (const double part : panel.is_sum&& top < 2 ? std::vector{1.0} : std::vector{0.5, 1.0}) {
            grid.push_back({{"y", number(y_of(part))},
                            {"words_y", number(y_of(part) + 4)},
                            {"words", panel.text_of(part * top)}});
        }
        for (std::size_t c = 0; c < values.size(); ++c) {
            const auto& [name, colour, column] = panel.curves[c];
            areas.push_back({{"colour", colour}, {"path", area(values[c], top, panel.is_sum)}});
            if (values.size() > 1) {
                legend.push_back({{"colour", colour}, {"name", name}});
            }
        }
        return {{"title", panel.title}, {"legend", legend}, {"grid", grid},
                {"ticks", ticks()},     {"areas", areas},   {"hits", hits(panel, values)}};
    }

  private:
    double x_of(double seconds) const { return left + (right - left) * std::min(seconds / drawn_.end, 1.0); }

    std::vector<double> values_of(const Panel& panel, const Curve& curve) const {
        std::vector<double> found;
        double sum = 0;
        for (const auto& [at, counts] : drawn_.steps) {
            if (at >= drawn_.end) {
                break;
            }
            const auto count = static_cast<double>(counts[curve.column]);
            sum += count;
            found.push_back(panel.is_sum ? sum : count / drawn_.step);
        }
        return found;
    }
    json ticks() const {
        constexpr double ticks = 8;
        json found;
        const double step = rounded_up(drawn_.end / ticks);
        for (double at = 0; at <= drawn_.end; at += step) {
            found.push_back({{"x", number(x_of(at))}, {"words", short_number(at) + " s"}});
        }
        return found;
    }
    // Steps, down to 0 where nothing happened. A sum stays.
    std::string area(const std::vector<double>& values, double top, bool is_sum) const {
        std::string path = point('M', left, lower);
        double last_end = 0;
        double y = lower;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double begin = drawn_.steps[i].first;
            if (begin > last_end && !is_sum) {
                y = lower;
                path += point('L', x_of(last_end), y) + point('L', x_of(begin), y);
            }
            path += point('L', x_of(begin), y);
            y = y_of(values[i] / top);
            last_end = begin + drawn_.step;
            path += point('L', x_of(begin), y) + point('L', x_of(last_end), y);
        }
        last_end = is_sum ? drawn_.end : last_end;
        return path + point('L', x_of(last_end), is_sum ? y : lower) + point('L', x_of(last_end), lower) +
               "Z";
    }
    // Says the numbers of a step under the pointer.
    json hits(const Panel& panel, const std::vector<std::vector<double>>& values) const {
        json found;
        for (std::size_t i = 0; i < values.front().size(); ++i) {
            const double begin = drawn_.steps[i].first;
            std::string words = short_number(begin) + " s:";
            for (std::size_t c = 0; c < values.size(); ++c) {
                words += (c == 0 ? " " : ", ") + panel.text_of(values[c][i]) + " " + panel.curves[c].name;
            }
            found.push_back({{"x", number(x_of(begin))},
                             {"width", number(x_of(begin + drawn_.step) - x_of(begin))},
                             {"words", words}});
        }
        return found;
    }

    const Drawn& drawn_;
};

json timeline_values(const json& statistics) {
    const auto timeline =
        statistics.contains("timeline") ? timeline_from(statistics["timeline"]) : Timeline();
    if (timeline.steps().empty()) {
        return {};
    }
    const auto drawn = drawn_of(timeline);
    std::vector<Panel> panels = {
        {"Nodes that serve", {{"nodes", "programs", nodes_ready}}, short_number, true},
        {"Requests of programs, per second", {{"per second", "programs", requests}}, short_number},
        {"Operations on the filesystem, per second",
         {{"per second", "filesystem", operations}},
         short_number},
        {"Bytes per second",
         {{"to programs", "programs", bytes_read}, {"from the filesystem", "filesystem", bytes}},
         [](double value) { return in_units(static_cast<std::uint64_t>(std::llround(value))); },
         false,
         true}};
    if (std::ranges::any_of(drawn.steps, [](const auto& step) { return step.second[direct_reads] > 0; })) {
        panels.push_back({"Direct reads by nodes that could not wait, per second",
                          {{"per second", "filesystem", direct_reads}},
                          short_number});
    }
    const Plot plot(drawn);
    json drawings, steps;
    for (const auto& panel : panels) {
        drawings.push_back(plot.draw(panel));
    }
    for (const auto& [at, counts] : drawn.steps) {
        json& step = steps.emplace_back(json{{"at", at}});
        for (std::size_t i = 0; i < counts.size(); ++i) {
            step[Timeline::columns[i]] = counts[i];
        }
    }
    return {{"step", drawn.step},
            {"shown_of", drawn.all > drawn.end ? drawn.all : 0},
            {"panels", drawings},
            {"steps", steps}};
}

// A section that is left out if there is nothing to show.
json with_rows(const json& rows) {
    return rows.empty() ? json() : json{{"rows", rows}};
}

}  // namespace

std::string report_page(const json& statistics) {
    const auto& totals = statistics.at("totals");
    json page = statistics;
    page["trees"] = joined(statistics.value("trees", std::vector<std::string>()), ", ");
    page["is_whole"] = count_of(statistics, "alive") >= count_of(statistics, "nodes");
    page["operations"] = operations_of(totals);
    page["timeline"] = timeline_values(statistics);
    const auto lost = statistics.value("lost", std::vector<json>());
    page["lost"] = std::vector(lost.begin(), lost.begin() + std::min(std::ssize(lost), lost_shown));
    page["lost_count"] = lost.size();
    page["lost_shown"] = std::ssize(lost) > lost_shown ? lost_shown : 0;
    const auto first_ready =
        statistics.contains("timeline") ? count_of(statistics["timeline"], "begin_ms") : UINT64_MAX;
    for (auto& node : page["conspicuous"]) {
        const auto ready = count_of(node, "ready_ms");
        node["is_serving"] = text_of(node, "state") == "serving";
        node["served_after"] = ready == 0 || ready < first_ready
                                   ? "-"
                                   : short_number(static_cast<double>(ready - first_ready) / 1000) + " s";
    }
    const auto paths = statistics.value("top_paths", std::vector<json>());
    page["hottest"] = with_rows(most(paths, "requests", paths_shown));
    page["absent"] = with_rows(most(paths, "absent", paths_shown));
    page["first_node_used"] = total(totals, "profile", "foretold") + total(totals, "profile", "unforeseen");
    page["any_ahead"] = total(totals, "profile", "fetched") + total(totals, "fuse", "siblings_fetched") +
                        total(totals, "fuse", "imports_fetched") + total(totals, "fuse", "libraries_fetched");
    return filled_in(report_html, page, formats());
}

}  // namespace copper::cli
