#include "cache/batch_evidence.hpp"

#include <algorithm>

namespace copper {

BatchEvidence::Worth BatchEvidence::judge(const std::string& path, const Directory& directory,
                                          std::uint64_t position) {
    const bool at_once = answers_at_once(directory);
    if (!directory.is_proven || (directory.is_serial && !at_once)) {
        return Worth::none;
    }
    auto runs = runs_.lock();
    if (runs->size() >= directories_max && !runs->contains(path)) {
        runs->clear();
    }
    Run& run = (*runs)[path];
    const std::uint64_t distance = std::max(run.last, position) - std::min(run.last, position);
    if (distance > near) {
        run.length = 0;
    } else if (distance > 0) {  // the same name again tells nothing
        run.length = std::min(run.length + 1, in_a_row_for_next);
    }
    run.last = position;
    if (run.length == in_a_row_for_next) {
        return Worth::batch_and_next;
    }
    return at_once || run.length >= in_a_row ? Worth::batch : Worth::none;
}

}  // namespace copper
