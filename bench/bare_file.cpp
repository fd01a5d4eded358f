// The least that a FUSE filesystem with one file can do: its bytes lie in memory, it is mounted and announced
// as Copper's mirror is (fuse/connection.cpp, fuse/dispatch.cpp), and served by as many threads. What it
// takes for a read is what the kernel and libfuse take for it; see bench/must_hold_data.py.
//
//   bare_file MOUNTPOINT BYTES [splice]      serves MOUNTPOINT/file until it is unmounted
//
// With "splice", the bytes lie in a file in memory, and reach the kernel by splice(2) and a pipe, not by
// writev(2).
#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

struct Content {
    std::span<char> bytes;
    int file = -1;  // that has them, if they are to be spliced
};

const Content& content_of(fuse_req_t request) {
    return *static_cast<const Content*>(fuse_req_userdata(request));
}

struct stat attributes_of(fuse_ino_t node, const Content& content) {
    struct stat st {};
    st.st_ino = node;
    st.st_mode = node == file_node ? S_IFREG | 0444 : S_IFDIR | 0755;
    st.st_nlink = 1;
    st.st_size = node == file_node ? static_cast<off_t>(content.bytes.size()) : 0;
    return st;
}

void init(void* content, fuse_conn_info* connection) {
    constexpr unsigned splicing = FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE;
    const bool is_spliced = static_cast<const Content*>(content)->file >= 0;
    const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_NO_OPEN_SUPPORT |
                            (is_spliced ? splicing : 0);
    const unsigned unwanted = FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_SPLICE_READ | (is_spliced ? 0 : splicing);
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
    const auto begin = std::min(static_cast<std::size_t>(offset), content.bytes.size());
    const auto piece = content.bytes.subspan(begin, std::min(bytes, content.bytes.size() - begin));
    if (content.file < 0) {
        fuse_reply_buf(request, piece.data(), piece.size());
        return;
    }
    fuse_bufvec spliced = FUSE_BUFVEC_INIT(piece.size());
    spliced.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    spliced.buf[0].fd = content.file;
    spliced.buf[0].pos = static_cast<off_t>(begin);
    fuse_reply_data(request, &spliced, FUSE_BUF_SPLICE_MOVE);
}

}  // namespace

int main(int count, char** words) {
    const bool is_spliced = count == 4 && std::strcmp(words[3], "splice") == 0;
    if (count != 3 && !is_spliced) {
        std::fprintf(stderr, "usage: %s MOUNTPOINT BYTES [splice]\n", words[0]);
        return 2;
    }
    const auto bytes = static_cast<std::size_t>(std::strtoull(words[2], nullptr, 10));
    const int file = is_spliced ? ::memfd_create("bare_file", MFD_CLOEXEC) : -1;
    if (is_spliced && ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
        return 1;
    }
    const int kind = is_spliced ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, file, 0);
    if (memory == MAP_FAILED) {
        return 1;
    }
    Content content{.bytes = {static_cast<char*>(memory), bytes}, .file = file};
    std::fill(content.bytes.begin(), content.bytes.end(), 'x');  // so that there is memory behind each page

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
