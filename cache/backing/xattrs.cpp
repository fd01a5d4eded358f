#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/path.hpp"
#include "cache/backing/calls.hpp"
#include "cache/backing/concurrent_calls.hpp"
#include "cache/backing/posix_backing.hpp"

namespace copper {
namespace {

// The kernel's limits (XATTR_LIST_MAX, XATTR_SIZE_MAX), so one call is always enough. Most need far less.
constexpr std::size_t call_bytes_max = 65536;
constexpr std::size_t call_bytes_usual = 1024;

// The attributes of one path, and of one batch. Leaves room for their encoding, since no object larger than 1
// MiB may travel.
constexpr std::size_t path_bytes_of_xattrs_max = 512U << 10U;
constexpr std::size_t batch_bytes_of_xattrs_max = 256U << 10U;
constexpr std::size_t pair_overhead = 64;

bool is_unsupported(int error) {
    return error == ENOTSUP || error == ENOSYS;
}

// getxattr(2) fails like this for an attribute that was removed meanwhile, or that only others may see
// (trusted.*).
bool is_none_for_this_user(int error) {
    return error == ENODATA || is_unsupported(error) || error == EPERM;
}

// Where this user may not read the file, these attributes are listed all the same. The kernel itself refuses
// their values (xattr_permission() in fs/xattr.c).
bool is_name_alone(std::string_view attribute, int error) {
    return error == EACCES && attribute.starts_with("user.");
}

bool is_acl(const char* attribute) {
    return std::ranges::any_of(acl_names,
                               [attribute](const char* acl) { return std::strcmp(acl, attribute) == 0; });
}

// The bytes that `call` writes into a buffer.
template <typename Call>
SystemResult<std::string> text_by(Call call, ReadCounters& counters) {
    std::array<char, call_bytes_usual> usual;
    counters.count(&BackingCounters::xattrs);
    auto bytes = retry_eintr([&] { return call(usual.data(), usual.size()); });
    if (bytes >= 0) {
        return std::string(usual.data(), static_cast<std::size_t>(bytes));
    }
    if (errno != ERANGE) {
        return tl::unexpected(errno);
    }
    std::string large(call_bytes_max, '\0');
    counters.count(&BackingCounters::xattrs);
    bytes = retry_eintr([&] { return call(large.data(), large.size()); });
    if (bytes < 0) {
        return tl::unexpected(errno);
    }
    large.resize(static_cast<std::size_t>(bytes));
    large.shrink_to_fit();
    return large;
}

std::size_t bytes_on_the_wire(const Xattrs& xattrs) {
    std::size_t bytes = 0;
    for (const auto& [name, value] : xattrs) {
        bytes += name.size() + value.size() + pair_overhead;
    }
    return bytes;
}

// (There is no llistxattrat(2) before Linux 6.13.)
std::string path_below(int directory, const std::string& name) {
    return "/proc/self/fd/" + std::to_string(directory) + '/' + name;
}

SystemResult<std::string> value_of(const std::string& path, const char* attribute, ReadCounters& counters) {
    return text_by(
        [&](char* to, std::size_t bytes) { return ::lgetxattr(path.c_str(), attribute, to, bytes); },
        counters);
}

// All listed attributes of `name` in an open directory, without following a link. Access control lists
// without their values: those are objects of their own.
SystemResult<Xattrs> listed_xattrs(int directory, const std::string& name, ReadCounters& counters) {
    const std::string path = path_below(directory, name);
    const auto names =
        text_by([&](char* to, std::size_t bytes) { return ::llistxattr(path.c_str(), to, bytes); }, counters);
    if (!names) {
        return tl::unexpected(names.error());
    }
    Xattrs xattrs;
    for (std::size_t at = 0; at < names->size(); at += std::strlen(&(*names)[at]) + 1) {
        const char* attribute = &(*names)[at];
        auto value = is_acl(attribute) ? SystemResult<std::string>() : value_of(path, attribute, counters);
        if (value || is_name_alone(attribute, value.error())) {
            xattrs.emplace_back(attribute, std::move(value).value_or(""));
        } else if (!is_none_for_this_user(value.error())) {
            return tl::unexpected(value.error());
        }
    }
    return bytes_on_the_wire(xattrs) <= path_bytes_of_xattrs_max ? SystemResult<Xattrs>(std::move(xattrs))
                                                                 : tl::unexpected(E2BIG);
}

// Whatever the list says. Any error but ENODATA stays one: a list that cannot be read is there all the same.
SystemResult<Xattrs> acl_of(int directory, const std::string& name, AclType type, ReadCounters& counters) {
    const char* attribute = acl_names[static_cast<std::size_t>(type)];
    auto value = value_of(path_below(directory, name), attribute, counters);
    if (value) {
        return Xattrs{{attribute, std::move(*value)}};
    }
    return value.error() == ENODATA ? SystemResult<Xattrs>() : tl::unexpected(value.error());
}

// ENOTSUP is a property of the file or its filesystem, and no trouble that could pass. Programs get it, too.
ObjectPtr make_xattr_error(int error) {
    return is_unsupported(error) ? make_object(std::make_error_code(std::errc::not_supported))
                                 : make_error(error);
}

}  // namespace

ObjectPtr PosixBacking::read_xattrs(const ObjectKey& key, ReadCounters& counters) {
    const std::string& path = key.path;
    const auto parent = opener_.open_parent(path, counters);
    if (!parent) {
        return make_error(parent.error());
    }
    const auto name = std::string(base_name(path));
    const auto place = join_path(parent->path, name);
    if (const auto obstacle = parent->mounts->obstacle(place); obstacle && !name.empty()) {
        return make_error(error_of(obstacle->kind));
    }
    if (mounts_.current()->is_lost(place)) {
        return make_error(ESTALE);
    }
    auto xattrs = key.kind == ObjectKind::acl
                      ? acl_of(parent->fd.get(), name, static_cast<AclType>(key.index), counters)
                      : listed_xattrs(parent->fd.get(), name, counters);
    return xattrs ? make_object(std::move(*xattrs)) : make_xattr_error(xattrs.error());
}

ObjectPtr PosixBacking::read_xattr_batch(const ObjectKey& key, ReadCounters& counters) {
    const auto known = batch_names(key, counters);
    if (!known) {
        return known.error();
    }
    const auto opened = opener_.open(key.path, O_PATH | O_DIRECTORY, counters);
    if (!opened) {
        return make_error(opened.error());
    }
    const auto& names = known->names;
    const auto mounts = mounts_.current();
    std::vector<std::optional<Xattrs>> found(names.size());
    std::atomic<int> trouble = 0;
    std::atomic<std::size_t> asked = 0, failed = 0, unsupported = 0;
    const bool is_of_acls = key.kind == ObjectKind::acl_batch;
    calls_->for_each(opened->fd.get(), names.size(), [&](std::size_t i) {
        const std::string name(names[i].name);
        const std::string place = join_path(opened->path, name);
        if (mounts->obstacle(place) || mounts->is_lost(place)) {
            return;
        }
        // A link has none, and programs do not ask.
        if (is_of_acls && S_ISLNK(names[i].attributes.mode)) {
            return;
        }
        auto xattrs = is_of_acls ? acl_of(opened->fd.get(), name, AclType::access, counters)
                                 : listed_xattrs(opened->fd.get(), name, counters);
        ++asked;
        if (xattrs) {
            found[i] = std::move(*xattrs);
        } else {
            ++failed;
            if (is_unsupported(xattrs.error())) {
                ++unsupported;
            } else {
                trouble = xattrs.error();
            }
        }
    });
    if (failed > 0 && failed == asked) {
        return make_xattr_error(unsupported == failed ? ENOTSUP : trouble.load());  // once for the batch
    }
    XattrBatch batch;
    std::size_t left = batch_bytes_of_xattrs_max;
    for (std::size_t i = 0; i < names.size(); ++i) {
        auto& xattrs = found[i];
        if (xattrs && xattrs->empty()) {
            continue;
        }
        const std::size_t bytes = xattrs ? bytes_on_the_wire(*xattrs) : 0;
        if (bytes > left) {
            xattrs.reset();
        } else {
            left -= bytes;
        }
        batch.entries.push_back({std::string(names[i].name), std::move(xattrs)});
    }
    return make_object(std::move(batch), lifetime_in(opened->path));
}

}  // namespace copper
