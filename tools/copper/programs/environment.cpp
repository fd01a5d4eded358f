#include "tools/copper/programs/environment.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/path.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/fingerprint.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/programs/originals.hpp"

namespace copper::cli {

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Lists of directories, and single files and directories. All are rewritten part by part. GDAL_DATA and those
// after it are set by conda's activate.d scripts. Every process reads what they name, and none writes there.
constexpr std::array rewritten_names = {
    "PATH",     "PYTHONPATH", "LD_LIBRARY_PATH",  "CONDA_PREFIX", "VIRTUAL_ENV",  "PYTHONHOME",
    "PERL5LIB", "GDAL_DATA",  "GDAL_DRIVER_PATH", "PROJ_DATA",    "SSL_CERT_FILE"};

// MOUNT:TREE:TREE..., for tools/python/sitecustomize.py.
constexpr const char* mirrored_trees_variable = "COPPER_MIRRORED_TREES";

// Where programs keep what they compile at run time.
struct CacheVariable {
    const char* name;
    const char* directory;  // below the scratch directory
};
constexpr std::array cache_variables = {
    CacheVariable{"NUMBA_CACHE_DIR", "numba"}, CacheVariable{"MPLCONFIGDIR", "matplotlib"},
    CacheVariable{"TRITON_CACHE_DIR", "triton"}, CacheVariable{"TORCHINDUCTOR_CACHE_DIR", "torchinductor"}};

bool lies_in_mount(const Mirror& mirror, std::string_view path) {
    return is_within(path, mirror.mount) ||
           std::any_of(mirror.mounts.begin(), mirror.mounts.end(),
                       [&](const std::string& mount) { return is_within(path, mount); });
}

// Makes `entry` the first part of the list `name`, without repeating it.
void put_in_front(Variables& changed, const std::string& name, const std::string& entry,
                  const ReadVariable& read) {
    auto variable = std::find_if(changed.begin(), changed.end(),
                                 [&name](const auto& each) { return each.first == name; });
    const std::string value = variable != changed.end() ? variable->second : read(name).value_or("");
    if (value == entry || value.starts_with(entry + ":")) {
        return;
    }
    if (variable == changed.end()) {
        variable = changed.insert(changed.end(), {name, ""});
    }
    variable->second = value.empty() ? entry : entry + ":" + value;
}

std::vector<std::string> parts_of(std::string_view list) {
    std::vector<std::string> parts;
    for (;;) {
        const auto end = list.find(':');
        parts.emplace_back(list.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        list.remove_prefix(end + 1);
    }
}

// `list`, which the user has changed since mirrored_environment(), without what that has put in.
std::optional<std::string> without_mirror(const Originals& originals, std::string_view list) {
    std::optional<std::string> rest;
    std::vector<std::string> taken_out;
    for (const auto& part : parts_of(list)) {
        const auto original = out_of_mirror(originals.mount, part);
        if ((!part.empty() && part == originals.python_modules) ||
            (!original && std::ranges::count(taken_out, part) != 0)) {
            continue;
        }
        if (original) {
            taken_out.push_back(*original);
        }
        rest = (rest ? *rest + ":" : "") + original.value_or(part);
    }
    return rest;
}

// What stands for a character within single quotes, if it is special there.
std::string in_quotes(Shell shell, char c) {
    if (shell == Shell::fish) {
        return c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    // csh(1) expands "!" in quotes, too, and takes no line feed.
    return c == '\'' ? "'\\''" : c == '!' || c == '\n' ? std::string("\\") + c : std::string(1, c);
}

std::string quote_for(Shell shell, std::string_view text) {
    if (shell == Shell::slurm) {
        return std::string(text);
    }
    if (shell == Shell::posix) {
        return shell_quote(text);
    }
    std::string quoted = "'";
    for (const char c : text) {
        quoted += in_quotes(shell, c);
    }
    return quoted + "'";
}

struct Rewritten {
    std::string list;
    std::string originals;  // of the parts that lead into the mirror, to append: ":/a:/b"
};
Rewritten rewrite(const Mirror& mirror, std::string_view list, const ResolvePath& resolve) {
    Rewritten result;
    std::vector<std::string> originals;
    const auto parts = parts_of(list);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto place = through_mirror(mirror, parts[i], resolve);
        result.list += (i == 0 ? "" : ":") + place.value_or(parts[i]);
        if (place && std::ranges::count(originals, parts[i]) == 0) {
            originals.push_back(parts[i]);
            result.originals += ":" + parts[i];
        }
    }
    return result;
}

// The variables that must change, with their new values.
Variables values_in_mirror(const EnvironmentRequest& request, const ReadVariable& read,
                           const ResolvePath& resolve) {
    Variables changed;
    for (const std::string name : rewritten_names) {
        const auto value = read(name);
        if (!value || value->empty()) {
            continue;
        }
        const auto rewritten = rewrite(request.mirror, *value, resolve);
        if (rewritten.list != *value) {
            changed.emplace_back(name, rewritten.list + (name == "PATH" ? rewritten.originals : ""));
        }
    }
    if (!request.python_modules.empty()) {
        put_in_front(changed, "PYTHONPATH", request.python_modules, read);
        std::string mirror = request.mirror.mount + ":" + joined(request.mirror.trees, ":");
        if (!request.mirror.trees.empty() && read(mirrored_trees_variable) != mirror) {
            changed.emplace_back(mirrored_trees_variable, std::move(mirror));
        }
    }
    const auto set_if_unset = [&](const std::string& name, const std::string& value) {
        if (!read(name)) {
            changed.emplace_back(name, value);
        }
    };
    for (const auto& cache : cache_variables) {
        set_if_unset(cache.name, request.scratch + "/" + cache.directory);
    }
    if (request.python_bytecode_in_scratch) {
        set_if_unset("PYTHONPYCACHEPREFIX", request.scratch + "/pycache");
    } else if (!read("PYTHONDONTWRITEBYTECODE")) {
        changed.emplace_back("PYTHONDONTWRITEBYTECODE", "1");
        if (!request.python_modules.empty()) {
            set_if_unset("COPPER_BYTECODE", request.scratch + "/bytecode");
        }
    }
    return changed;
}

}  // namespace

bool lies_in_trees(const Mirror& mirror, std::string_view path) {
    return std::any_of(mirror.trees.begin(), mirror.trees.end(),
                       [&](const std::string& tree) { return is_within(path, tree); });
}

std::optional<std::string> through_mirror(const Mirror& mirror, std::string_view path,
                                          const ResolvePath& resolve) {
    if (path.empty() || path.front() != '/') {
        return std::nullopt;
    }
    auto place = normalise_path(path);
    if (place && lies_in_mount(mirror, *place)) {
        return std::nullopt;
    }
    if (!place || !lies_in_trees(mirror, *place)) {
        place = resolve(std::string(path));
    }
    if (!place || !lies_in_trees(mirror, *place) || lies_in_mount(mirror, *place)) {
        return std::nullopt;
    }
    return *place == "/" ? mirror.mount : mirror.mount + *place;
}

std::string list_through_mirror(const Mirror& mirror, std::string_view list, const ResolvePath& resolve) {
    return rewrite(mirror, list, resolve).list;
}

std::optional<std::string> out_of_mirror(std::string_view mount, std::string_view path) {
    const auto place = normalise_path(path);
    if (!place || !is_within(*place, mount)) {
        return std::nullopt;
    }
    return *place == mount ? "/" : place->substr(mount.size());
}

Changes mirrored_environment(const EnvironmentRequest& request, const ReadVariable& read,
                             const ResolvePath& resolve) {
    const auto back = unmirrored_environment(read).changes;
    const auto read_original = [&](const std::string& name) {
        const auto found = std::ranges::find(back, name, &Changes::value_type::first);
        return found != back.end() ? found->second : read(name);
    };
    std::map<std::string, std::optional<std::string>> changes(back.begin(), back.end());
    Originals originals{.mount = request.mirror.mount, .python_modules = request.python_modules};
    for (const auto& [name, value] : values_in_mirror(request, read_original, resolve)) {
        changes[name] = value;
        originals.variables.push_back(
            {.name = name, .fingerprint = fingerprint_of(value), .original = read_original(name)});
    }
    if (!originals.variables.empty()) {
        changes[originals_variable] = to_text(originals);
    }
    std::erase_if(changes, [&read](const auto& change) { return change.second == read(change.first); });
    return {changes.begin(), changes.end()};
}

bool leads_into(const Mirror& mirror, const Changes& changed, const ReadVariable& read) {
    return std::any_of(rewritten_names.begin(), rewritten_names.end(), [&](const std::string name) {
        const auto variable = std::ranges::find(changed, name, &Changes::value_type::first);
        const auto value = variable != changed.end() ? variable->second : read(name);
        const auto parts = parts_of(value.value_or(""));
        return std::any_of(parts.begin(), parts.end(),
                           [&](const std::string& part) { return is_within(part, mirror.mount); });
    });
}

std::string rewritten_variables() {
    return joined(rewritten_names, ", ");
}

Undo unmirrored_environment(const ReadVariable& read) {
    const auto text = read(originals_variable);
    const auto originals = parse_originals(text.value_or(""));
    if (!originals) {
        return {.changes = {}, .is_damaged = text.has_value()};
    }
    Undo undo;
    auto& changed = undo.changes;
    std::set<std::string> lists(rewritten_names.begin(), rewritten_names.end());
    for (const auto& [name, fingerprint, original, is_lost] : originals->variables) {
        const auto value = read(name);
        if (!value || fingerprint_of(*value) != fingerprint) {
            continue;
        }
        if (is_lost) {
            undo.lost.push_back(name);
        } else {
            changed.emplace_back(name, original);
            lists.erase(name);
        }
    }
    for (const auto& name : lists) {
        const auto value = read(name);
        const auto rest = value ? without_mirror(*originals, *value) : std::nullopt;
        if (rest != value) {
            changed.emplace_back(name, rest);
        }
    }
    changed.emplace_back(originals_variable, std::nullopt);
    return undo;
}

std::vector<std::string> lost_by(const Changes& changes) {
    std::vector<std::string> names;
    const auto text = std::ranges::find(changes, originals_variable, &Changes::value_type::first);
    const auto originals = text != changes.end() ? parse_originals(text->second.value_or("")) : std::nullopt;
    for (const auto& variable : originals ? originals->variables : std::vector<Originals::Variable>()) {
        if (variable.is_lost) {
            names.push_back(variable.name);
        }
    }
    return names;
}

std::string shell_lines(Shell shell, const Changes& changes) {
    struct Commands {
        const char* set;
        const char* separator;
        const char* unset;
    };
    const auto words = shell == Shell::csh    ? Commands{"setenv ", " ", "unsetenv "}
                       : shell == Shell::fish ? Commands{"set -gx ", " ", "set -e "}
                                              : Commands{"export ", "=", "unset "};
    std::string text;
    for (const auto& [name, value] : changes) {
        text += value ? words.set + name + words.separator + quote_for(shell, *value) : words.unset + name;
        text += shell == Shell::csh || shell == Shell::fish ? ";\n" : "\n";
    }
    return text;
}

}  // namespace copper::cli
