#include "base/path.hpp"

namespace copper {

std::optional<std::string> normalise_path(std::string_view path) {
    if (path.empty() || path.front() != '/' || path.find('\0') != std::string_view::npos) {
        return std::nullopt;
    }
    std::string result;
    while (!path.empty()) {
        path.remove_prefix(1);
        const auto name = path.substr(0, path.find('/'));
        path.remove_prefix(name.size());
        if (name.empty() || name == ".") {
            continue;
        }
        if (!is_valid_name(name)) {
            return std::nullopt;
        }
        result.append(1, '/').append(name);
    }
    if (result.size() >= path_bytes_max) {
        return std::nullopt;
    }
    return result.empty() ? "/" : result;
}

bool is_normalised_path(std::string_view path) {
    return normalise_path(path) == path;
}

bool is_valid_name(std::string_view name) {
    constexpr std::string_view forbidden("/\0", 2);
    return !name.empty() && name != "." && name != ".." && name.size() <= name_bytes_max &&
           name.find_first_of(forbidden) == std::string_view::npos;
}

std::string_view parent_path(std::string_view path) {
    const auto slash = path.rfind('/');
    return slash == 0 ? path.substr(0, 1) : path.substr(0, slash);
}

std::string_view base_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

std::string join_path(std::string_view directory, std::string_view name) {
    std::string path(directory);
    if (path != "/") {
        path.append(1, '/');
    }
    return path.append(name);
}

bool is_within(std::string_view path, std::string_view ancestor) {
    return ancestor == "/" ||
           (path.starts_with(ancestor) && (path.size() == ancestor.size() || path[ancestor.size()] == '/'));
}

}  // namespace copper
