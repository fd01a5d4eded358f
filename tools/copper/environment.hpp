// Which environment sends a program through the mirror.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace copper::cli {

struct Mirror {
    std::string mount;
    std::vector<std::string> trees;  // canonical paths; what lies in them goes through the mount
    std::vector<std::string>
        mounts;  // other Copper mounts here: what lies in them has been sent on its way already
};

// Where this path leads once symbolic links have been followed; nothing if it leads nowhere.
using ResolvePath = std::function<std::optional<std::string>(const std::string&)>;
using ReadVariable = std::function<std::optional<std::string>(const std::string&)>;

// The place under the mount of an absolute path that lies in a tree, as it is written or after its links have
// been followed (/bin is /usr/bin). Nothing for a path that lies elsewhere, or goes through a mount already.
std::optional<std::string> through_mirror(const Mirror& mirror, std::string_view path,
                                          const ResolvePath& resolve);

// The same for each part of a list like PATH; other parts stay as they are, empty ones too.
std::string list_through_mirror(const Mirror& mirror, std::string_view list, const ResolvePath& resolve);

// What is under the mount, without it; nothing for a path that is not.
std::optional<std::string> out_of_mirror(std::string_view mount, std::string_view path);

struct EnvironmentRequest {
    Mirror mirror;
    // A directory on each node's own disk that is this user's alone: for caches that programs want to write.
    // They are never put into a mirrored tree, which is read-only.
    std::string scratch;
    // PYTHONPYCACHEPREFIX makes Python ignore the .pyc files beside the sources,
    // and compile everything on each node at its first import: the very time that Copper is to save. So the
    // default is PYTHONDONTWRITEBYTECODE: the tree's .pyc files are used, and Python does not try to write
    // where it cannot.
    bool python_bytecode_in_scratch = false;
    // The directory of tools/python/sitecustomize.py on each node, which spares the daemon a request for each
    // module that is imported again; it goes in front of PYTHONPATH. Empty: not.
    std::string python_modules = {};
};
using Variables = std::vector<std::pair<std::string, std::string>>;

// The variables that must change, with their new values. Those that a user has set are rewritten but never
// replaced.
Variables mirrored_environment(const EnvironmentRequest& request, const ReadVariable& read,
                               const ResolvePath& resolve);

// "export NAME=value" lines that any POSIX shell reads.
std::string shell_exports(const Variables& variables);

}  // namespace copper::cli
