#include "tools/copper/programs/check_report.hpp"

#include <sys/wait.h>

#include <cmath>

#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

std::string paths_of(const std::vector<Bypass>& around, Examples examples) {
    constexpr std::size_t few = 10;
    std::string lines;
    for (std::size_t i = 0; i < around.size(); ++i) {
        if (examples == Examples::few && i == few) {
            return lines + "    and " + std::to_string(around.size() - few) + " more (--all shows all)\n";
        }
        lines += "    " + around[i].path + "\n";
    }
    return lines;
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
    const auto& judgement = report.judgement;
    std::string text = "\n";  // after the command's own output
    if (!judgement.around.empty()) {
        text += "Opened around the mirror:\n" + paths_of(judgement.around, examples) +
                "Nothing goes around the view ('copper run' where the node has one). Without it, 'What "
                "changed paths\ndo not reach' in docs/use/view.md tells what names such paths; 'copper path "
                "PATH' gives their places\nin the mirror.\n\n";
    }
    if (report.status != 0) {
        text += "The command ended with " + describe_status(report.status) + ".\n";
    }
    if (judgement.absent > 0) {
        text += counted(judgement.absent, "absent name") + (judgement.absent == 1 ? " was" : " were") +
                " looked for around the mirror.\n";
    }
    return text + verdict(judgement) + "\n";
}

nlohmann::json check_json(const CheckReport& report) {
    auto files = nlohmann::json::array();
    for (const auto& [path, opens] : report.judgement.around) {
        files.push_back({{"path", path}, {"opens", opens}});
    }
    return {{"schema", 2},
            {"command", report.command},
            {"exit_code", WIFEXITED(report.status) ? nlohmann::json(WEXITSTATUS(report.status)) : nullptr},
            {"signal", WIFSIGNALED(report.status) ? nlohmann::json(WTERMSIG(report.status)) : nullptr},
            {"mount", report.mount},
            {"trees", report.trees},
            {"opened", report.judgement.opened},
            {"around", report.judgement.around.size()},
            {"absent", report.judgement.absent},
            {"files", std::move(files)}};
}

}  // namespace copper::cli
