#include "fuse/dispatch.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fuse/kernel_passthrough.hpp"
#include "fuse/refused.hpp"

namespace copper {
namespace {

Served& served(fuse_req_t request) {
    return *static_cast<Served*>(fuse_req_userdata(request));
}

Operations& operations(fuse_req_t request) {
    return served(request).operations;
}

// Call it before reply_to(): an interrupted request is gone when it has its answer.
Operations::By asker(fuse_req_t request) {
    const pid_t filler = served(request).page_filler;
    return filler != 0 && fuse_req_ctx(request)->pid == filler ? Operations::By::page_filler
                                                               : Operations::By::program;
}

ReplyPtr reply_to(fuse_req_t request) {
    return served(request).pending.enter(request);
}

// What the kernel may do without asking, since a snapshot does not change.
void init(void* user_data, fuse_conn_info* connection) {
    static_cast<Served*>(user_data)->capable = connection->capable;
    // READDIRPLUS_AUTO: after the first names of a directory, the kernel wants attributes with further ones
    // only if programs look at those that it got. AUTO_INVAL_DATA drops pages when mtime changes. Splicing
    // helps with data in files or pipes; ours is in memory.
    constexpr unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS |
                                FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_PARALLEL_DIROPS |
                                FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPLICIT_INVAL_DATA |
                                FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT;
    constexpr unsigned unwanted = FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ |
                                  FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE;
    connection->want = (connection->want | (connection->capable & wanted)) & ~unwanted;
    // With several users, the kernel also checks access control lists, at the price of a GETXATTR for each
    // inode whose group has rights. With one user, the filesystem answers the daemon as it would answer the
    // user.
    if (static_cast<Served*>(user_data)->audience == Audience::everyone) {
        connection->want |= connection->capable & FUSE_CAP_POSIX_ACL;
    }
    if (static_cast<Served*>(user_data)->passthrough == PassthroughPolicy::where_possible) {
        want_passthrough(*connection);
    }
    // This limits the pages of a request, reads included. The kernel may offer more (since 6.13), which would
    // make requests too long for their slots.
    connection->max_write = std::min(connection->max_write, static_cast<unsigned>(extent_bytes));
    constexpr unsigned background_requests_max = 64;
    connection->max_background = background_requests_max;
    connection->congestion_threshold = background_requests_max * 3 / 4;
}

// ENOSYS to open stops further opens for this mount, and the kernel keeps pages from one open to the next, as
// with FOPEN_KEEP_CACHE (fs/fuse/file.c: fuse_file_open; since Linux 3.16). ENOSYS to opendir has the same
// effect with FOPEN_CACHE_DIR (since 5.1). A kernel without this feature would pass ENOSYS on to the program,
// so it gets a normal reply. With passthrough, each open needs its own answer.
void open(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
    ++operations(request).counters().open;
    const auto reply = reply_to(request);
    if (operations(request).passes_through()) {
        operations(request).open(reply, inode);
    } else if ((served(request).capable & FUSE_CAP_NO_OPEN_SUPPORT) != 0) {
        reply->error(ENOSYS);
    } else {
        reply->opened(0);
    }
}

void release(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
    if (operations(request).passes_through()) {
        operations(request).release(inode);
    }
    fuse_reply_err(request, 0);
}

void opendir(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
    const auto reply = reply_to(request);
    if ((served(request).capable & FUSE_CAP_NO_OPENDIR_SUPPORT) != 0) {
        reply->error(ENOSYS);
    } else {
        reply->opened(0);
    }
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
    const auto by = asker(request);
    operations(request).lookup(reply_to(request), parent, name, by);
}

void forget(fuse_req_t request, fuse_ino_t inode, std::uint64_t lookups) {
    operations(request).forget(inode, lookups);
    fuse_reply_none(request);
}

void forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) {
    for (const auto& one : std::span(forgets, count)) {
        operations(request).forget(one.ino, one.nlookup);
    }
    fuse_reply_none(request);
}

void getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
    operations(request).getattr(reply_to(request), inode);
}

void readlink(fuse_req_t request, fuse_ino_t inode) {
    operations(request).readlink(reply_to(request), inode);
}

void statfs(fuse_req_t request, fuse_ino_t inode) {
    operations(request).statfs(reply_to(request), inode);
}

void read_directory(fuse_req_t request, fuse_ino_t inode, std::size_t bytes_max, off_t offset,
                    Operations::Entries entries) {
    operations(request).readdir(
        reply_to(request), inode,
        {.bytes_max = bytes_max, .offset = static_cast<std::uint64_t>(offset), .entries = entries});
}

void readdir(fuse_req_t request, fuse_ino_t inode, std::size_t bytes_max, off_t offset, fuse_file_info*) {
    read_directory(request, inode, bytes_max, offset, Operations::Entries::names);
}

void readdirplus(fuse_req_t request, fuse_ino_t inode, std::size_t bytes_max, off_t offset, fuse_file_info*) {
    read_directory(request, inode, bytes_max, offset, Operations::Entries::with_attributes);
}

void read(fuse_req_t request, fuse_ino_t inode, std::size_t bytes, off_t offset, fuse_file_info*) {
    const auto by = asker(request);
    operations(request).read(reply_to(request), inode,
                             {.offset = static_cast<std::uint64_t>(offset), .bytes = bytes}, by);
}

// The kernel asks for SEEK_DATA and SEEK_HOLE only.
void lseek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence, fuse_file_info*) {
    operations(request).seek(reply_to(request), inode, offset,
                             whence == SEEK_DATA ? Operations::Sought::data : Operations::Sought::hole);
}

void getxattr(fuse_req_t request, fuse_ino_t inode, const char* name, std::size_t bytes_max) {
    operations(request).getxattr(reply_to(request), inode, name, bytes_max);
}

void listxattr(fuse_req_t request, fuse_ino_t inode, std::size_t bytes_max) {
    operations(request).listxattr(reply_to(request), inode, bytes_max);
}

// No ioctl makes sense here. isatty() (TCGETS) must not succeed on files. The kernel passes each ioctl on;
// unlike for other requests, no answer stops it (fs/fuse/ioctl.c).
void ioctl(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*,
           std::size_t, std::size_t) {
    ++operations(request).counters().ioctl;
    fuse_reply_err(request, ENOTTY);
}

}  // namespace

// libfuse answers ENOSYS to missing callbacks; the kernel then handles the request itself and stops asking:
// access (default_permissions), flush and fsync (nothing to write), poll, bmap. Locks are not even
// advertised, so the kernel keeps them, as on a local filesystem.
fuse_lowlevel_ops dispatch_table() {
    fuse_lowlevel_ops table{};
    table.init = init;
    table.lookup = lookup;
    table.forget = forget;
    table.forget_multi = forget_multi;
    table.getattr = getattr;
    table.readlink = readlink;
    table.statfs = statfs;
    table.open = open;
    table.release = release;
    table.opendir = opendir;
    table.readdir = readdir;
    table.readdirplus = readdirplus;
    table.read = read;
    table.lseek = lseek;
    table.getxattr = getxattr;
    table.listxattr = listxattr;
    table.ioctl = ioctl;
    refuse_mutations(table);
    return table;
}

}  // namespace copper
