#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/checksum.hpp"
#include "cache/backing/calls.hpp"
#include "cache/backing/open_files.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/codec.hpp"

namespace copper {
namespace {

// Up to `size` bytes from `offset`; fewer only at the end of the file. Without attributes.
SystemResult<Extent> read_bytes(int file, std::uint64_t offset, std::size_t size, ExtentMemory& memory,
                                ReadCounters& counters) {
    auto data = memory.allocate(size);
    std::size_t done = 0;
    while (done < size) {
        counters.count(&BackingCounters::reads);
        const auto read = [&] {
            return retry_eintr([&] {
                return ::pread(file, data.get() + done, size - done, static_cast<off_t>(offset + done));
            });
        };
        const auto got =
            size <= Pace::read_bytes_max ? counters.pace().timed(Pace::Kind::read, read) : read();
        if (got < 0) {
            return tl::unexpected(errno);
        }
        if (got == 0) {
            break;
        }
        done += static_cast<std::size_t>(got);
        counters.add_bytes(static_cast<std::uint64_t>(got));
    }
    const std::span<const std::byte> bytes(data.get(), done);
    if (are_zeros(bytes)) {
        return Extent{.attributes = {}, .blob = {}, .coding = Coding::zeros, .plain_bytes = done};
    }
    const auto checksum = checksum_of(bytes);
    return Extent{.attributes = {}, .blob = {std::move(data), done, checksum}};
}

// Where the filesystem says that a file of this size has data. One that knows no holes, or contradicts
// itself, has data everywhere.
SystemResult<std::vector<DataMap::Segment>> find_data(int file, std::uint64_t size, ReadCounters& counters) {
    const std::vector<DataMap::Segment> everything = {{.begin = 0, .end = size}};
    const auto seek = [&](std::uint64_t offset, int whence) -> SystemResult<std::uint64_t> {
        counters.count(&BackingCounters::reads);
        const auto found = retry_eintr([&] { return ::lseek(file, static_cast<off_t>(offset), whence); });
        return found >= 0 ? SystemResult<std::uint64_t>(static_cast<std::uint64_t>(found))
                          : tl::unexpected(errno);
    };
    const auto is_unknown = [](int error) {
        return error == EINVAL || error == ENOTSUP || error == ENOSYS || error == ENXIO;
    };
    std::vector<DataMap::Segment> segments;
    for (std::uint64_t at = 0; at < size;) {
        const auto begin = seek(at, SEEK_DATA);
        if (!begin && begin.error() == ENXIO) {
            break;
        }
        const auto end = begin ? seek(*begin, SEEK_HOLE) : begin;
        if (!end && !is_unknown(end.error())) {
            return tl::unexpected(end.error());
        }
        const bool is_sound =
            end && *begin < *end && *end <= size && (segments.empty() || *begin > segments.back().end);
        if (!is_sound) {
            return everything;
        }
        at = segments.size() + 1 < DataMap::segments_max ? *end : size;
        segments.push_back({.begin = *begin, .end = at});
    }
    return segments;
}

// An Extent or a DataMap, as the key says. Nothing if it is not proven to be of one Version.
SystemResult<std::optional<Content>> read_once(int file, const SystemResult<Observed>& seen,
                                               const ObjectKey& key, ExtentMemory& memory,
                                               ReadCounters& counters) {
    if (!seen) {
        return tl::unexpected(seen.error());
    }
    const Attributes& before = seen->attributes;
    if (!S_ISREG(before.mode)) {
        return tl::unexpected(S_ISDIR(before.mode) ? EISDIR : EINVAL);
    }
    if (!seen->is_settled) {
        return std::nullopt;
    }
    const bool is_of_map = key.kind == ObjectKind::data_map;
    const auto offset = key.index * extent_bytes;
    const auto size = std::min(extent_bytes, before.size - std::min(before.size, offset));
    auto segments = is_of_map ? find_data(file, before.size, counters) : std::vector<DataMap::Segment>();
    auto extent =
        is_of_map ? Extent() : read_bytes(file, offset, static_cast<std::size_t>(size), memory, counters);
    if (!segments || !extent) {
        return tl::unexpected(segments ? extent.error() : segments.error());
    }
    const auto after = seen->may_be_stale ? stat_anew(file, counters) : stat_at(file, "", counters);
    if (!after) {
        return tl::unexpected(after.error());
    }
    if (version_of(before) != version_of(*after) || (!is_of_map && extent->plain_bytes != size)) {
        return std::nullopt;
    }
    if (is_of_map) {
        return DataMap{.attributes = *after, .segments = std::move(*segments)};
    }
    extent->attributes = *after;
    return std::move(*extent);
}

Attributes& attributes_in(Content& content) {
    auto* extent = std::get_if<Extent>(&content);
    return extent != nullptr ? extent->attributes : std::get<DataMap>(content).attributes;
}

bool is_wanted(const Attributes& attributes, const ObjectKey& key) {
    return key.version == 0 || key.version == hash_of(version_of(attributes));
}

SystemResult<OpenFiles::Opened> open_file(const std::string& path, PathOpener& opener,
                                          ReadCounters& counters) {
    counters.count(&BackingCounters::file_opens);
    return counters.pace()
        .timed(Pace::Kind::open,
               // O_NONBLOCK: opening a FIFO must not wait for its other end.
               [&] { return opener.open(path, O_RDONLY | O_NONBLOCK, counters); })
        // The mount may be gone from its place before the file is closed (umount -l).
        .map([](PathOpener::Opened opened) {
            return OpenFiles::Opened{.fd = std::move(opened.fd),
                                     .has_number = opened.mounts->numbers_files(opened.path)};
        });
}

// With the inode number that all nodes tell.
Attributes numbered(Attributes attributes, const OpenFiles::File& file, const std::string& path) {
    attributes.inode = file.has_number ? attributes.inode : number_of(path);
    return attributes;
}

// What the file is before it is read.
SystemResult<Observed> look_at(const OpenFiles::File& file, const ObjectKey& key, FilesystemClocks& clocks,
                               std::chrono::milliseconds& patience, ReadCounters& counters) {
    const int fd = file.fd.get();
    auto seen = settled_stat(fd, clocks, patience, counters);
    if (seen && !is_wanted(numbered(seen->attributes, file, key.path), key)) {
        // The client may be mistaken: where sshfs loses its server, it answers a read with no bytes, and the
        // kernel takes the file for empty from then on, and fills its pages with zeros.
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        seen = settled_stat(fd, clocks, patience, counters, Ask::server);
    }
    if (key.kind == ObjectKind::extent && seen && extents_of(seen->attributes.size) > first_stripe_extents) {
        // What comes next is another node's stripe: the kernel must not read ahead.
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    }
    return seen;
}

// How long to keep what was read. If the file's Version is not the key's: for a file of several extents only
// briefly, for the present askers, because another opening may still find the wanted Version. An extent that
// is the whole file is consistent in any Version.
std::optional<std::chrono::milliseconds> lifetime_of(const Attributes& attributes, const ObjectKey& key) {
    return is_wanted(attributes, key) || extents_of(attributes.size) <= 1 ? std::nullopt
                                                                          : std::optional(error_lifetime);
}

}  // namespace

ObjectPtr PosixBacking::read_file(const ObjectKey& key, ReadCounters& counters) {
    const OpenFiles::Wanted wanted{.path = key.path, .version = key.version};
    int error = EAGAIN;
    OpenFiles::FilePtr last;
    std::chrono::milliseconds patience = patience_max;
    for (int attempt = 1; attempt <= read_attempts_max; ++attempt) {
        bool is_just_opened = false;
        const auto file = open_files_->get(wanted, [&] {
            is_just_opened = true;
            return open_file(key.path, opener_, counters);
        });
        if (!file) {
            return make_error(file.error());
        }
        const auto seen = look_at(**file, key, clocks_, patience, counters);
        auto done = read_once((*file)->fd.get(), seen, key, *memory_, counters);
        if (!done) {
            open_files_->close(wanted, **file);
            error = done.error();
            // A file that was kept open can fail where a new opening works: it was replaced (ESTALE), or the
            // client has lost its server meanwhile.
            if (is_just_opened && error != ESTALE) {
                break;
            }
        } else if (*done) {
            Attributes& attributes = attributes_in(**done);
            attributes = numbered(attributes, **file, key.path);
            const bool is_of_map = key.kind == ObjectKind::data_map;
            open_files_->mark_read(wanted, **file, is_of_map ? OpenFiles::no_extent : key.index,
                                   extents_of(attributes.size));
            note_version(ReadVersions::Kind::file, key.path, version_of(attributes));
            const auto lifetime = lifetime_of(attributes, key);
            return make_object(std::move(**done), lifetime);
        } else {
            error = EAGAIN;
            last = *file;
            if (patience.count() == 0) {
                break;
            }
        }
    }
    if (last != nullptr) {
        open_files_->close(wanted, *last);  // it may have been replaced
    }
    return make_error(error);
}

}  // namespace copper
