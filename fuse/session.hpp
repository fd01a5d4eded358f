// A mounted mirror: the connection to the kernel and the threads that serve it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <system_error>

#include <tl/expected.hpp>

#include "base/fuse_access.hpp"
#include "base/trees.hpp"
#include "cache/cache.hpp"
#include "fuse/counters.hpp"
#include "fuse/lasting_memory.hpp"

namespace copper {

enum class SymlinkPolicy {
    rewrite,  // absolute targets within the trees get the mount point in front
    raw,
};
// Whether the kernel reads large files from local ones. Costs a request for each open of any file.
enum class PassthroughPolicy { off, where_possible };
struct SessionOptions {
    std::string mount_point;  // an absolute path of an empty directory
    Trees trees;
    // Nodes do not share larger files: each node reads them itself.
    std::uint64_t shared_file_bytes_max = std::numeric_limits<std::uint64_t>::max();
    Attributes root;                    // of "/", so that the mount's root never costs a read
    std::string main_filesystem = "/";  // the root path of the one whose inode numbers are told unchanged
    SymlinkPolicy symlinks = SymlinkPolicy::rewrite;
    Audience audience = Audience::launching_user;
    PassthroughPolicy passthrough = PassthroughPolicy::off;
    // This machine's kernel uses SELinux. If not, a file without a label says that labels are not supported
    // (like Lustre, LU-549): then `ls -l` does not ask for the label of each file.
    bool has_selinux = true;
    std::size_t threads = 2;  // that serve requests; at least 1
    // The process that fills the kernel's cache ahead (Operations::By); 0: none.
    pid_t page_filler = 0;
};

// Mounted during its whole life. Call all methods but serve() from any thread.
class Session {
  public:
    // Mounts. `cache` and `counters` must outlive the Session. Errors say what is wrong and what to do.
    static tl::expected<std::unique_ptr<Session>, std::string> mount(SessionOptions options, Cache& cache,
                                                                     FuseCounters& counters);
    // Goes on with what a killed process left: the same mount, the same inodes, and answers to the requests
    // it had taken.
    static tl::expected<std::unique_ptr<Session>, std::string> resume(SessionOptions options, Cache& cache,
                                                                      FuseCounters& counters,
                                                                      HandOver left_behind);
    virtual ~Session() = default;

    // For a process that will outlive this one.
    virtual HandOver hand_over() const = 0;

    // Serves requests until stop() is called or somebody else unmounts. Replies that still wait for the cache
    // get an error at the latest when the Session ends.
    virtual void serve() = 0;

    // Unmounts (lazily if it is busy) and makes serve() return. Idempotent.
    virtual void stop() = 0;

    // Call it when the cache knows of these: programs see them anew when `done` runs,
    // once, in a thread of the session. It does not run if the session ends before. False: too many refreshes
    // wait.
    virtual bool refresh(std::vector<Refreshed> refreshed, std::function<void()> done) = 0;

    // Whether the kernel reads large files from local ones; known once it serves.
    virtual bool passes_through() const = 0;
};

}  // namespace copper
