// The least that a FUSE filesystem can do: an empty directory, served by one thread from memory. What it
// takes for a request is what the kernel takes for it; see bench/must_hold.py.
//
//   bare_fuse MOUNTPOINT      serves until it is unmounted
#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

namespace {

constexpr double for_ever_seconds = 1e9;

struct stat root_attributes() {
    struct stat st {};
    st.st_ino = FUSE_ROOT_ID;
    st.st_mode = S_IFDIR | 0755;
    st.st_nlink = 2;
    return st;
}

void lookup(fuse_req_t request, fuse_ino_t, const char*) {
    fuse_entry_param absent{};
    absent.entry_timeout = for_ever_seconds;
    fuse_reply_entry(request, &absent);
}

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
    if (node != FUSE_ROOT_ID) {
        fuse_reply_err(request, ENOENT);
        return;
    }
    const struct stat st = root_attributes();
    fuse_reply_attr(request, &st, for_ever_seconds);
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) {
        std::fprintf(stderr, "usage: %s MOUNTPOINT\n", words[0]);
        return 2;
    }
    fuse_lowlevel_ops operations{};
    operations.lookup = lookup;
    operations.getattr = getattr;
    fuse_args arguments = FUSE_ARGS_INIT(1, words);
    fuse_session* session = fuse_session_new(&arguments, &operations, sizeof operations, nullptr);
    if (session == nullptr || fuse_session_mount(session, words[1]) != 0) {
        return 1;
    }
    const int result = fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return result == 0 ? 0 : 1;
}
