// The directory for all files that Copper leaves on a node for one user: /tmp/copper-<uid>, mode 0700.
//
// Anybody can create a directory of that name first. Then the whole job uses /tmp/copper-<uid>.<random>
// instead, on all nodes, because programs inherit the name from one node to another (`copper env`). For the
// same reason, nobody removes the directory: others could make it while programs still have its name.
//
// Owner and mode identify a directory, and nobody else can set them. So daemons, tools and root's clean-up
// find the same one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace copper {

// /tmp/copper-<uid>
std::string usual_private_directory(uid_t user);

struct PrivateDirectory {
    std::string path;
    uid_t user = 0;
};
// The existing directories of one user or of all; the usual one first.
std::vector<PrivateDirectory> private_directories(std::optional<uid_t> user);

// The first of the existing ones, otherwise the usual one.
std::string private_directory(uid_t user);

// Another name for this user, which nobody can guess.
std::string another_private_directory();

// Makes it if it is missing. Fails if it is not this user's alone.
tl::expected<void, std::string> make_private_directory(const std::string& path);

// Why this user cannot have that one on this node; empty if it is this user's, or missing.
std::string why_directory_is_taken(const std::string& path);

// The mount of a job that cannot have the default one, because /tmp/$USER is somebody else's on some node.
std::string mount_within(const std::string& private_directory);

// The owner according to the name alone; nothing if the path is no such directory.
std::optional<uid_t> owner_named_by(const std::string& directory);

}  // namespace copper
