// Whether a name's attributes are worth a batch of its neighbours.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// A program that looks up one name of a directory must not cost the filesystem an operation for each of the
// others. But `ls -l` asks for all of them, one after the other. So names are asked for alone until several
// in a row were close to each other; while that goes on, the batch they lie in is asked for, and at last the
// next one, too, so that it is there in time. Where the
// filesystem answers at once, a batch costs less than the messages for a few names, and no evidence is
// needed. Where it looks up one name at a time, a batch is one long wait, and never worth it.
//
// Thread-safe. What is forgotten (the table is bounded) costs a few messages.
class BatchEvidence {
  public:
    // Names that lie within `near` positions of the one before, and how many of them make a batch worth it.
    static constexpr std::uint64_t near = 8;
    static constexpr std::uint32_t in_a_row = 8;
    static constexpr std::uint32_t in_a_row_for_next = 128;
    static constexpr std::chrono::microseconds fast_operation{200};
    static constexpr std::size_t directories_max = 1024;

    enum class Worth : std::uint8_t { none, batch, batch_and_next };
    // A program asks for the name at this position: what to ask for.
    Worth judge(const std::string& path, const Directory& directory, std::uint64_t position);

    static bool answers_at_once(const Directory& directory) {
        return directory.operation_time < fast_operation;
    }
    // Names that are not proven are read again soon, perhaps as another version: then their batches would be
    // read again, too, with other attributes than some nodes know. So those names are asked for alone.
    static bool is_worth_batch_at_once(const Directory& directory) {
        return directory.is_proven && answers_at_once(directory);
    }

  private:
    struct Run {
        std::uint64_t last = 0;
        std::uint32_t length = 0;
    };
    Guarded<std::unordered_map<std::string, Run>> runs_;  // by the directory's path
};

}  // namespace copper
