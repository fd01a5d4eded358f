#include "cache/batch_evidence.hpp"

#include <algorithm>

namespace copper {

bool BatchEvidence::is_worth_batch(const std::string& path, const Directory& directory,
                                   std::uint64_t position) {
    if (!directory.is_proven || answers_at_once(directory)) {
        return is_worth_batch_at_once(directory);
    }
    if (directory.is_serial) {
        return false;
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
        run.length = std::min(run.length + 1, in_a_row);
    }
    run.last = position;
    return run.length == in_a_row;
}

}  // namespace copper
