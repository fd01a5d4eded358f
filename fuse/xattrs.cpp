// getxattr, listxattr.
#include <cerrno>

#include <algorithm>

#include "fuse/operations.hpp"

namespace copper {
namespace {

// Follows getxattr(2) and listxattr(2) for the size of a caller's buffer.
void reply_sized(const ReplyPtr& reply, const std::string& value, std::size_t bytes_max) {
    if (bytes_max == 0) {
        reply->size(value.size());
    } else if (bytes_max < value.size()) {
        reply->error(ERANGE);
    } else {
        const iovec piece{.iov_base = const_cast<char*>(value.data()), .iov_len = value.size()};
        reply->bytes({&piece, 1});
    }
}

std::optional<AclType> acl_named(std::string_view name) {
    const auto found = std::find(acl_names.begin(), acl_names.end(), name);
    return found != acl_names.end() ? std::optional(static_cast<AclType>(found - acl_names.begin()))
                                    : std::nullopt;
}

// What getxattr(2) says of an attribute that is not there (xattr(7)). A name of no class, or of one that only
// single filesystems know, belongs to none.
int error_of_absent(std::string_view name, bool has_selinux) {
    constexpr std::string_view classes[] = {"user.", "trusted.", "security."};
    const bool has_class =
        std::ranges::any_of(classes, [name](std::string_view each) { return name.starts_with(each); });
    return has_class && (name != "security.selinux" || has_selinux) ? ENODATA : EOPNOTSUPP;
}

}  // namespace

void Operations::getxattr(ReplyPtr reply, InodeId inode, std::string name, std::size_t bytes_max) {
    const auto path = inodes_.path(inode);
    if (!path) {
        reply->error(ESTALE);
        return;
    }
    const auto acl = acl_named(name);
    const int absent = acl ? ENODATA : error_of_absent(name, options_.has_selinux);
    // With several users, the kernel itself asks for ACLs, and would refuse every access at ENOTSUP
    // (fs/fuse/acl.c: fuse_get_acl).
    const bool is_for_kernel = options_.audience == Audience::everyone;
    auto waiter =
        answering(std::move(reply), [name = std::move(name), bytes_max, absent, is_for_kernel, acl](
                                        const ReplyPtr& answer, const XattrResolver::Resolution& xattrs) {
            if (!xattrs) {
                const bool is_no_acl = acl && is_for_kernel && xattrs.error() == std::errc::not_supported;
                answer->error(is_no_acl ? ENODATA : to_errno(xattrs.error()));
                return;
            }
            const auto found = std::find_if(xattrs->begin(), xattrs->end(),
                                            [&name](const auto& xattr) { return xattr.first == name; });
            if (found == xattrs->end()) {
                answer->error(absent);
            } else {
                reply_sized(answer, found->second, bytes_max);
            }
        });
    if (acl) {
        xattrs_.resolve_acl(*path, *acl, std::move(waiter));
    } else {
        xattrs_.resolve(*path, std::move(waiter));
    }
}

void Operations::listxattr(ReplyPtr reply, InodeId inode, std::size_t bytes_max) {
    const auto path = inodes_.path(inode);
    if (!path) {
        reply->error(ESTALE);
        return;
    }
    xattrs_.resolve(*path, answering(std::move(reply), [bytes_max](const ReplyPtr& answer,
                                                                   const XattrResolver::Resolution& xattrs) {
        if (!xattrs) {
            answer->error(to_errno(xattrs.error()));
            return;
        }
        std::string names;
        for (const auto& [name, value] : *xattrs) {
            names.append(name).append(1, '\0');
        }
        reply_sized(answer, names, bytes_max);
    }));
}

}  // namespace copper
