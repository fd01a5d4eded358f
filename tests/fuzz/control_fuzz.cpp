// What tools and daemons say to each other on one node: requests, replies, and the reports of readiness among
// the launcher's output.
#include "daemon/control/control.hpp"

#include "tests/fuzz/fuzz.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/look/statistics.hpp"
#include "tools/copper/nodes/ask_job.hpp"
#include "tools/copper/nodes/ready.hpp"

namespace copper::fuzz {
namespace {

void request(std::string_view text) {
    const auto request = parse_request(text);
    if (!request) {
        must(!request.error().empty(), "a refusal has a reason");
        return;
    }
    const auto back = parse_request(to_line(*request));
    must(back && back->verb == request->verb && back->argument == request->argument &&
             back->patience == request->patience,
         "a request comes back");
}

void reply(std::string_view text) {
    const auto reply = parse_reply(text);
    if (!reply) {
        must(!reply.error().empty(), "a refusal has a reason");
        return;
    }
    const auto back = parse_reply(to_line(*reply));
    must(back && to_line(*back) == to_line(*reply) && back->parts.size() == reply->parts.size(),
         "a reply comes back");
    try {
        must(!cli::statistics_of(*reply, {"cn1", "cn2"}, "/m", 5).sum.empty(), "a sum has its keys");
    } catch (const nlohmann::json::exception&) {  // no answers of nodes
    } catch (const std::out_of_range&) {
    }
    constexpr std::uint32_t table_nodes_max = 1000;  // a longer table tells nothing more
    const bool small = reply->nodes <= table_nodes_max;
    for (const auto& node : small ? cli::per_node(*reply) : std::vector<nlohmann::json>()) {
        for (const char* key : {"host", "state", "uptime_seconds"}) {
            must(!cli::text_of(node, key).empty(), "a cell of a table is not empty");
        }
    }
}

// Output comes in any pieces.
void readiness(std::string_view text, std::size_t cut) {
    cli::ReadyReader whole;
    const auto last = whole.feed(text);
    cli::ReadyReader pieces;
    const auto first_part = pieces.feed(text.substr(0, cut));
    const auto second_part = pieces.feed(text.substr(cut));
    must(last == (second_part ? second_part : first_part), "reports do not depend on how output comes");
    must(whole.tail() == pieces.tail(), "nor do the other lines");
}

}  // namespace
}  // namespace copper::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    const auto text = fuzz::text_of(data, size);
    fuzz::request(text);
    fuzz::reply(text);
    fuzz::readiness(text, size / 2);
    return 0;
}
