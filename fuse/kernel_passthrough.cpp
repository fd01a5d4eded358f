#include "fuse/kernel_passthrough.hpp"

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <string>

namespace copper {

void want_passthrough(fuse_conn_info& connection) {
    connection.want |= connection.capable & FUSE_CAP_PASSTHROUGH;
}

// libfuse's own functions need a request. There is none when we ask the kernel whether it allows passthrough.
BackingId add_backing(fuse_session* session, int file) {
    fuse_backing_map map{};
    map.fd = file;
    const int id = ::ioctl(fuse_session_fd(session), FUSE_DEV_IOC_BACKING_OPEN, &map);
    return id > 0 ? id : 0;
}

void remove_backing(fuse_session* session, BackingId id) {
    ::ioctl(fuse_session_fd(session), FUSE_DEV_IOC_BACKING_CLOSE, &id);
}

void set_backing(fuse_file_info& info, BackingId id) {
    info.backing_id = id;
}

UniqueFd mount_memory(MemoryLimits limits) {
    const UniqueFd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
    const auto set = [&](const char* key, const std::string& value) {
        return ::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) == 0;
    };
    const bool is_bounded = context && set("size", std::to_string(limits.bytes_max)) &&
                            set("nr_inodes", std::to_string(limits.files_max + 1));  // one for the root
    if (!is_bounded) {
        return {};
    }
    set("huge", "within_size");
    if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
        return {};
    }
    return UniqueFd(::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
}

}  // namespace copper

#else

namespace copper {

void want_passthrough(fuse_conn_info&) {}
BackingId add_backing(fuse_session*, int) {
    return 0;
}
void remove_backing(fuse_session*, BackingId) {}
void set_backing(fuse_file_info&, BackingId) {}
UniqueFd mount_memory(MemoryLimits) {
    return {};
}

}  // namespace copper

#endif
