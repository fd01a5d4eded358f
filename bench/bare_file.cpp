// The least that a FUSE filesystem with one file can do: its bytes lie in memory, it is mounted and announced
// as Copper's mirror is (fuse/connection.cpp, fuse/dispatch.cpp), and served by as many threads. What it
// takes for a read is what the kernel and libfuse take for it; see bench/must_hold_data.py.
//
//   bare_file MOUNTPOINT BYTES      serves MOUNTPOINT/file until it is unmounted
#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace {

constexpr double for_ever_seconds = 1e9;
constexpr fuse_ino_t file_node = 2;

using Content = std::span<char>;

const Content& content_of(fuse_req_t request) {
    return *static_cast<const Content*>(fuse_req_userdata(request));
}

struct stat attributes_of(fuse_ino_t node, const Content& content) {
    struct stat st {};
    st.st_ino = node;
    st.st_mode = node == file_node ? S_IFREG | 0444 : S_IFDIR | 0755;
    st.st_nlink = 1;
    st.st_size = node == file_node ? static_cast<off_t>(content.size()) : 0;
    return st;
}

void init(void*, fuse_conn_info* connection) {
    constexpr unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_NO_OPEN_SUPPORT;
    constexpr unsigned unwanted =
        FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE;
    connection->want = (connection->want | (connection->capable & wanted)) & ~unwanted;
    connection->max_background = 64;
    connection->congestion_threshold = 48;
}

void lookup(fuse_req_t request, fuse_ino_t, const char* name) {
    fuse_entry_param entry{};
    entry.entry_timeout = for_ever_seconds;
    if (std::strcmp(name, "file") == 0) {
        entry.ino = file_node;
        entry.attr = attributes_of(file_node, content_of(request));
        entry.attr_timeout = for_ever_seconds;
    }
    fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
    const struct stat st = attributes_of(node, content_of(request));
    fuse_reply_attr(request, &st, for_ever_seconds);
}

void readdir(fuse_req_t request, fuse_ino_t, std::size_t bytes, off_t offset, fuse_file_info*) {
    const struct stat st = attributes_of(file_node, content_of(request));
    char entry[64];
    const std::size_t length =
        offset == 0 ? fuse_add_direntry(request, entry, std::min(sizeof entry, bytes), "file", &st, 1) : 0;
    fuse_reply_buf(request, entry, length);
}

void open(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
    fuse_reply_err(request, ENOSYS);
}

void read(fuse_req_t request, fuse_ino_t, std::size_t bytes, off_t offset, fuse_file_info*) {
    const Content& content = content_of(request);
    const auto begin = std::min(static_cast<std::size_t>(offset), content.size());
    const auto piece = content.subspan(begin, std::min(bytes, content.size() - begin));
    fuse_reply_buf(request, piece.data(), piece.size());
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) {
        std::fprintf(stderr, "usage: %s MOUNTPOINT BYTES\n", words[0]);
        return 2;
    }
    const auto bytes = static_cast<std::size_t>(std::strtoull(words[2], nullptr, 10));
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return 1;
    }
    Content content(static_cast<char*>(memory), bytes);
    std::fill(content.begin(), content.end(), 'x');  // so that there is memory behind each page

    fuse_lowlevel_ops operations{};
    operations.init = init;
    operations.lookup = lookup;
    operations.getattr = getattr;
    operations.readdir = readdir;
    operations.open = open;
    operations.read = read;
    char option[] = "-oro,nosuid,nodev,default_permissions";
    char* arguments_given[] = {words[0], option};
    fuse_args arguments = FUSE_ARGS_INIT(2, arguments_given);
    fuse_session* session = fuse_session_new(&arguments, &operations, sizeof operations, &content);
    if (session == nullptr || fuse_session_mount(session, words[1]) != 0) {
        return 1;
    }
    fuse_loop_config* threads = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(threads, 8);
    fuse_loop_cfg_set_idle_threads(threads, 8);
    const int result = fuse_session_loop_mt(session, threads);
    fuse_loop_cfg_destroy(threads);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return result == 0 ? 0 : 1;
}
