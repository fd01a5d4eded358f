// What `copper check` prints.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/copper/programs/check_judge.hpp"

namespace copper::cli {

struct CheckReport {
    std::vector<std::string> command;
    int status = 0;  // of the command, as of waitpid(2)
    std::string mount;
    std::vector<std::string> trees;
    Judgement judgement;
};
enum class Examples : std::uint8_t { few, all };
std::string check_text(const CheckReport& report, Examples examples);
// {"schema": 2, "command", "exit_code" or "signal" (of the command), "mount", "trees", "opened" (files and
//  directories below the trees), "around" (of those, around the mirror), "absent",
//  "files": [{"path", "opens"}, ...]} (around the mirror). Users read this: keep the names.
nlohmann::json check_json(const CheckReport& report);

}  // namespace copper::cli
