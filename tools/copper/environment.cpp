#include "tools/copper/environment.hpp"

#include <algorithm>
#include <array>

#include "base/path.hpp"
#include "tools/copper/words.hpp"

namespace copper::cli {

namespace {

// Lists of directories and single ones. Both are rewritten part by part.
constexpr std::array rewritten_names = {"PATH",        "PYTHONPATH", "LD_LIBRARY_PATH", "CONDA_PREFIX",
                                        "VIRTUAL_ENV", "PYTHONHOME", "PERL5LIB"};

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
    std::string rewritten;
    for (;;) {
        const auto end = list.find(':');
        const auto part = list.substr(0, end);
        rewritten += through_mirror(mirror, part, resolve).value_or(std::string(part));
        if (end == std::string_view::npos) {
            return rewritten;
        }
        rewritten += ':';
        list.remove_prefix(end + 1);
    }
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

std::string shell_exports(const Variables& variables) {
    std::string text;
    for (const auto& [name, value] : variables) {
        text += "export " + name + "=" + shell_quote(value) + "\n";
    }
    return text;
}

}  // namespace copper::cli
