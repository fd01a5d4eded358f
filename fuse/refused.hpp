// The mirror is read-only. With the mount option `ro`, the kernel answers EROFS. If a change gets through all
// the same (after a remount), it gets the same answer here.
#pragma once

#include <cerrno>

#include "fuse/fuse_api.hpp"

namespace copper {

template <typename... Arguments>
void refuse(fuse_req_t request, Arguments...) {
    fuse_reply_err(request, EROFS);
}

inline void refuse_mutations(fuse_lowlevel_ops& table) {
    table.setattr = refuse;
    table.mknod = refuse;
    table.mkdir = refuse;
    table.unlink = refuse;
    table.rmdir = refuse;
    table.symlink = refuse;
    table.rename = refuse;
    table.link = refuse;
    table.write = refuse;
    table.setxattr = refuse;
    table.removexattr = refuse;
    table.create = refuse;
    table.fallocate = refuse;
    table.copy_file_range = refuse;
}

}  // namespace copper
