#include "tools/copper/look/top_view.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "daemon/control/sum.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

// File names may contain anything, also what a terminal takes for commands.
std::string printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
}

// The end of a path says more than its begin.
std::string shortened(const std::string& path, std::size_t width) {
    constexpr std::string_view dots = "...";
    return path.size() <= width ? path : std::string(dots) + path.substr(path.size() + dots.size() - width);
}

std::string left(std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
}

std::string right(const std::string& text, std::size_t width) {
    return std::string(width - std::min(width, text.size()), ' ') + text;
}

class View {
  public:
    View(const Sample& now, const std::optional<Sample>& before, std::size_t width, std::size_t height)
        : now_(now), before_(before), width_(width), height_(height) {}

    std::vector<std::string> lines() {
        add_head();
        add_rates();
        add_nodes();
        add_paths();
        for (auto& line : lines_) {
            line = printable(line.substr(0, width_));
        }
        lines_.resize(std::min(lines_.size(), height_));
        return lines_;
    }

  private:
    void add_head() {
        const auto& sum = now_.job.sum;
        const auto serving = sum["serving"].get<std::uint64_t>();
        lines_.push_back("Copper, job " + now_.job.job + ": " + std::to_string(serving) + " of " +
                         std::to_string(now_.job.nodes) + " nodes serve, for " +
                         text_of(sum, "uptime_seconds") + " s");
        const auto trees = sum.value("trees", std::vector<std::string>());
        lines_.push_back("mirror of " + joined(trees, ", ") + " at " + now_.job.mount);
        lines_.emplace_back();
    }

    struct Row {
        const char* what;
        std::uint64_t (*count)(const json& sum);
        bool is_bytes = false;
    };
    void add_rates() {
        static constexpr std::array rows = {
            Row{"files read by programs", [](const json& sum) { return total(sum, "fuse", "files_read"); }},
            Row{"files opened at the filesystem",
                [](const json& sum) { return total(sum, "backing", "file_opens"); }},
            Row{"requests of programs", [](const json& sum) { return total(sum, "fuse", "requests"); }},
            Row{"operations on the filesystem", [](const json& sum) { return operations_of(sum); }},
            Row{"bytes to programs", [](const json& sum) { return total(sum, "fuse", "bytes_read"); }, true},
            Row{"bytes from the filesystem", [](const json& sum) { return total(sum, "backing", "bytes"); },
                true},
            Row{"direct reads", [](const json& sum) { return total(sum, "fallbacks", "direct_reads"); }}};
        add_row("", "PER SECOND", "IN ALL");
        std::uint64_t above = 0;
        for (const auto& row : rows) {
            const auto count = row.count(now_.job.sum);
            // Every second row is what the filesystem had to do for the row above.
            const bool is_below = &row == &rows[1] || &row == &rows[3] || &row == &rows[5];
            add_row(row.what, rate(row, count), row.is_bytes ? in_units(count) : std::to_string(count),
                    is_below ? times_fewer(above, count) : "");
            above = count;
        }
        add_row("cache used", "", in_units(total(now_.job.sum, "cache", "bytes")),
                " of " + in_units(total(now_.job.sum, "cache", "budget_bytes")));
        lines_.emplace_back();
    }
    void add_row(const std::string& what, const std::string& rate, const std::string& all,
                 const std::string& remark = "") {
        constexpr std::size_t what_width = 32;
        constexpr std::size_t number_width = 14;
        lines_.push_back(left(what, what_width) + right(rate, number_width) + right(all, number_width) +
                         remark);
    }
    std::string rate(const Row& row, std::uint64_t count) const {
        if (!before_) {
            return "-";
        }
        // A node that is lost takes its counts with it.
        const auto earlier = std::min(row.count(before_->job.sum), count);
        const std::chrono::duration<double> time = now_.at - before_->at;
        const auto per_second = static_cast<std::uint64_t>(
            std::llround(static_cast<double>(count - earlier) / std::max(time.count(), 0.001)));
        return row.is_bytes ? in_units(per_second) : std::to_string(per_second);
    }

    void add_nodes() {
        constexpr std::size_t number_width = 13;
        lines_.push_back(left("LOST, DEGRADED, OR WAITING", name_width) +
                         right("99% OF WAITS", number_width) + right("LONGEST WAIT", number_width + 1) +
                         right("DIRECT READS", number_width + 1));
        const auto begin = lines_.size();
        const auto end = begin + std::max<std::size_t>((height_ - begin) / 2, 2) - 1;
        add_lost(end);
        for (const auto& node : now_.job.sum["conspicuous"]) {
            const auto in_ms = [&node](const char* key) {
                return std::to_string((node.value(key, std::uint64_t{0}) + 999) / 1000) + " ms";
            };
            add_until(end, left(name_of(node), name_width) + right(in_ms("wait_p99_us"), number_width) +
                               right(in_ms("wait_max_us"), number_width + 1) +
                               right(text_of(node, "direct_reads"), number_width + 1) +
                               (serves(node) ? "" : "  " + text_of(node, "state")));
        }
        // What is below stays where it is when nodes are lost or come back.
        lines_.resize(std::max(lines_.size(), std::min(end, begin + now_.job.nodes)));
        lines_.emplace_back();
    }
    // Leaves room for those that answer and do not serve.
    void add_lost(std::size_t end) {
        const auto& others = now_.job.sum["conspicuous"];
        const auto degraded = static_cast<std::size_t>(std::ranges::count_if(others, std::not_fn(serves)));
        const auto rows = end - lines_.size();
        const auto room = rows - std::min(degraded, rows / 2);
        const auto lost = now_.job.lost.size();
        const auto named = lost <= room ? lost : room - 1;
        for (std::size_t i = 0; i < named; ++i) {
            const auto& node = now_.job.lost[i];
            lines_.push_back(left(name_of(node), name_width) + "lost: " + text_of(node, "why"));
        }
        if (named < lost) {
            lines_.push_back("and " + std::to_string(lost - named) + " more lost nodes");
        }
    }
    void add_until(std::size_t end, const std::string& line) {
        if (lines_.size() < end) {
            lines_.push_back(line);
        }
    }
    static bool serves(const json& node) { return text_of(node, "state") == "serving"; }
    // Nodes of one machine (--local) differ in their ranks only.
    std::string name_of(const json& node) const {
        const auto host = text_of(node, "host");
        if (host == "-") {
            return "rank " + text_of(node, "rank");
        }
        const bool is_shared = std::ranges::count_if(now_.job.sum["conspicuous"], [&](const json& other) {
                                   return text_of(other, "host") == host;
                               }) > 1;
        return shortened(is_shared ? host + "#" + text_of(node, "rank") : host, name_width - 2);
    }

    void add_paths() {
        constexpr std::size_t number_width = 10;
        lines_.push_back(right("REQUESTS", number_width) + right("ABSENT", number_width) + "  HOTTEST PATHS");
        for (const auto& path : most(now_.job.sum["top_paths"], "requests", height_)) {
            lines_.push_back(right(text_of(path, "requests"), number_width) +
                             right(text_of(path, "absent"), number_width) + "  " +
                             shortened(text_of(path, "path"), width_ - 2 * number_width - 2));
        }
    }

    static constexpr std::size_t name_width = 26;

    const Sample& now_;
    const std::optional<Sample>& before_;
    const std::size_t width_;
    const std::size_t height_;
    std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> top_view(const Sample& now, const std::optional<Sample>& before, std::size_t width,
                                  std::size_t height) {
    return View(now, before, width, height).lines();
}

}  // namespace copper::cli
