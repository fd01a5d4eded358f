#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

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

// getxattr(2) fails like this for an attribute that was removed meanwhile, or that only others may read
// (trusted.*).
// An access control list that cannot be read is there all the same.
bool is_none_for_this_user(const std::string& attribute, int error) {
    const bool is_refused = error == EPERM || error == EACCES;
    return error == ENODATA || is_unsupported(error) ||
           (is_refused && !attribute.starts_with("system.posix_acl_"));
}

// The bytes that `call` writes into a buffer.
template <typename Call>
SystemResult<std::string> text_by(Call call, BackingCounters& counters) {
    std::array<char, call_bytes_usual> usual;
    ++counters.xattrs;
    auto bytes = retry_eintr([&] { return call(usual.data(), usual.size()); });
    if (bytes >= 0) {
        return std::string(usual.data(), static_cast<std::size_t>(bytes));
    }
    if (errno != ERANGE) {
        return tl::unexpected(errno);
    }
    std::string large(call_bytes_max, '\0');
    ++counters.xattrs;
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

// All extended attributes of `name` in an open directory, without following a link. (There is no
// llistxattrat(2) before Linux 6.13.)
SystemResult<Xattrs> all_xattrs(int directory, const std::string& name, BackingCounters& counters) {
    const std::string path = "/proc/self/fd/" + std::to_string(directory) + '/' + name;
    const auto names =
        text_by([&](char* to, std::size_t bytes) { return ::llistxattr(path.c_str(), to, bytes); }, counters);
    if (!names) {
        return is_unsupported(names.error()) ? SystemResult<Xattrs>() : tl::unexpected(names.error());
    }
    Xattrs xattrs;
    for (std::size_t at = 0; at < names->size(); at += std::strlen(&(*names)[at]) + 1) {
        const char* attribute = &(*names)[at];
        auto value = text_by(
            [&](char* to, std::size_t bytes) { return ::lgetxattr(path.c_str(), attribute, to, bytes); },
            counters);
        if (value) {
            xattrs.emplace_back(attribute, std::move(*value));
        } else if (!is_none_for_this_user(attribute, value.error())) {
            // Fail: without this attribute, a file could seem to have no access control list.
            return tl::unexpected(value.error());
        }
    }
    return bytes_on_the_wire(xattrs) <= path_bytes_of_xattrs_max ? SystemResult<Xattrs>(std::move(xattrs))
                                                                 : tl::unexpected(E2BIG);
}

}  // namespace

ObjectPtr PosixBacking::read_xattrs(const std::string& path) {
    auto& counters = counters_of(path);
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
    auto xattrs = all_xattrs(parent->fd.get(), name, counters);
    return xattrs ? make_object(std::move(*xattrs)) : make_error(xattrs.error());
}

ObjectPtr PosixBacking::read_xattr_batch(const ObjectKey& key) {
    const auto known = batch_names(key);
    if (!known) {
        return known.error();
    }
    auto& counters = counters_of(key.path);
    const auto opened = opener_.open(key.path, O_PATH | O_DIRECTORY, counters);
    if (!opened) {
        return make_error(opened.error());
    }
    const auto& names = known->names;
    const auto mounts = mounts_.current();
    std::vector<std::optional<Xattrs>> found(names.size());
    std::atomic<int> trouble = 0;
    std::atomic<std::size_t> failed = 0;
    calls_->for_each(names.size(), [&](std::size_t i) {
        const std::string name(names[i].name);
        const std::string place = join_path(opened->path, name);
        if (mounts->obstacle(place) || mounts->is_lost(place)) {
            return;
        }
        if (auto xattrs = all_xattrs(opened->fd.get(), name, counters)) {
            found[i] = std::move(*xattrs);
        } else {
            trouble = xattrs.error();
            ++failed;
        }
    });
    if (failed > 0 && failed == names.size()) {
        return make_error(trouble);  // all failed: answer once for the batch
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
