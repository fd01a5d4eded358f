#include "tools/copper/programs/check_report.hpp"

#include <sys/wait.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

struct Group {
    Cause cause;
    std::string variable;
    std::vector<const Bypass*> files = {};
    std::set<std::string> sources = {};
};

// By cause and variable.
std::vector<Group> groups_of(const Judgement& judgement) {
    std::map<std::pair<Cause, std::string>, Group> groups;
    for (const auto& bypass : judgement.around) {
        auto& group = groups
                          .try_emplace({bypass.cause, bypass.variable},
                                       Group{.cause = bypass.cause, .variable = bypass.variable})
                          .first->second;
        group.files.push_back(&bypass);
        if (!bypass.source.empty()) {
            group.sources.insert(bypass.source);
        }
    }
    std::vector<Group> list;
    for (auto& [key, group] : groups) {
        list.push_back(std::move(group));
    }
    return list;
}

// An export of the variable by name.
std::string advice_of(const Group& group) {
    std::string advice = cause_text(group.cause).advice;
    const auto at = group.cause == Cause::variable ? advice.find("NAME") : std::string::npos;
    return at == std::string::npos ? advice : advice.replace(at, 4, group.variable);
}

template <typename Items, typename Text>
std::string lines_of(const Items& items, Examples examples, Text text) {
    constexpr std::size_t few = 3;
    std::string lines;
    std::size_t shown = 0;
    for (const auto& item : items) {
        if (examples == Examples::few && shown == few) {
            return lines + "    and " + std::to_string(items.size() - few) + " more (--all shows all)\n";
        }
        lines += "    " + text(item) + "\n";
        ++shown;
    }
    return lines;
}

std::string group_text(const Group& group, Examples examples) {
    std::uint64_t opens = 0;
    for (const auto* bypass : group.files) {
        opens += bypass->opens;
    }
    std::string text = std::string("Because of ") + cause_text(group.cause).title +
                       (group.variable.empty() ? "" : " " + group.variable) + ": " +
                       counted(group.files.size(), "path") + ", opened " + counted(opens, "time") + "\n";
    text += lines_of(group.files, examples, [](const Bypass* bypass) { return bypass->path; });
    if (!group.sources.empty()) {
        text += "  named in\n";
        text += lines_of(group.sources, examples, [](const std::string& source) { return source; });
    }
    return text + "  What to do: " + advice_of(group) + "\n\n";
}

std::string verdict(const Judgement& judgement) {
    const auto around = judgement.around.size();
    if (judgement.opened == 0) {
        return "Nothing below the trees was opened.";
    }
    if (around == 0) {
        return "All " + std::to_string(judgement.opened) +
               " files and directories below the trees were opened through the mirror.";
    }
    constexpr double in_percent = 100;
    const auto percent =
        std::lround(in_percent * static_cast<double>(around) / static_cast<double>(judgement.opened));
    return std::to_string(around) + " of " + std::to_string(judgement.opened) +
           " files and directories below the trees were opened around the mirror (" +
           (percent == 0 ? "<1" : std::to_string(percent)) + "%).";
}

}  // namespace

std::string check_text(const CheckReport& report, Examples examples) {
    std::string text = "\n";  // after the command's own output
    for (const auto& group : groups_of(report.judgement)) {
        text += group_text(group, examples);
    }
    text +=
        report.watcher == Watcher::strace
            ? "Watched with strace: all programs on this node.\n"
            : "Watched with a preloaded library, because strace cannot be used here: static programs were "
              "not seen.\n";
    if (report.status != 0) {
        text += "The command ended with " + describe_status(report.status) + ".\n";
    }
    if (report.judgement.absent > 0) {
        text += counted(report.judgement.absent, "absent name") +
                (report.judgement.absent == 1 ? " was" : " were") + " looked for around the mirror.\n";
    }
    return text + verdict(report.judgement) + "\n";
}

nlohmann::json check_json(const CheckReport& report) {
    auto groups = nlohmann::json::array();
    for (const auto& group : groups_of(report.judgement)) {
        auto files = nlohmann::json::array();
        for (const auto* bypass : group.files) {
            files.push_back({{"path", bypass->path}, {"opens", bypass->opens}, {"source", bypass->source}});
        }
        groups.push_back({{"cause", cause_text(group.cause).name},
                          {"variable", group.variable},
                          {"advice", advice_of(group)},
                          {"files", std::move(files)}});
    }
    return {{"schema", 1},
            {"command", report.command},
            {"exit_code", WIFEXITED(report.status) ? nlohmann::json(WEXITSTATUS(report.status)) : nullptr},
            {"signal", WIFSIGNALED(report.status) ? nlohmann::json(WTERMSIG(report.status)) : nullptr},
            {"watched_with", report.watcher == Watcher::strace ? "strace" : "preload"},
            {"mount", report.mount},
            {"trees", report.trees},
            {"opened", report.judgement.opened},
            {"around", report.judgement.around.size()},
            {"absent", report.judgement.absent},
            {"groups", std::move(groups)}};
}

}  // namespace copper::cli
