// Finds the reports of rank 0's daemon about the nodes' readiness in the launcher's output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

struct Readiness {
    struct Failed {
        std::string host;
        std::string reason;
        std::string taken = {};  // "mount" or "private_directory": another user has this place there
        // As in ReadyAnswer (daemon/readiness.hpp): whose mirror has the mount.
        std::string batch_job = {};
        std::string batch_run = {};
        std::string launch = {};
        bool is_served = false;
        bool operator==(const Failed&) const = default;
    };
    std::uint32_t ready = 0;
    std::uint32_t nodes = 0;
    std::vector<Failed> failed;
    std::vector<std::string> missing;  // hosts that have not answered yet
    bool done = false;                 // this report is the last
    bool serves = false;               // all nodes are ready, or as many as must be: the job begins
    bool operator==(const Readiness&) const = default;
};

// A launcher may put a prefix in front of a line ("[1,0]<stdout>:"), or text behind it. Nothing if the line
// holds no report.
std::optional<Readiness> parse_readiness(std::string_view line);

// Collects the launcher's output. Text may come in any pieces.
class ReadyReader {
  public:
    // The last report in the lines that this text completes, if there is one.
    std::optional<Readiness> feed(std::string_view text);
    // The last lines of launcher and daemons that were no reports.
    std::vector<std::string> tail() const;

  private:
    std::optional<Readiness> take_line(std::string_view line);
    std::string unfinished_;
    std::vector<std::string> other_lines_;
};

}  // namespace copper::cli
