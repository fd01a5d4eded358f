// What tools get over the control socket: what the nodes answered to a roll call, as one reply.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/control/control.hpp"
#include "daemon/supervisor_link.hpp"
#include "wire/message.hpp"

namespace copper {

// Thread-safe.
class Replies {
  public:
    using Parts = std::vector<Answer::Part>;
    using NameOf = std::function<std::string(Rank)>;  // Fabric::name_of

    // Without `name_of`: of a successor, which is alone.
    Replies(std::string job, Place place, NameOf name_of)
        : job_(std::move(job)), place_(place), name_of_(std::move(name_of)) {}

    ControlReply refusal(std::string why) const;
    ControlReply of_this_node(nlohmann::json body) const;
    // One part for each node that answered.
    ControlReply of_each(const Parts& parts) const;
    // One part that adds up all answers to verb::sum (sum.hpp), with "lost": the ranks without an answer.
    ControlReply of_sum(const Parts& parts, const std::string& paths_max) const;

  private:
    ControlReply empty() const { return {.job = job_, .nodes = place_.nodes}; }
    std::uint32_t rank_of(Rank answered) const { return name_of_ ? answered.value : place_.rank; }
    void add_silent(ControlReply& reply, const std::vector<bool>& heard) const;

    const std::string job_;
    const Place place_;
    const NameOf name_of_;
};

// Adds up answers to verb::sum on their way to the asker. Nothing if one makes no sense: then the asker gets
// them as they are.
std::optional<std::string> joined_sum(const std::string& paths_max, const Replies::Parts& parts);

}  // namespace copper
