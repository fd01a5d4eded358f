#include "tools/copper/environment.hpp"

#include <algorithm>
#include <array>

#include "base/path.hpp"
#include "base/shell_quote.hpp"
#include "tools/copper/words.hpp"

namespace copper::cli {

namespace {

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

bool lies_in_trees(const Mirror& mirror, std::string_view path) {
    return std::any_of(mirror.trees.begin(), mirror.trees.end(),
                       [&](const std::string& tree) { return is_within(path, tree); });
}

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

// The place of `part` outside the mirror, which may be that of any node on this machine: `mount`.N.
std::string original_of(const std::string& mount, const std::string& part) {
    std::string root = mount;
    if (part.starts_with(mount + ".")) {
        root = part.substr(0, part.find_first_not_of("0123456789", mount.size() + 1));
    }
    return out_of_mirror(root, part).value_or(part);
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

}  // namespace

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
    std::optional<std::string> rewritten;
    for (const auto& part : parts_of(list)) {
        rewritten =
            (rewritten ? *rewritten + ":" : "") + through_mirror(mirror, part, resolve).value_or(part);
    }
    return rewritten.value_or("");
}

std::optional<std::string> out_of_mirror(std::string_view mount, std::string_view path) {
    const auto place = normalise_path(path);
    if (!place || !is_within(*place, mount)) {
        return std::nullopt;
    }
    return *place == mount ? "/" : place->substr(mount.size());
}

Variables mirrored_environment(const EnvironmentRequest& request, const ReadVariable& read,
                               const ResolvePath& resolve) {
    Variables changed;
    for (const std::string name : rewritten_names) {
        const auto value = read(name);
        if (!value || value->empty()) {
            continue;
        }
        auto rewritten = list_through_mirror(request.mirror, *value, resolve);
        if (rewritten != *value) {
            changed.emplace_back(name, std::move(rewritten));
        }
    }
    if (!request.python_modules.empty()) {
        put_in_front(changed, "PYTHONPATH", request.python_modules, read);
        std::string mirror = request.mirror.mount + ":" + joined(request.mirror.trees, ":");
        if (read(mirrored_trees_variable) != mirror) {
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
    } else {
        set_if_unset("PYTHONDONTWRITEBYTECODE", "1");
    }
    return changed;
}

bool leads_into(const Mirror& mirror, const Variables& changed, const ReadVariable& read) {
    return std::any_of(rewritten_names.begin(), rewritten_names.end(), [&](const std::string name) {
        const auto variable = std::find_if(changed.begin(), changed.end(),
                                           [&name](const auto& each) { return each.first == name; });
        const auto parts = parts_of(variable != changed.end() ? variable->second : read(name).value_or(""));
        return std::any_of(parts.begin(), parts.end(),
                           [&](const std::string& part) { return is_within(part, mirror.mount); });
    });
}

std::string rewritten_variables() {
    return joined(rewritten_names, ", ");
}

Changes unmirrored_environment(const std::string& mount, const std::string& own, const ReadVariable& read) {
    Changes changed;
    for (const std::string name : rewritten_names) {
        const auto value = read(name);
        if (!value) {
            continue;
        }
        std::optional<std::string> rest;
        for (const auto& part : parts_of(*value)) {
            if (!is_within(part, own)) {
                rest = (rest ? *rest + ":" : "") + original_of(mount, part);
            }
        }
        if (rest != *value) {
            changed.emplace_back(name, std::move(rest));
        }
    }
    const auto unset_if = [&](const std::string& name, const auto& is_ours) {
        if (const auto value = read(name); value && is_ours(*value)) {
            changed.emplace_back(name, std::nullopt);
        }
    };
    const auto is_own = [&own](const std::string& value) { return is_within(value, own); };
    for (const auto& cache : cache_variables) {
        unset_if(cache.name, is_own);
    }
    unset_if("PYTHONPYCACHEPREFIX", is_own);
    unset_if(mirrored_trees_variable, [&mount](const std::string& value) {
        const auto place = value.substr(0, value.find(':'));
        return original_of(mount, place) != place;
    });
    // The value does not tell whose it is. Nothing else to undo: it is the user's.
    unset_if("PYTHONDONTWRITEBYTECODE",
             [&changed](const std::string& value) { return value == "1" && !changed.empty(); });
    return changed;
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
