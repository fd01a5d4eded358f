#include "daemon/readiness.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.hpp"

namespace copper {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds patience{1000};
constexpr std::array taken_names = {"", "mount", "private_directory"};  // indexed by Taken

void print_line(const std::string& line) {
    // Nobody may be reading. The daemon goes on even if the pipe is closed.
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
}

const char* text_of(Taken taken) {
    return taken_names.at(static_cast<std::size_t>(taken));
}

bool is_occupied(const ReadyAnswer& answer) {
    return !answer.batch_job.empty() || !answer.launch.empty();
}

// Who has what this node needs.
void add_others(json& node, const ReadyAnswer& answer) {
    if (answer.taken != Taken::nothing) {
        node["taken"] = text_of(answer.taken);
    }
    if (is_occupied(answer)) {
        node.update({{"batch_job", answer.batch_job},
                     {"batch_run", answer.batch_run},
                     {"launch", answer.launch},
                     {"is_served", answer.is_served}});
    }
}

ReadyAnswer read_answer(const std::string& text) {
    const auto answer = read_json(text, [](const json& read) {
        const auto name =
            std::find(taken_names.begin(), taken_names.end(), read.value("taken", std::string()));
        return ReadyAnswer{.error = read.at("error").get<std::string>(),
                           .taken = name == taken_names.end()
                                        ? Taken::nothing
                                        : static_cast<Taken>(name - taken_names.begin()),
                           .batch_job = read.value("batch_job", ""),
                           .batch_run = read.value("batch_run", ""),
                           .launch = read.value("launch", ""),
                           .is_served = read.value("is_served", false)};
    });
    return answer.value_or(ReadyAnswer{.error = "its answer is malformed"});
}

}  // namespace

std::string to_text(const ReadyAnswer& answer) {
    json text = {{"error", answer.error}};
    add_others(text, answer);
    return json_line(text);
}

ReadyState ready_state(const ProgressLoop::Parts& parts, Wanted wanted, Look look, const NameOf& name_of) {
    auto failed = json::array();
    std::set<std::uint32_t> answered;
    // `copper launch` may make room, and then all nodes have a mirror.
    bool others_have_place = false;
    for (const auto& part : parts) {
        const auto answer = read_answer(part.text);
        answered.insert(part.rank.value);
        if (!answer.error.empty()) {
            failed.push_back({{"host", name_of(part.rank)}, {"reason", answer.error}});
            add_others(failed.back(), answer);
            others_have_place = others_have_place || answer.taken != Taken::nothing || is_occupied(answer);
        }
    }
    auto missing = json::array();
    for (std::uint32_t rank = 0; rank < wanted.nodes; ++rank) {
        if (!answered.contains(rank)) {
            missing.push_back(name_of(Rank{rank}));
        }
    }
    const bool done = missing.empty() || look == Look::last;
    const std::size_t ready = answered.size() - failed.size();
    const bool enough = ready > 0 && ready + wanted.missing_max >= wanted.nodes && !others_have_place;
    const bool serves = done && (ready == wanted.nodes || enough);
    const json line = {{"copper", "ready"},  {"ready", ready}, {"nodes", wanted.nodes}, {"failed", failed},
                       {"missing", missing}, {"done", done},   {"serves", serves}};
    auto outcome = ReadyState::Outcome::undecided;
    if (done) {
        outcome = serves ? ReadyState::Outcome::ready : ReadyState::Outcome::failed;
    }
    return {.line = json_line(line), .outcome = outcome};
}

void Readiness::begin(std::chrono::milliseconds timeout) {
    deadline_ = std::chrono::steady_clock::now() + timeout;
    ask();
}

void Readiness::ask() {
    loop_.call(
        ready_verb, "", patience, [this](const ProgressLoop::Parts& parts) { judge(parts); },
        Call::Silence::is_expected);
}

void Readiness::judge(const ProgressLoop::Parts& parts) {
    // A dead node will not answer any more; a suspect may.
    const auto& membership = loop_.membership();
    const bool all_answered = parts.size() >= membership.alive().size() + membership.suspects().size();
    const bool again = !all_answered && std::chrono::steady_clock::now() < deadline_;
    const Look look = again ? Look::again : Look::last;
    const ReadyState state =
        ready_state(parts, wanted_, look, [this](Rank rank) { return loop_.name_of(rank); });
    if (state.outcome == ReadyState::Outcome::ready) {
        loop_.call(begin_verb, "", patience, [this, state](const ProgressLoop::Parts&) {
            print_line(state.line);
            done_(state.outcome);
        });
        return;
    }
    print_line(state.line);
    if (state.outcome == ReadyState::Outcome::undecided) {
        ask();
    } else {
        done_(state.outcome);
    }
}

}  // namespace copper
