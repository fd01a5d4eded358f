#include "daemon/replies.hpp"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "base/json_text.hpp"
#include "daemon/control/sum.hpp"

namespace copper {
namespace {

using nlohmann::json;

// Another node's answer; empty if it makes no sense.
json body_of(const std::string& text) {
    const auto body = read_json(text, [](const json& read) { return read; });
    return body && body->is_object() ? *body : json::object();
}

json sum_of_parts(const Replies::Parts& parts, const std::string& paths_max) {
    std::vector<json> answers;
    for (const auto& part : parts) {
        answers.push_back(body_of(part.text));
    }
    return sum_of(answers, std::strtoull(paths_max.c_str(), nullptr, 10));
}

}  // namespace

std::optional<std::string> joined_sum(const std::string& paths_max, const Replies::Parts& parts) {
    try {
        return json_line(sum_of_parts(parts, paths_max));
    } catch (const std::exception& error) {
        spdlog::warn("cannot add up what nodes answered: {}", error.what());
        return std::nullopt;
    }
}

ControlReply Replies::refusal(std::string why) const {
    ControlReply reply = empty();
    reply.error = std::move(why);
    return reply;
}

ControlReply Replies::of_this_node(json body) const {
    ControlReply reply = empty();
    reply.parts.push_back({.rank = place_.rank, .body = std::move(body)});
    return reply;
}

ControlReply Replies::of_each(const Parts& parts) const {
    ControlReply reply = empty();
    std::vector<bool> heard(place_.nodes);
    for (const auto& part : parts) {
        reply.parts.push_back({.rank = rank_of(part.rank), .body = body_of(part.text)});
        heard[rank_of(part.rank)] = true;
    }
    add_silent(reply, heard);
    return reply;
}

ControlReply Replies::of_sum(const Parts& parts, const std::string& paths_max) const {
    json sum;
    try {
        sum = sum_of_parts(parts, paths_max);
    } catch (const std::exception& error) {
        return refusal(std::string("cannot add up what the nodes answered: ") + error.what());
    }
    std::vector<bool> heard(place_.nodes);
    for (const auto& part : parts) {
        heard[rank_of(part.rank)] = true;
        for (const Rank rank : part.with) {
            heard[rank.value] = true;
        }
    }
    sum["lost"] = json::array();
    for (std::uint32_t rank = 0; rank < place_.nodes; ++rank) {
        if (!heard[rank]) {
            sum["lost"].push_back(rank);
        }
    }
    ControlReply reply = of_this_node(std::move(sum));
    add_silent(reply, heard);
    return reply;
}

void Replies::add_silent(ControlReply& reply, const std::vector<bool>& heard) const {
    for (std::uint32_t rank = 0; rank < place_.nodes && name_of_; ++rank) {
        if (!heard[rank]) {
            reply.silent[rank] = name_of_(Rank{rank});
        }
    }
}

}  // namespace copper
