#include "cache/backing/posix_backing.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <cerrno>

#include "base/path.hpp"
#include "cache/backing/calls.hpp"
#include "cache/backing/concurrent_calls.hpp"
#include "cache/backing/open_files.hpp"

namespace copper {
namespace {

ObjectPtr make_absent() {
    return make_object(Listing({}, Listing::Detail::attributes));
}

}  // namespace

PosixBacking::PosixBacking(Trees trees, PathOpener::Method method, std::shared_ptr<ExtentMemory> memory,
                           PathOpener::Links links)
    : trees_(std::move(trees)),
      memory_(std::move(memory)),
      mounts_(trees_),
      opener_(mounts_, method, links),
      open_files_(std::make_unique<OpenFiles>()),
      calls_(std::make_unique<ConcurrentCalls>()) {}

PosixBacking::~PosixBacking() = default;

std::string PosixBacking::filesystem_of(const std::string& path) {
    return mounts_.current()->filesystem_of(path);
}

void PosixBacking::note_version(ReadVersions::Kind kind, const std::string& path, const Version& version) {
    if (versions_ != nullptr && trees_.contains(path)) {
        versions_->note(kind, path, version);
    }
}

SystemResult<Version> PosixBacking::version_now(const std::string& path) {
    ReadProgress unseen;
    ReadCounters counters(within_trees_, unseen, paces_.of(filesystem_of(path)));
    const auto opened = opener_.open(path, O_PATH, counters);
    if (!opened) {
        return tl::unexpected(opened.error());
    }
    return stat_at(opened->fd.get(), "", counters, Ask::server).map([&](Attributes attributes) {
        attributes.inode = number_of(path, *opened, attributes.inode);
        return version_of(attributes);
    });
}

ObjectPtr PosixBacking::read(const ObjectKey& key, ReadProgress& progress) {
    ReadCounters counters(trees_.contains(key.path) ? within_trees_ : outside_trees_, progress,
                          paces_.of(filesystem_of(key.path)));
    switch (key.kind) {
        case ObjectKind::directory:
            return read_directory(key, counters);
        case ObjectKind::names:
            return read_piece(key, counters);
        case ObjectKind::batch:
            return read_batch(key, counters);
        case ObjectKind::entry:
            return read_entry(key.path, counters);
        case ObjectKind::extent:
        case ObjectKind::own_extent:
        case ObjectKind::data_map:
            return read_file(key, counters);
        case ObjectKind::space:
            return read_space(key.path, counters);
        case ObjectKind::xattrs:
        case ObjectKind::acl:
            return read_xattrs(key, counters);
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return read_xattr_batch(key, counters);
    }
    return make_error(EINVAL);
}

ObjectPtr PosixBacking::make_entry(Listing::NewEntry entry, const ReadCounters& counters,
                                   std::optional<std::chrono::milliseconds> lifetime) {
    std::vector<SystemResult<Listing::NewEntry>> entries;
    entries.emplace_back(std::move(entry));
    return make_object(make_listing(std::move(entries), counters), lifetime);
}

// Report "no such name" only if the directory exists. A missing directory may be this node's trouble.
ObjectPtr PosixBacking::read_entry(const std::string& path, ReadCounters& counters) {
    const auto parent = opener_.open_parent(path, counters);
    if (!parent) {
        return make_error(parent.error());
    }
    const auto name = std::string(base_name(path));
    if (const auto obstacle = parent->mounts->obstacle(join_path(parent->path, name));
        obstacle && !name.empty()) {
        return obstacle->kind == MountMap::Walk::copper_mount
                   ? make_entry(copper_mount_entry(name, 1), counters)
                   : make_absent();
    }
    const auto directory = parent_directory(parent->fd.get());
    auto entry = directory ? entry_at(*directory, name, clocks_, IfUnsettled::wait, counters)
                           : tl::unexpected(directory.error());
    if (!entry) {
        return entry.error() == ENOENT ? make_absent() : make_error(entry.error());
    }
    if (!parent->mounts->numbers_files(join_path(parent->path, name))) {
        entry->entry.attributes.inode = number_of(path);
    }
    const bool is_lost = mounts_.current()->is_lost(join_path(parent->path, name));
    const auto lifetime = entry->is_settled ? std::nullopt : std::optional(doubtful_lifetime);
    return is_lost ? make_error(ESTALE) : make_entry(std::move(entry->entry), counters, lifetime);
}

ObjectPtr PosixBacking::read_space(const std::string& path, ReadCounters& counters) {
    const auto opened = opener_.open(path, O_PATH, counters);
    if (!opened) {
        return make_error(opened.error());
    }
    counters.count(&BackingCounters::stats);
    struct statvfs found {};
    if (retry_eintr([&] { return ::fstatvfs(opened->fd.get(), &found); }) != 0) {
        return make_error(errno);
    }
    return make_object(FilesystemSpace{.block_bytes = found.f_bsize,
                                       .fragment_bytes = found.f_frsize,
                                       .blocks = found.f_blocks,
                                       .free = found.f_bfree,
                                       .available = found.f_bavail,
                                       .files = found.f_files,
                                       .free_files = found.f_ffree,
                                       .name_bytes_max = found.f_namemax},
                       doubtful_lifetime);
}

}  // namespace copper
