#include "tools/copper/programs/check_causes.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "base/path.hpp"
#include "tools/copper/programs/interpreter.hpp"

namespace copper::cli {

namespace {

struct Reason {
    Cause cause = Cause::literal;
    std::string variable = {};
    std::string source = {};
};
// Everything below `prefix` was probably opened for this reason.
struct Hint {
    std::string prefix;
    Reason reason;
};

constexpr std::size_t script_bytes_max = 256;  // of which the kernel looks for an interpreter
constexpr std::size_t text_bytes_max = 1U << 20U;

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const auto begin = std::min(text.find_first_not_of(blanks), text.size());
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

// What a program's own files lie below: /a of /a/bin/python3.
std::string home_of(std::string_view program) {
    const auto directory = parent_path(program);
    return std::string(base_name(directory) == "bin" ? parent_path(directory) : directory);
}

// Absolute paths in quotes: an editable install can be a module with a table of places.
std::vector<std::string> quoted_paths(const std::string& text) {
    std::vector<std::string> paths;
    for (const char quote : {'\'', '"'}) {
        for (std::size_t at = 0; (at = text.find(std::string(1, quote) + "/", at)) != std::string::npos;) {
            const auto end = text.find(quote, ++at);
            if (end == std::string::npos) {
                break;
            }
            paths.push_back(text.substr(at, end - at));
            at = end + 1;
        }
    }
    return paths;
}

bool reads(const Call& call) {
    return (call.flags & (O_CREAT | O_ACCMODE)) == O_RDONLY;
}

class Judge {
  public:
    Judge(const Evidence& evidence, const Surroundings& surroundings)
        : evidence_(evidence), around_(surroundings) {}

    Judgement judge() {
        collect_hints();
        for (const auto& call : evidence_.calls) {
            if (call.kind == Call::Kind::exec && !call.is_absent) {
                start(call);
            }
        }
        for (const auto& call : evidence_.calls) {
            if (call.kind == Call::Kind::open) {
                open(call);
            }
        }
        for (const auto& library : evidence_.libraries.loaded) {
            if (const auto place = around_.resolve(library)) {
                opened(library, *place);
            }
        }
        Judgement judgement{.around = {}, .opened = through_.size(), .absent = absent_.size()};
        for (auto& [path, bypass] : seen_) {
            judgement.opened += through_.contains(path) ? 0U : 1U;
            judgement.around.push_back(std::move(bypass));
        }
        return judgement;
    }

  private:
    const Mirror& mirror() const { return around_.mirror; }

    static bool is_in(const std::vector<std::string>& places, std::string_view path) {
        return std::any_of(places.begin(), places.end(),
                           [&](const std::string& place) { return is_within(path, place); });
    }
    bool is_in_mirror(std::string_view path) const {
        return is_within(path, mirror().mount) || is_in(mirror().mounts, path);
    }
    bool is_around(std::string_view path) const {
        return is_in(mirror().trees, path) && !is_in_mirror(path) && !is_in(around_.apart, path);
    }

    // The path that is mirrored at this place; nothing if none is.
    std::optional<std::string> original_of(const std::string& place) const {
        auto original = out_of_mirror(mirror().mount, place);
        for (auto mount = mirror().mounts.begin(); !original && mount != mirror().mounts.end(); ++mount) {
            original = out_of_mirror(*mount, place);
        }
        return original;
    }
    Reason named_in(const std::string& file, Cause cause) const {
        return {cause, {}, original_of(file).value_or(file)};
    }

    // ---- Why a program may open a path.

    void hint(const std::string& text, const Reason& reason) {
        const auto prefix = normalise_path(text).value_or(text);
        const auto place = around_.resolve(prefix);
        if (is_around(place.value_or(prefix))) {
            hints_.push_back({prefix, reason});
            if (place && *place != prefix) {
                hints_.push_back({*place, reason});
            }
        }
    }

    void collect_hints() {
        std::set<std::string> files, variables;
        for (const auto& call : evidence_.calls) {
            variables.insert(call.environment.begin(), call.environment.end());
            if (!reads(call)) {
                written_.insert(call.place);
            } else if (call.place.ends_with(".pth") || base_name(call.place) == "pyvenv.cfg") {
                files.insert(call.place);
            }
        }
        for (const auto& file : files) {
            file.ends_with(".pth") ? read_pth(file) : read_venv(file);
        }
        for (const auto& variable : variables) {
            read_variable(variable);
        }
    }

    void read_pth(const std::string& file) {
        std::istringstream lines(around_.read(file, text_bytes_max));
        for (std::string line; std::getline(lines, line);) {
            const auto text = trimmed(line);
            if (text.starts_with('/')) {
                hint(std::string(text), named_in(file, Cause::pth));
            } else if (text.starts_with("import ")) {
                const auto module = text.substr(7, text.find_first_of(" ;,.", 7) - 7);
                const auto beside = join_path(parent_path(file), std::string(module) + ".py");
                for (const auto& path : quoted_paths(around_.read(beside, text_bytes_max))) {
                    hint(path, named_in(beside, Cause::pth));
                }
            }
        }
    }

    void read_venv(const std::string& file) {
        std::istringstream lines(around_.read(file, text_bytes_max));
        for (std::string line; std::getline(lines, line);) {
            const auto equals = line.find('=');
            if (equals != std::string::npos && trimmed(line.substr(0, equals)) == "home") {
                const auto home = std::string(trimmed(std::string_view(line).substr(equals + 1)));
                hint(home_of(home + "/python"), named_in(file, Cause::venv));
            }
        }
    }

    void read_variable(const std::string& text) {
        // These say where the user is, not which files a program shall use.
        constexpr std::array ignored = {"HOME", "OLDPWD", "_"};
        const auto equals = std::min(text.find('='), text.size());
        const auto name = text.substr(0, equals);
        const auto value = text.substr(std::min(equals + 1, text.size()));
        if (name == "HOME" && value.starts_with('/')) {
            hint(value + "/.local", {Cause::user_site});
        }
        if (name.starts_with("COPPER_") || std::find(ignored.begin(), ignored.end(), name) != ignored.end()) {
            return;
        }
        std::istringstream parts(value);
        for (std::string part; std::getline(parts, part, ':');) {
            if (part.starts_with('/')) {
                hint(part, name == "PWD"              ? Reason{Cause::working_directory}
                           : name == "PYTHONUSERBASE" ? Reason{Cause::user_site}
                                                      : Reason{Cause::variable, name});
            }
        }
    }

    // The most specific hint. Of equal ones, the first.
    const Hint* hint_for(std::string_view asked, std::string_view place) const {
        const Hint* best = nullptr;
        for (const auto* hints : {&programs_, &hints_}) {
            for (const auto& hint : *hints) {
                if ((is_within(asked, hint.prefix) || is_within(place, hint.prefix)) &&
                    (best == nullptr || hint.prefix.size() > best->prefix.size())) {
                    best = &hint;
                }
            }
        }
        return best;
    }

    // `asked`: the absolute path in the program's words; empty if it was relative.
    Reason reason_for(const std::string& asked, const std::string& place) const {
        if (is_in_mirror(asked)) {
            return {Cause::link};
        }
        if (const auto tried = evidence_.libraries.tried.find(asked);
            tried != evidence_.libraries.tried.end()) {
            using By = LibrarySearch::By;
            const auto& search = tried->second;
            return search.by == By::rpath      ? named_in(search.file, Cause::rpath)
                   : search.by == By::variable ? Reason{Cause::variable, "LD_LIBRARY_PATH"}
                                               : Reason{Cause::system_library};
        }
        if (const Hint* hint = hint_for(asked, place)) {
            return hint->reason;
        }
        return {asked.empty() ? Cause::working_directory : is_around(asked) ? Cause::literal : Cause::link};
    }

    // ---- What the programs did.

    // The kernel opens the program and, for a script, its interpreter.
    void start(const Call& call) {
        const auto asked = call.absolute_path();
        auto place = asked ? around_.resolve(*asked) : std::nullopt;
        if (!place) {
            return;
        }
        const auto in_path = std::find_if(hints_.begin(), hints_.end(), [&](const Hint& hint) {
            return hint.reason.variable == "PATH" && hint.prefix == parent_path(*asked);
        });
        start(*place, in_path != hints_.end() ? in_path->reason : reason_for(*asked, *place));
        constexpr int scripts_max = 4;  // as in the kernel: an interpreter can be a script
        for (int i = 0; i < scripts_max; ++i) {
            const auto interpreter = interpreter_of(around_.read(*place, script_bytes_max));
            if (interpreter.empty()) {
                break;
            }
            const auto reason = named_in(*place, Cause::shebang);
            place = around_.resolve(interpreter.front());
            if (!place) {
                break;
            }
            start(*place, reason);
        }
    }

    // Its own files, a Python's modules for instance, have the same reason.
    void start(const std::string& place, const Reason& reason) {
        if (!is_around(place)) {
            opened_through(place);
        } else if (opened_around(place, reason) && reason.cause != Cause::literal) {
            programs_.push_back({place, reason});
            programs_.push_back({home_of(place), reason});
        }
    }

    void open(const Call& call) {
        const auto asked = call.absolute_path();
        if (call.is_absent && reads(call) && asked && is_around(*asked)) {
            absent_.insert(*asked);
        }
        // What the programs have written is output. O_PATH opens nothing.
        if (!call.place.empty() && !written_.contains(call.place) && (call.flags & O_PATH) == 0) {
            opened(call.in_working_directory ? std::string() : asked.value_or(call.place), call.place);
        }
    }

    void opened(const std::string& asked, const std::string& place) {
        if (is_around(place)) {
            opened_around(place, reason_for(asked, place));
        } else {
            opened_through(place);
        }
    }
    // True for the first time.
    bool opened_around(const std::string& place, const Reason& reason) {
        const auto [found, is_new] =
            seen_.try_emplace(place, Bypass{place, reason.cause, reason.variable, reason.source});
        ++found->second.opens;
        return is_new;
    }
    void opened_through(const std::string& place) {
        if (const auto original = original_of(place); original && is_in(mirror().trees, *original)) {
            through_.insert(*original);
        }
    }

    const Evidence& evidence_;
    const Surroundings& around_;
    std::vector<Hint> hints_;
    std::vector<Hint> programs_;
    std::set<std::string> written_;
    std::map<std::string, Bypass> seen_;
    std::set<std::string> through_;
    std::set<std::string> absent_;
};

}  // namespace

const CauseText& cause_text(Cause cause) {
    static constexpr std::array<CauseText, 10> texts = {{
        {"shebang", "the first line of a script (shebang)",
         "Start the script with 'copper run', or let its first line be '#!/usr/bin/env python3'."},
        {"rpath", "RPATH or RUNPATH in a program or library",
         "Make it relative (patchelf --set-rpath '$ORIGIN/../lib' FILE): it then follows the mirror. For "
         "RUNPATH, LD_LIBRARY_PATH with the directory's place in the mirror also helps."},
        {"pth", "a .pth file or an editable install",
         "Put the directory's place in the mirror into PYTHONPATH: "
         "export PYTHONPATH=\"$(copper path DIR):$PYTHONPATH\". Or install without --editable."},
        {"venv", "'home' in pyvenv.cfg", "Start its Python, or the script, with 'copper run'."},
        {"variable", "the variable",
         "Let the variable name the place in the mirror: export NAME=\"$(copper path DIR)\". "
         "'copper env' and 'copper run' change PATH, PYTHONPATH, LD_LIBRARY_PATH and some others, as they "
         "are at that moment."},
        {"user_site", "the user's own packages (~/.local)",
         "If the program does not need them: export PYTHONNOUSERSITE=1. Otherwise: "
         "export PYTHONUSERBASE=\"$(copper path ~/.local)\"."},
        {"system_library", "the dynamic linker's own directories",
         "Put the directory's place in the mirror into LD_LIBRARY_PATH."},
        {"working_directory", "the working directory",
         "If the program only reads there: cd \"$(copper path .)\"."},
        {"link", "a symbolic link that leads into a tree",
         "Make the link relative, or use the place in the mirror: copper path PATH."},
        {"literal", "a literal path in a program or its configuration",
         "Give the program the place in the mirror: copper path PATH."},
    }};
    return texts.at(static_cast<std::size_t>(cause));
}

Judgement judge(const Evidence& evidence, const Surroundings& surroundings) {
    return Judge(evidence, surroundings).judge();
}

}  // namespace copper::cli
