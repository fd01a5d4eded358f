// The directory that holds everything that Copper leaves on a node for one user: /tmp/copper-<uid>, mode
// 0700.
//
// Anybody can make a directory of that name first. Then the user's own one is /tmp/copper-<uid>.<random>. It
// is found by its owner and mode, which nobody else can give to a directory, so daemons, tools and root's
// clean-up all find the same.
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
// Those that there are, of one user or of all; a user's usual one first. Several of one user are there only
// if somebody else made and removed the usual one meanwhile: whoever looks for something looks into all.
std::vector<PrivateDirectory> private_directories(std::optional<uid_t> user);

// Where the user's next files belong: the first of those above, else the usual one.
std::string private_directory(uid_t user);

// The same, made if it is missing. Of this process's own user.
tl::expected<std::string, std::string> make_private_directory();

// Why `directory` is not this user's usual one, to be told to the user; empty if it is.
std::string why_elsewhere(const std::string& directory);

// Whose it is by its name alone; nothing for a path that is not such a directory's.
std::optional<uid_t> owner_named_by(const std::string& directory);

}  // namespace copper
