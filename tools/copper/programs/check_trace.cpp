#include "tools/copper/programs/check_trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

namespace copper::cli {

namespace {

namespace fs = std::filesystem;

// Takes `text` up to and with `end` from the front of `rest`. Nothing if `end` is missing.
std::optional<std::string_view> take_until(std::string_view& rest, std::string_view end) {
    const auto at = rest.find(end);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    const auto taken = rest.substr(0, at);
    rest.remove_prefix(at + end.size());
    return taken;
}

// "\x2f\x61" is "/a": strace -xx writes every byte like this.
std::optional<std::string> from_hex(std::string_view text) {
    constexpr std::size_t width = 4;
    if (text.size() % width != 0) {
        return std::nullopt;
    }
    std::string bytes;
    for (; !text.empty(); text.remove_prefix(width)) {
        unsigned char byte = 0;
        const auto [end, error] = std::from_chars(text.data() + 2, text.data() + width, byte, 16);
        if (!text.starts_with("\\x") || error != std::errc() || end != text.data() + width) {
            return std::nullopt;
        }
        bytes += static_cast<char>(byte);
    }
    return bytes;
}

// The place of a descriptor, like 3<\x2f\x61>; nothing for pipes and sockets.
std::string place_of(std::string_view descriptor) {
    const auto begin = take_until(descriptor, "<");
    const auto place = begin ? take_until(descriptor, ">") : std::nullopt;
    const auto path = place ? from_hex(*place) : std::nullopt;
    return path && path->starts_with('/') ? *path : std::string();
}

// 0x80000, 02 or 1.
int number_at_start(std::string_view text) {
    const bool is_hex = text.starts_with("0x");
    int number = 0;
    std::from_chars(text.data() + (is_hex ? 2 : 0), text.data() + text.size(), number, is_hex ? 16 : 10);
    return number;
}

}  // namespace

std::optional<std::string> Call::absolute_path() const {
    if (!path.starts_with('/') && directory.empty()) {
        return std::nullopt;
    }
    auto absolute = (fs::path(directory) / path).lexically_normal().string();
    return absolute.size() > 1 && absolute.ends_with('/') ? absolute.substr(0, absolute.size() - 1)
                                                          : absolute;
}

std::optional<Call> parse_call(std::string_view line) {
    constexpr std::array opens = {"open", "openat", "openat2"};
    constexpr std::array execs = {"execve", "execveat"};
    const auto result_at = line.rfind(") = ");
    const auto name = take_until(line, "(");
    if (!name || result_at == std::string_view::npos || result_at <= name->size()) {
        return std::nullopt;
    }
    const bool is_exec = std::find(execs.begin(), execs.end(), *name) != execs.end();
    if (!is_exec && std::find(opens.begin(), opens.end(), *name) == opens.end()) {
        return std::nullopt;
    }
    auto arguments = line.substr(0, result_at - name->size() - 1);
    const auto result = line.substr(result_at - name->size() - 1 + std::string_view(") = ").size());
    const auto before_path = take_until(arguments, "\"");
    const auto quoted = before_path ? take_until(arguments, "\"") : std::nullopt;
    auto path = quoted ? from_hex(*quoted) : std::nullopt;
    const bool is_absent = result.starts_with("-1 ENOENT") || result.starts_with("-1 ENOTDIR");
    if (!path || (result.starts_with('-') && !is_absent) || result.starts_with('?')) {
        return std::nullopt;
    }
    const bool is_relative = !path->starts_with('/');
    const bool has_working_directory = before_path->empty() || before_path->starts_with("-100");  // AT_FDCWD
    Call call{.kind = is_exec ? Call::Kind::exec : Call::Kind::open,
              .path = std::move(*path),
              .directory = place_of(*before_path),
              .in_working_directory = is_relative && has_working_directory,
              .is_absent = is_absent};
    if (is_exec) {
        return call;
    }
    // openat2 has {flags=..., mode=...}.
    const auto digit = arguments.find_first_of("0123456789");
    call.flags = digit == std::string_view::npos ? 0 : number_at_start(arguments.substr(digit));
    call.place = is_absent ? std::string() : place_of(result);
    return call;
}

std::map<std::string, std::vector<Call>> read_calls(std::istream& trace) {
    struct Process {
        std::string unfinished = {};    // a line that lacks its end, because another process was faster
        std::size_t begin_unknown = 0;  // calls from here on may lack their directory
    };
    std::map<std::string, Process> processes;
    std::map<std::string, std::vector<Call>> calls;
    for (std::string line; std::getline(trace, line);) {
        const auto digits = std::min(line.find_first_not_of("0123456789"), line.size());
        const std::string id = line.substr(0, digits);
        auto& process = processes[id];
        std::string_view rest = std::string_view(line).substr(digits);
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
        constexpr std::string_view unfinished = " <unfinished ...>";
        if (rest.ends_with(unfinished)) {
            process.unfinished = rest.substr(0, rest.size() - unfinished.size());
            continue;
        }
        if (rest.starts_with("<... ") && take_until(rest, " resumed>")) {
            process.unfinished += rest;
            rest = process.unfinished;
        }
        auto call = parse_call(rest);
        if (!call) {
            continue;
        }
        auto& own = calls[id];
        own.push_back(std::move(*call));
        const bool has_working_directory = rest.find("(-100<") != std::string_view::npos;  // AT_FDCWD
        for (; has_working_directory && process.begin_unknown < own.size(); ++process.begin_unknown) {
            if (own[process.begin_unknown].directory.empty()) {
                own[process.begin_unknown].directory = own.back().directory;
            }
        }
    }
    return calls;
}

}  // namespace copper::cli
