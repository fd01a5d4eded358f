#include "tools/copper/look/page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <sstream>
#include <vector>

#include "daemon/control/sum.hpp"
#include "daemon/control/timeline.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/look/statistics.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

constexpr std::size_t paths_shown = 20;
constexpr std::size_t lost_shown = 50;

constexpr const char* style = R"(
:root { color-scheme: light dark; --page: #fbfaf8; --card: #fff; --text: #1d2329; --soft: #5c6670; --line: #dfdcd6;
  --programs: #2f6fc4; --filesystem: #b8591f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1c2024; --text: #e7e9eb; --soft: #a3adb6;
  --line: #343a40; --programs: #6ea8f0; --filesystem: #e8935a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 1.7rem; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 40px 0 4px; }
p { margin: 4px 0 12px; max-width: 46rem; }
.soft, figcaption, th { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); gap: 12px; margin: 20px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.tile b { display: block; font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
.tile span { color: var(--soft); font-size: .9rem; }
.bad { color: var(--bad); }
figure { margin: 0 0 10px; padding: 10px 14px 4px; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; overflow-x: auto; }
figcaption { font-size: .9rem; }
.scroll { margin-bottom: 16px; }
figcaption i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 5px 0 12px; }
svg { display: block; width: 100%; min-width: 600px; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); }
.programs { fill: var(--programs); stroke: var(--programs); background: var(--programs); }
.filesystem { fill: var(--filesystem); stroke: var(--filesystem); background: var(--filesystem); }
.area { fill-opacity: .22; stroke-width: 1.5; stroke-linejoin: round; }
.hit { fill: transparent; }
.hit:hover { fill: var(--text); fill-opacity: .08; }
.bar { height: 10px; border-radius: 2px; min-width: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums; font-weight: 400; }
th.words, td.words { text-align: left; white-space: normal; }
th.wide { text-align: left; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.path { white-space: normal; overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .85rem; }
td.wide { width: 30%; min-width: 7rem; }
details { margin: 4px 0 12px; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
)";

std::string html_escaped(const std::string& text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
            case '&':
                safe += "&amp;";
                break;
            case '<':
                safe += "&lt;";
                break;
            case '>':
                safe += "&gt;";
                break;
            case '"':
                safe += "&quot;";
                break;
            default:
                safe += c;
        }
    }
    return safe;
}

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

std::string short_bytes(double bytes) {
    return in_units(static_cast<std::uint64_t>(std::llround(bytes)));
}

std::string duration(double seconds) {
    const auto whole = static_cast<std::uint64_t>(seconds);
    if (whole < 120) {
        return short_number(seconds) + " s";
    }
    return whole < 7200 ? std::to_string(whole / 60) + " min"
                        : std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

std::string milliseconds_of(std::uint64_t us) {
    return short_number(std::ceil(static_cast<double>(us) / 10) / 100) + " ms";
}

std::uint64_t count_of(const json& object, const char* key) {
    return object.value(key, std::uint64_t{0});
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

struct Column {
    std::string name;
    std::string type = "number";  // or "path", "words": of the style
};
std::string html_table(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
    std::string text = "<div class=\"scroll\"><table><thead><tr>";
    for (const auto& column : columns) {
        text += "<th scope=\"col\" class=\"" + column.type + "\">" + column.name + "</th>";
    }
    text += "</tr></thead><tbody>\n";
    for (const auto& row : rows) {
        text += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i) {
            text += "<td class=\"" + columns[i].type + "\">" + row[i] + "</td>";
        }
        text += "</tr>\n";
    }
    return text + "</tbody></table></div>\n";
}

std::string section(const std::string& title, const std::string& words) {
    return "<h2>" + title + "</h2>\n<p class=\"soft\">" + words + "</p>\n";
}

std::string tile(const std::string& number, const std::string& words, bool bad = false) {
    return "<div class=\"tile\"><b" + std::string(bad ? " class=\"bad\"" : "") + ">" + number + "</b><span>" +
           words + "</span></div>\n";
}

std::string bar(std::uint64_t part, std::uint64_t whole, const char* colour) {
    const auto percent = whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
    return "<div class=\"bar " + std::string(colour) +
           "\" style=\"width:" + short_number(std::min(percent, 100.0)) + "%\"></div>";
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
    std::array<double, Timeline::columns.size()> left = {};  // of each column, after the part to draw
    for (const auto& [number, counts] : timeline.steps()) {
        const auto since = static_cast<double>(number - timeline.steps().begin()->first);
        drawn.steps.emplace_back(since * drawn.step, counts);
        drawn.all = (since + 1) * drawn.step;
        for (const auto column : {operations, requests, bytes_read}) {
            left[column] += most_of_all * static_cast<double>(counts[column]);
        }
        left[nodes_ready] += static_cast<double>(counts[nodes_ready]);
    }
    for (const auto& [at, counts] : drawn.steps) {
        for (const auto column : {nodes_ready, operations, requests, bytes_read}) {
            drawn.end = left[column] > 0 ? at + drawn.step : drawn.end;
            left[column] -= static_cast<double>(counts[column]);
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

class Plot {
  public:
    explicit Plot(const Drawn& drawn) : drawn_(drawn) {}

    std::string draw(const Panel& panel) const {
        double top = 0;
        for (const auto& curve : panel.curves) {
            for (const double value : values(panel, curve)) {
                top = std::max(top, value);
            }
        }
        top = panel.is_sum ? std::max(top, 1.0) : rounded_up(top, panel.is_bytes);
        std::string svg = "<figure><figcaption>" + panel.title + legend(panel) + "</figcaption>\n" +
                          "<svg viewBox=\"0 0 960 150\" role=\"img\" aria-label=\"" + panel.title +
                          " over time\"><title>" + panel.title + " over time</title>\n";
        for (const double part : panel.is_sum&& top < 2 ? std::vector{1.0} : std::vector{0.5, 1.0}) {
            svg += line(left, y_of(part), right, y_of(part)) +
                   text(left - 8, y_of(part) + 4, "end", panel.text_of(part * top));
        }
        svg += axis();
        for (const auto& curve : panel.curves) {
            svg += area(values(panel, curve), top, curve.colour, panel.is_sum);
        }
        return svg + hits(panel) + "</svg></figure>\n";
    }

  private:
    static constexpr double left = 92, right = 950, upper = 12, lower = 122;

    static std::string legend(const Panel& panel) {
        std::string text;
        for (const auto& curve : panel.curves) {
            text += panel.curves.size() < 2
                        ? ""
                        : "<i class=\"" + std::string(curve.colour) + "\"></i>" + curve.name;
        }
        return text;
    }
    double x_of(double seconds) const { return left + (right - left) * std::min(seconds / drawn_.end, 1.0); }
    static double y_of(double part) { return lower - (lower - upper) * part; }

    std::vector<double> values(const Panel& panel, const Curve& curve) const {
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
    static std::string number(double value) {
        std::ostringstream text;
        text.precision(6);
        text << std::round(value * 10) / 10;
        return text.str();
    }
    static std::string line(double x1, double y1, double x2, double y2) {
        return "<path class=\"grid\" d=\"M" + number(x1) + " " + number(y1) + "L" + number(x2) + " " +
               number(y2) + "\"/>\n";
    }
    static std::string text(double x, double y, const char* anchor, const std::string& words) {
        return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
               words + "</text>\n";
    }
    std::string axis() const {
        constexpr double ticks = 8;
        std::string svg = line(left, lower, right, lower);
        const double step = rounded_up(drawn_.end / ticks);
        for (double at = 0; at <= drawn_.end; at += step) {
            svg += line(x_of(at), lower, x_of(at), lower + 4) +
                   text(x_of(at), lower + 18, "middle", short_number(at) + " s");
        }
        return svg;
    }
    // Steps, down to 0 where nothing happened. A sum stays.
    std::string area(const std::vector<double>& values, double top, const char* colour, bool is_sum) const {
        std::string path = "M" + number(left) + " " + number(lower);
        double last_end = 0;
        double y = lower;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double begin = drawn_.steps[i].first;
            if (begin > last_end && !is_sum) {
                y = lower;
                path += "L" + number(x_of(last_end)) + " " + number(y) + "L" + number(x_of(begin)) + " " +
                        number(y);
            }
            path += "L" + number(x_of(begin)) + " " + number(y);
            y = y_of(values[i] / top);
            last_end = begin + drawn_.step;
            path +=
                "L" + number(x_of(begin)) + " " + number(y) + "L" + number(x_of(last_end)) + " " + number(y);
        }
        last_end = is_sum ? drawn_.end : last_end;
        path += "L" + number(x_of(last_end)) + " " + number(is_sum ? y : lower) + "L" +
                number(x_of(last_end)) + " " + number(lower);
        return "<path class=\"area " + std::string(colour) + "\" d=\"" + path + "Z\"/>\n";
    }
    // Says the numbers of a step under the pointer.
    std::string hits(const Panel& panel) const {
        std::string svg;
        std::vector<std::vector<double>> all;
        for (const auto& curve : panel.curves) {
            all.push_back(values(panel, curve));
        }
        for (std::size_t i = 0; i < all.front().size(); ++i) {
            const double begin = drawn_.steps[i].first;
            svg += "<rect class=\"hit\" x=\"" + number(x_of(begin)) + "\" y=\"" + number(upper) +
                   "\" width=\"" + number(x_of(begin + drawn_.step) - x_of(begin)) + "\" height=\"" +
                   number(lower - upper) + "\"><title>" + short_number(begin) + " s:";
            for (std::size_t c = 0; c < panel.curves.size(); ++c) {
                svg += " " + panel.text_of(all[c][i]) + " " + panel.curves[c].name +
                       (c + 1 < panel.curves.size() ? "," : "");
            }
            svg += "</title></rect>\n";
        }
        return svg;
    }

    const Drawn& drawn_;
};

std::string timeline_section(const json& statistics) {
    if (!statistics.contains("timeline")) {
        return "";
    }
    const auto timeline = timeline_from(statistics["timeline"]);
    if (timeline.steps().empty()) {
        return "";
    }
    const auto drawn = drawn_of(timeline);
    const std::string rest = drawn.all > drawn.end ? " Nearly all happened in this part of " +
                                                         duration(drawn.all) + "; the table has the rest."
                                                   : "";
    std::vector<Panel> panels = {
        {"Nodes that serve", {{"nodes", "programs", nodes_ready}}, short_number, true},
        {"Requests of programs, per second", {{"per second", "programs", requests}}, short_number},
        {"Operations on the filesystem, per second",
         {{"per second", "filesystem", operations}},
         short_number},
        {"Bytes per second",
         {{"to programs", "programs", bytes_read}, {"from the filesystem", "filesystem", bytes}},
         short_bytes,
         false,
         true}};
    const bool any_direct = std::any_of(drawn.steps.begin(), drawn.steps.end(),
                                        [](const auto& step) { return step.second[direct_reads] > 0; });
    if (any_direct) {
        panels.push_back({"Direct reads by nodes that could not wait, per second",
                          {{"per second", "filesystem", direct_reads}},
                          short_number});
    }
    std::string text =
        section("Time line of the start-up", "Seconds since the first node served, in steps of " +
                                                 short_number(drawn.step) + " s." + rest);
    const Plot plot(drawn);
    for (const auto& panel : panels) {
        text += plot.draw(panel);
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [at, counts] : drawn.steps) {
        rows.push_back({short_number(at) + " s", with_commas(counts[nodes_ready]),
                        with_commas(counts[requests]), with_commas(counts[operations]),
                        in_units(counts[bytes]), in_units(counts[bytes_read]),
                        with_commas(counts[direct_reads])});
    }
    return text + "<details><summary>The same as a table</summary>\n" +
           html_table({{"Begin of the step"},
                       {"Nodes ready"},
                       {"Requests"},
                       {"Filesystem operations"},
                       {"Bytes from the filesystem"},
                       {"Bytes to programs"},
                       {"Direct reads"}},
                      rows) +
           "</details>\n";
}

std::string savings_section(const json& totals) {
    struct Pair {
        const char* what;
        std::uint64_t wanted;
        std::uint64_t made;
        bool is_bytes;
    };
    const std::vector<Pair> pairs = {
        {"Files", total(totals, "fuse", "files_read"), total(totals, "backing", "file_opens"), false},
        {"Requests and operations", total(totals, "fuse", "requests"), operations_of(totals), false},
        {"Bytes", total(totals, "fuse", "bytes_read"), total(totals, "backing", "bytes"), true}};
    std::string text = section(
        "Asked for and made",
        "What the programs of all nodes asked Copper for (blue), and what Copper asked the filesystem for "
        "(copper). "
        "Requests that a node's kernel answered itself do not count: the programs asked for more than that.");
    text +=
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\"></th><th scope=\"col\">Asked for</th>"
        "<th scope=\"col\">Made</th><th scope=\"col\">Times fewer</th><th scope=\"col\"></th></tr></thead>"
        "<tbody>\n";
    for (const auto& pair : pairs) {
        const auto show = [&](std::uint64_t number) {
            return pair.is_bytes ? in_units(number) : with_commas(number);
        };
        const auto whole = std::max(pair.wanted, pair.made);
        const auto times =
            pair.made == 0 ? 0.0 : static_cast<double>(pair.wanted) / static_cast<double>(pair.made);
        text += std::string("<tr><td>") + pair.what + "</td><td>" + show(pair.wanted) + "</td><td>" +
                show(pair.made) + "</td><td>" +
                (times < 1 ? "-" : short_number(std::floor(times * 10) / 10)) + "</td><td class=\"wide\">" +
                bar(pair.wanted, whole, "programs") + bar(pair.made, whole, "filesystem") + "</td></tr>\n";
    }
    return text + "</tbody></table></div>\n";
}

std::string paths_section(const json& statistics, const char* count, const std::string& title,
                          const std::string& words) {
    const auto paths = statistics.value("top_paths", std::vector<json>());
    const auto shown = most(paths, count, paths_shown);
    if (shown.empty()) {
        return "";
    }
    const bool absent = count == std::string("absent");
    std::vector<std::vector<std::string>> rows;
    for (const auto& path : shown) {
        rows.push_back({html_escaped(text_of(path, "path")), with_commas(count_of(path, count))});
        if (!absent) {
            rows.back().push_back(in_units(count_of(path, "bytes_read")));
        }
    }
    std::vector<Column> columns = {{"Path", "path"}, {absent ? "Times asked for" : "Requests"}};
    if (!absent) {
        columns.push_back({"Bytes read"});
    }
    return section(title, words) + html_table(columns, rows);
}

std::string lost_table(const json& lost) {
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < std::min(lost.size(), lost_shown); ++i) {
        rows.push_back({html_escaped(text_of(lost[i], "host")), text_of(lost[i], "rank"),
                        html_escaped(text_of(lost[i], "why"))});
    }
    return "<p class=\"bad\">" + with_commas(lost.size()) + " lost" +
           (lost.size() > lost_shown ? "; the first " + std::to_string(lost_shown) + ":" : ":") + "</p>\n" +
           html_table({{"Lost node"}, {"Rank"}, {"Why", "words"}}, rows);
}

std::string nodes_section(const json& statistics) {
    const auto nodes = statistics.value("conspicuous", std::vector<json>());
    const json lost = statistics.value("lost", json::array());
    std::string text =
        section("Slow, degraded and lost nodes",
                "Nodes that do not serve as they should come first, then those whose programs waited "
                "longest. Compare them with the first row, the whole job.");
    if (!lost.empty()) {
        text += lost_table(lost);
    }
    std::uint64_t first_ready = UINT64_MAX;
    if (const auto timeline = statistics.find("timeline"); timeline != statistics.end()) {
        first_ready = count_of(*timeline, "begin_ms");
    }
    const auto& totals = statistics.at("totals");
    const auto waits = statistics.value("waits", json::object());
    const auto memory = statistics.value("memory", json::object());
    std::vector<std::vector<std::string>> rows = {
        {"all nodes", "", "", milliseconds_of(count_of(waits, "p99")),
         milliseconds_of(count_of(waits, "max")), with_commas(total(totals, "fallbacks", "direct_reads")),
         with_commas(total(totals, "fabric", "retries")),
         in_units(count_of(memory, "rss_bytes_max")) + " at most"}};
    for (const auto& node : nodes) {
        const auto ready = count_of(node, "ready_ms");
        const auto state = text_of(node, "state");
        const auto why = text_of(node, "why");
        rows.push_back({html_escaped(text_of(node, "host")),
                        (state == "serving" ? state : "<span class=\"bad\">" + state + "</span>") +
                            (why == "-" ? "" : ": " + html_escaped(why)),
                        ready == 0 || ready < first_ready
                            ? "-"
                            : short_number(static_cast<double>(ready - first_ready) / 1000) + " s",
                        milliseconds_of(count_of(node, "wait_p99_us")),
                        milliseconds_of(count_of(node, "wait_max_us")),
                        with_commas(count_of(node, "direct_reads")), with_commas(count_of(node, "retries")),
                        in_units(count_of(node, "rss_bytes"))});
    }
    if (const auto missing = statistics.find("per_node_missing"); missing != statistics.end()) {
        text += "<p class=\"soft\">These statistics have the nodes' sum, not each node's own: " +
                html_escaped(missing->get<std::string>()) + ".</p>\n";
    }
    return text + html_table({{"Host"},
                              {"State", "words"},
                              {"Served after"},
                              {"99% of waits below"},
                              {"Longest wait"},
                              {"Direct reads"},
                              {"Retries"},
                              {"Memory"}},
                             rows);
}

std::string ahead_section(const json& totals) {
    const auto foretold = total(totals, "profile", "foretold");
    const auto used = foretold + total(totals, "profile", "unforeseen");
    std::vector<std::vector<std::string>> rows;
    const auto guesser = [&](const std::string& what, const char* name) {
        const auto fetched = total(totals, "fuse", (std::string(name) + "_fetched").c_str());
        const auto hits = total(totals, "fuse", (std::string(name) + "_used").c_str());
        if (fetched > 0) {
            rows.push_back({what, with_commas(fetched), with_commas(hits), bar(hits, fetched, "programs")});
        }
    };
    if (const auto fetched = total(totals, "profile", "fetched"); fetched > 0) {
        rows.push_back(
            {"What an earlier job used (replay), " + in_units(total(totals, "profile", "bytes_fetched")),
             with_commas(fetched),
             with_commas(foretold) + " of the " + with_commas(used) + " that the first node used",
             bar(foretold, used, "programs")});
    }
    guesser("Files beside files in use", "siblings");
    guesser("Python modules that a module names", "imports");
    guesser("Libraries that a library needs", "libraries");
    if (rows.empty()) {
        return "";
    }
    return section("Fetched ahead",
                   "What Copper fetched before a program asked for it, and how much of that was used.") +
           html_table({{"What"}, {"Fetched"}, {"Used"}, {"Share used", "wide"}}, rows);
}

std::string tiles(const json& statistics) {
    const auto& totals = statistics.at("totals");
    const auto files = total(totals, "fuse", "files_read");
    const auto opens = total(totals, "backing", "file_opens");
    const auto direct = total(totals, "fallbacks", "direct_reads");
    const auto nodes = count_of(statistics, "nodes");
    const auto alive = count_of(statistics, "alive");
    return "<div class=\"tiles\">\n" + tile(with_commas(files), "files read by your programs") +
           tile(with_commas(opens), "files opened at the filesystem" + times_fewer(files, opens)) +
           tile(with_commas(operations_of(totals)), "operations on the filesystem in all") +
           tile(in_units(total(totals, "backing", "bytes")),
                "read from the filesystem, " + in_units(total(totals, "fuse", "bytes_read")) +
                    " given to your programs") +
           tile(with_commas(direct), "direct reads by nodes that could not wait", direct > 0) +
           tile(with_commas(alive) + " of " + with_commas(nodes), "nodes serve", alive < nodes) + "</div>\n";
}

}  // namespace

std::string report_page(const json& statistics) {
    const auto& totals = statistics.at("totals");
    const auto job = html_escaped(text_of(statistics, "job"));
    std::string trees;
    for (const auto& tree : statistics.value("trees", std::vector<std::string>())) {
        trees += (trees.empty() ? "" : ", ") + html_escaped(tree);
    }
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Copper: job " +
           job + "</title>\n<style>" + style + "</style></head>\n<body><main>\n<h1>Copper: job " + job +
           "</h1>\n<p class=\"soft\">" + (trees.empty() ? "" : "Mirror of " + trees + ". ") +
           "It served for " + duration(statistics.value("uptime_seconds", 0.0)) +
           " when these numbers were taken.</p>\n" + tiles(statistics) + savings_section(totals) +
           timeline_section(statistics) + nodes_section(statistics) +
           paths_section(
               statistics, "requests", "Hottest paths",
               "Asked for most, by all nodes together. Approximate: each node names only its own.") +
           paths_section(
               statistics, "absent", "Absent paths",
               "Names that programs looked for and that do not exist. They cost the filesystem nothing: "
               "Copper knows the names in a directory. Long search paths cause them.") +
           ahead_section(totals) + "</main></body></html>\n";
}

}  // namespace copper::cli
