// Texts of batch systems, users and the kernel. The first byte of an input says of which kind the rest is: a
// list of nodes ('h'), a mount table ('m'), words as for a shell ('w'), or a trace of strace ('t').
#include <sstream>

#include "base/mount_table.hpp"
#include "base/path.hpp"
#include "base/shell_quote.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/programs/check_judge.hpp"

namespace copper::fuzz {
namespace {

void hosts(std::string_view text) {
    const auto hosts = cli::parse_hosts(text);
    std::string lines;
    for (const auto& host : hosts) {
        must(!host.empty(), "a host has a name");
        lines += host + '\n';
    }
    must(cli::parse_hosts(lines) == hosts, "a list of hosts comes back");
    must(cli::hosts_without(hosts, hosts).empty(), "all hosts without all hosts are none");
    if (const auto expanded = cli::expand_hosts(text)) {
        must(!expanded->empty(), "a list names a host");
    }
}

void mounts(std::string_view text) {
    const auto mounts = parse_mounts(text);
    const MountMap map(mounts);
    for (const auto& mount : mounts) {
        const auto obstacle = map.obstacle(mount.point);
        must(!obstacle || is_within(mount.point, obstacle->point), "an obstacle is on the way");
        for (const auto& [name, kind] : map.obstacles_in(mount.point)) {
            const auto found = map.obstacle(join_path(mount.point, name));
            must(found && found->kind == kind, "an obstacle in a directory is one on the way");
        }
    }
    for (const auto& mount : cli::copper_mounts_among(parse_mounts(text))) {
        must(!mount.id.empty(), "a mount has a number");
    }
}

void words(std::string_view text) {
    const auto words = cli::split_words(text);
    must(!words || cli::split_words(shell_quote(*words)) == *words, "words come back");
    must(cli::split_words(shell_quote(text)) == std::vector<std::string>{std::string(text)},
         "any text can be a word");
}

void trace(std::string_view text) {
    std::vector<cli::Call> calls;
    std::istringstream lines{std::string(text)};
    for (const auto& [process, its_calls] : cli::read_calls(lines)) {
        calls.insert(calls.end(), its_calls.begin(), its_calls.end());
    }
    const auto judgement =
        cli::judge(calls, {.mirror = {.mount = "/m", .trees = {"/t"}, .mounts = {"/m"}},
                           .apart = {},
                           .resolve = [](const std::string& path) { return std::optional(path); },
                           .read = [&](const std::string&, std::size_t bytes_max) -> std::string {
                               return std::string(text.substr(0, bytes_max));
                           }});
    must(judgement.around.size() <= judgement.opened, "what is opened around the mirror is opened");
    for (const auto& bypass : judgement.around) {
        must(is_within(bypass.path, "/t"), "what counts lies in the tree");
    }
}

}  // namespace
}  // namespace copper::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    const auto text = fuzz::text_of(data, size);
    const auto rest = text.substr(std::min<std::size_t>(1, size));
    if (text.starts_with('h')) {
        fuzz::hosts(rest);
    } else if (text.starts_with('m')) {
        fuzz::mounts(rest);
    } else if (text.starts_with('w')) {
        fuzz::words(rest);
    } else if (text.starts_with('t')) {
        fuzz::trace(rest);
    }
    return 0;
}
