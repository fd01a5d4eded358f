// The first version of anything that a job reads is the job's.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "cache/object.hpp"

namespace copper {

// In the node's cache, for a key without a generation: the object as it is now.
using FindObject = std::function<ObjectPtr(const ObjectKey&)>;

// What to answer with where this node has just read `object` for `key`. The attributes of a name are asked
// for alone (ObjectKind::entry) or in a batch. If the cache has them in one of these objects, they must be
// the same in the other one: else some nodes get the bytes of one version of the file, and others of another.
ObjectPtr with_first_versions(const ObjectKey& key, const ObjectPtr& object, const FindObject& find);

// What an extent proves of other objects, and the cache does not have:
// - The file may be of another version than was asked for. Nodes that have got this version ask for it from
//   then on. It must not be read again, when the file may have changed once more.
// - Attributes that were doubtful are those of the extent, unless they are newer.
std::vector<std::pair<ObjectKey, ObjectPtr>> proven_by(const ObjectKey& key, const Object& object,
                                                       const FindObject& find);

}  // namespace copper
