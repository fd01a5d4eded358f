// FUSE passthrough as offered by libfuse (from 3.17) and Linux (from 6.9), all in one place. With an older
// libfuse, all calls fail.
#pragma once

#include <cstdint>

#include "base/unique_fd.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/reply.hpp"

namespace copper {

void want_passthrough(fuse_conn_info& connection);

// Makes `file` available for replies to OPEN; 0 if the kernel refuses, as it does without CAP_SYS_ADMIN.
BackingId add_backing(fuse_session* session, int file);
void remove_backing(fuse_session* session, BackingId id);

void set_backing(fuse_file_info& info, BackingId id);

// A tmpfs that is mounted nowhere: only this process and the kernel can reach its files, which end with them.
// Its pages are large; with small ones, reading costs as much as from the page cache of FUSE.
struct MemoryLimits {
    std::uint64_t bytes_max = 0;
    std::uint64_t files_max = 0;
};
UniqueFd mount_memory(MemoryLimits limits);

}  // namespace copper
