// The directory for all files that Copper leaves on a node for one user: /tmp/copper-<uid>, mode 0700.
//
// Anybody can create a directory of that name first. Then the user's directory is /tmp/copper-<uid>.<random>.
// Owner and mode identify it, and nobody else can set them. So daemons, tools and root's clean-up find the
// same directory.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace copper {

struct PrivateDirectory {
    std::string path;
    uid_t user = 0;
};
// The existing directories of one user or of all; the usual one first. A user has several only if somebody
// else made and removed the usual one meanwhile, so search all of them.
std::vector<PrivateDirectory> private_directories(std::optional<uid_t> user);

// Where to put the user's next files: in the first of the existing directories, otherwise in the usual one.
std::string private_directory(uid_t user);

// The same for the user of this process. Makes the directory if it is missing.
tl::expected<std::string, std::string> make_private_directory();

// For the user: why `directory` is not the usual one; empty if it is.
std::string why_elsewhere(const std::string& directory);

// The owner according to the name alone; nothing if the path is no such directory.
std::optional<uid_t> owner_named_by(const std::string& directory);

}  // namespace copper
