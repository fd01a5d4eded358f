#include "daemon/control/view.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/answer_in_time.hpp"
#include "base/error_text.hpp"
#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"

namespace copper {
namespace {

// For what can be ended: a filesystem on the way may hang.
constexpr unsigned uncover_seconds_max = 10;

tl::unexpected<std::string> failure(const std::string& what) {
    return tl::make_unexpected(what + ": " + error_text());
}

UniqueFd open_namespace(const std::string& path) {
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

bool are_same(const std::string& one, const std::string& other) {
    struct stat first = {};
    struct stat second = {};
    return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 &&
           first.st_ino == second.st_ino && first.st_dev == second.st_dev;
}

bool write_to(const char* path, const std::string& text) {
    const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
    return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// This user and group alone, as themselves: that needs no rights.
bool map_user(uid_t user, gid_t group) {
    const auto itself = [](auto id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; };
    return write_to("/proc/self/setgroups", "deny") && write_to("/proc/self/uid_map", itself(user)) &&
           write_to("/proc/self/gid_map", itself(group));
}

// Gives this process a mount namespace of its own; one of a user who may not mount needs a user namespace.
tl::expected<void, std::string> leave_mount_namespace() {
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(CLONE_NEWNS) != 0) {
        if (errno != EPERM) {
            return failure("unshare");
        }
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !map_user(user, group)) {
            return failure(
                "this node gives users no namespaces (user.max_user_namespaces, "
                "kernel.unprivileged_userns_clone or a security module forbids them)");
        }
    }
    // What is mounted here is nobody else's business.
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
        return failure("this node lets users mount nothing in a namespace of their own");
    }
    return {};
}

// setns(2) leads every program that joins to the root of the mount namespace.
tl::expected<void, std::string> stay_in_its_root() {
    struct stat before = {};
    struct stat after = {};
    const auto itself = open_namespace("/proc/self/ns/mnt");
    if (::stat("/", &before) != 0 || ::setns(itself.get(), CLONE_NEWNS) != 0 || ::stat("/", &after) != 0) {
        return failure("cannot join a new mount namespace");
    }
    if (before.st_ino != after.st_ino || before.st_dev != after.st_dev) {
        return tl::make_unexpected("Copper runs in a chroot, and a view would lead out of it");
    }
    return {};
}

tl::expected<void, std::string> cover(const std::string& mount, const std::vector<std::string>& trees) {
    for (const auto& tree : trees) {
        if (is_within(mount, tree)) {
            return tl::make_unexpected("the mirror's own mount lies in the tree " + tree);
        }
        if (::mount((mount + tree).c_str(), tree.c_str(), nullptr, MS_BIND, nullptr) != 0) {
            return failure("cannot lay the mirror over " + tree);
        }
    }
    return {};
}

// Tells `parent` its process id and why it has no view, and lives as long as that.
void live_in_new_view(const UniqueFd& parent, const std::string& mount,
                      const std::vector<std::string>& trees) {
    const auto made =
        leave_mount_namespace().and_then(stay_in_its_root).and_then([&] { return cover(mount, trees); });
    const std::string said = std::to_string(::getpid()) + " " + (made ? "" : made.error());
    retry_eintr([&] { return ::send(parent.get(), said.data(), said.size(), MSG_NOSIGNAL); });
    char nothing = 0;
    retry_eintr([&] { return ::recv(parent.get(), &nothing, sizeof(nothing), 0); });
}

}  // namespace

tl::expected<std::optional<View>, std::string> view_kept_by(pid_t supervisor) {
    View view;
    std::error_code error;
    const std::string descriptors = "/proc/" + std::to_string(supervisor) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(descriptors, error)) {
        std::error_code unread;
        const auto target = std::filesystem::read_symlink(entry.path(), unread).string();
        if (unread && unread != std::errc::no_such_file_or_directory) {  // closed meanwhile
            error = unread;
        }
        if (target.starts_with("mnt:[")) {
            view.mount_namespace = open_namespace(entry.path());
        } else if (target.starts_with("user:[")) {
            view.user_namespace = open_namespace(entry.path());
        }
    }
    if (error) {
        return tl::make_unexpected("cannot ask process " + std::to_string(supervisor) +
                                   " of Copper for it (" + error.message() +
                                   "): it is perhaps in another user namespace");
    }
    return view.mount_namespace ? std::optional(std::move(view)) : std::nullopt;
}

tl::expected<View, std::string> view_of(pid_t process) {
    const auto namespaces = "/proc/" + std::to_string(process) + "/ns/";
    View view{.mount_namespace = open_namespace(namespaces + "mnt"),
              .user_namespace = open_namespace(namespaces + "user")};
    if (!view.mount_namespace || !view.user_namespace) {
        return failure(namespaces);
    }
    if (are_same(namespaces + "user", "/proc/self/ns/user")) {
        view.user_namespace.reset();
    }
    return view;
}

bool is_in_view(const std::string& mount, const std::vector<std::string>& trees) {
    const auto mounts = read_mounts();
    const auto device_at = [&mounts](const std::string& point) {
        const auto last = std::find_if(mounts.rbegin(), mounts.rend(),
                                       [&point](const Mount& each) { return each.point == point; });
        return last != mounts.rend() ? last->device : "";
    };
    const auto device = device_at(mount);
    return !device.empty() &&
           std::ranges::all_of(trees, [&](const std::string& tree) { return device_at(tree) == device; });
}

bool is_in_use(const View& view) {
    std::error_code error;
    return std::ranges::any_of(std::filesystem::directory_iterator("/proc", error), [&](const auto& process) {
        return are_same(path_of(view.mount_namespace), process.path() / "ns/mnt");
    });
}

bool is_beside(pid_t process) {
    const auto its = "/proc/" + std::to_string(process);
    return are_same(its + "/ns/mnt", "/proc/self/ns/mnt") && are_same(its + "/root", "/proc/self/root");
}

tl::expected<void, std::string> join(const View& view) {
    // setns() changes the working directory to the root.
    std::error_code error;
    const auto place = std::filesystem::current_path(error);
    const UniqueFd original(::open(".", O_PATH | O_CLOEXEC));
    if (!original) {
        return failure("cannot open the working directory");
    }
    if (view.user_namespace && ::setns(view.user_namespace.get(), CLONE_NEWUSER) != 0) {
        return failure("cannot join the user namespace of this node's view");
    }
    if (::setns(view.mount_namespace.get(), CLONE_NEWNS) != 0) {
        return failure("cannot join this node's view");
    }
    if ((error || ::chdir(place.c_str()) != 0) && ::fchdir(original.get()) != 0) {
        return failure("cannot go back to the working directory");
    }
    return {};
}

void uncover(const View& view, const std::string& device) {
    run_detached([&] {
        ::prctl(PR_SET_NAME, "copperd-uncover");  // it may outlive the daemon by a moment
        // Neither the device nor the cache may outlive the mirror with this process.
        close_descriptors_except({view.mount_namespace.get(), view.user_namespace.get()});
        ::alarm(uncover_seconds_max);
        if (join(view)) {
            for (const auto& mount : read_mounts()) {
                if (mount.type == copper_filesystem_type && mount.device == device) {
                    ::umount2(mount.point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
                }
            }
        }
    });
}

tl::expected<NewView, NoView> NewView::make(const std::string& mount, const std::vector<std::string>& trees) {
    const auto no_process = [](const std::string& why) {
        return tl::make_unexpected(NoView{why + ": " + error_text(), NoView::Where::process});
    };
    std::array<int, 2> ends = {};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return no_process("socketpair");
    }
    UniqueFd ours(ends[0]);
    UniqueFd theirs(ends[1]);
    const bool begun = run_detached([&] {
        close_descriptors_except({theirs.get()});
        live_in_new_view(theirs, mount, trees);
    });
    if (!begun) {
        return no_process("fork");
    }
    theirs.reset();
    pollfd heard{.fd = ours.get(), .events = POLLIN, .revents = 0};
    if (retry_eintr([&] { return ::poll(&heard, 1, static_cast<int>(view_patience.count())); }) <= 0) {
        return tl::make_unexpected(NoView{"the filesystem of a tree does not answer on this node"});
    }
    std::array<char, 2 * path_bytes_max> text{};
    const auto got = retry_eintr([&] { return ::recv(ours.get(), text.data(), text.size() - 1, 0); });
    char* why = nullptr;
    const auto process = static_cast<pid_t>(std::strtol(text.data(), &why, 10));
    if (got <= 0 || *why != ' ') {
        return tl::make_unexpected(NoView{"the process that makes it has ended", NoView::Where::process});
    }
    if (why[1] != '\0') {
        return tl::make_unexpected(NoView{why + 1});
    }
    return NewView(process, std::move(ours));
}

}  // namespace copper
