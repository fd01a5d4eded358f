#include "tools/copper/programs/interpreter.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>

#include "base/path.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

constexpr std::string_view blanks = " \t";

std::string_view trimmed(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    return text.substr(0, text.find_last_not_of(blanks) + 1);
}

std::string_view take_line(std::string_view& text) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
}

// pip and uv write this second line into a script for sh if the interpreter's path is too long for the first
// line, or has blanks: '''exec' "/long/path/python3" -E "$0" "$@"
std::vector<std::string> executed_by_shell(std::string_view line) {
    const auto words = split_words(line);
    if (!line.starts_with("'''exec' ") || !words || words->size() < 4 || words->end()[-2] != "$0" ||
        words->back() != "$@") {
        return {};
    }
    return {words->begin() + 1, words->end() - 2};
}

// The beginning of a file, long enough for the lines above. Empty if it cannot be read.
std::string beginning_of(const std::string& path) {
    std::string text(2 * path_bytes_max, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

// The lines "key = value" of the pyvenv.cfg beside a Python, or one directory above.
std::map<std::string, std::string> virtual_environment_of(const std::string& program) {
    std::map<std::string, std::string> found;
    const auto directory = parent_path(program);
    for (const auto place : {directory, parent_path(directory)}) {
        std::ifstream file(join_path(place, "pyvenv.cfg"));
        for (std::string line; std::getline(file, line);) {
            if (const auto equals = line.find('='); equals != std::string::npos) {
                found.emplace(trimmed(std::string_view(line).substr(0, equals)),
                              trimmed(std::string_view(line).substr(equals + 1)));
            }
        }
    }
    return found;
}

}  // namespace

std::optional<std::string> program_through_mirror(const Mirror& mirror, const std::string& path,
                                                  const ResolvePath& resolve) {
    const auto name = base_name(path);
    if (const auto directory = through_mirror(mirror, parent_path(path), resolve)) {
        return join_path(*directory, name);
    }
    return name.starts_with("python") ? std::nullopt : through_mirror(mirror, path, resolve);
}

std::vector<std::string> interpreter_of(std::string_view text) {
    if (!text.starts_with("#!")) {
        return {};
    }
    text.remove_prefix(2);
    const auto line = trimmed(take_line(text));
    if (auto words = executed_by_shell(take_line(text)); !words.empty()) {
        return words;
    }
    const auto program = line.substr(0, line.find_first_of(blanks));
    if (!program.starts_with('/')) {
        return {};
    }
    std::vector<std::string> words = {std::string(program)};
    if (const auto argument = trimmed(line.substr(program.size())); !argument.empty()) {
        words.emplace_back(argument);
    }
    return words;
}

std::vector<std::string> with_mirrored_interpreter(const Mirror& mirror, const std::string& program,
                                                   std::vector<std::string> command,
                                                   const ResolvePath& resolve) {
    auto words = interpreter_of(beginning_of(program));
    const auto mirrored =
        words.empty() ? std::nullopt : program_through_mirror(mirror, words.front(), resolve);
    if (!mirrored) {
        return command;
    }
    words.front() = *mirrored;
    words.push_back(program);
    words.insert(words.end(), command.begin() + 1, command.end());
    return words;
}

std::optional<std::string> mirrored_standard_library(const Mirror& mirror, const std::string& program,
                                                     const ResolvePath& resolve) {
    const auto settings = virtual_environment_of(program);
    const auto home = settings.find("home");
    const auto version =
        settings.contains("version") ? settings.find("version") : settings.find("version_info");
    if (home == settings.end() || version == settings.end()) {
        return std::nullopt;
    }
    const auto programs = through_mirror(mirror, home->second, resolve);
    if (!programs) {
        return std::nullopt;
    }
    const auto& numbers = version->second;  // "3.11.2"
    const auto name = "python" + numbers.substr(0, numbers.find('.', numbers.find('.') + 1));
    for (const char* parent : {"lib64", "lib"}) {
        const auto place = join_path(join_path(parent_path(*programs), parent), name);
        if (::access(join_path(place, "os.py").c_str(), R_OK) == 0) {
            return joined(std::array{place, join_path(place, "lib-dynload")}, ":");
        }
    }
    return std::nullopt;
}

}  // namespace copper::cli
