// Reads the backing filesystem with POSIX calls. The methods are also in directories.cpp, files.cpp and
// xattrs.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "base/mount_table.hpp"
#include "base/trees.hpp"
#include "cache/backing/counters.hpp"
#include "cache/backing/filesystem_clock.hpp"
#include "cache/backing/listed_directories.hpp"
#include "cache/backing/pace.hpp"
#include "cache/backing/path_opener.hpp"
#include "cache/backing/read_versions.hpp"
#include "cache/backing_store.hpp"
#include "cache/extent_memory.hpp"
#include "cache/object.hpp"

namespace copper {

class OpenFiles;
class ConcurrentCalls;

// Ensures that the bytes of an extent are of one Version: it compares the file's identity before and after
// the read, and reads again if the file changed. A file that keeps changing gives EAGAIN; the names of a
// directory that keeps changing, and the attributes of a file that does, are kept for 2 seconds. Files of
// several extents stay open from one extent to the next, so each is opened once.
class PosixBacking final : public BackingStore {
  public:
    // Counts operations within `trees` apart from those outside.
    explicit PosixBacking(Trees trees, PathOpener::Method method = PathOpener::detect(),
                          std::shared_ptr<ExtentMemory> memory = ExtentMemory::make(),
                          PathOpener::Links links = PathOpener::Links::follow);
    ~PosixBacking() override;

    // From now on, notes there of which version everything in the trees was that it has read. `versions` must
    // outlive it. Call it before the first read.
    void note_versions_in(ReadVersions& versions) { versions_ = &versions; }
    // As the filesystem has it now, to compare with those.
    SystemResult<Version> version_now(const std::string& path);

    using BackingStore::read;
    ObjectPtr read(const ObjectKey& key, ReadProgress& progress) override;
    std::string filesystem_of(const std::string& path) override;
    bool is_serial(const std::string& filesystem) override { return paces_.of(filesystem).is_serial(); }

    const BackingCounters& within_trees() const { return within_trees_; }
    const BackingCounters& outside_trees() const { return outside_trees_; }
    const Paces& paces() const { return paces_; }

  private:
    void note_version(ReadVersions::Kind kind, const std::string& path, const Version& version);
    ObjectPtr make_entry(Listing::NewEntry entry, const ReadCounters& counters,
                         std::optional<std::chrono::milliseconds> lifetime = std::nullopt);
    Listing make_listing(std::vector<SystemResult<Listing::NewEntry>> entries, const ReadCounters& counters);
    std::optional<std::chrono::milliseconds> lifetime_in(const std::string& directory);
    struct OpenDirectory;
    SystemResult<ListedDirectories::Found> list_once(OpenDirectory& directory);
    ListedDirectories::Found list_directory(const ObjectKey& key, ReadCounters& counters);
    ListedDirectories::Found find_names(const ObjectKey& key, ReadCounters& counters);
    ObjectPtr read_directory(const ObjectKey& key, ReadCounters& counters);
    ObjectPtr read_piece(const ObjectKey& key, ReadCounters& counters);
    struct BatchNames {
        ObjectPtr piece;
        std::vector<Listing::Entry> names;  // views into `piece`
    };
    tl::expected<BatchNames, ObjectPtr> batch_names(const ObjectKey& key, ReadCounters& counters);
    ObjectPtr read_batch(const ObjectKey& key, ReadCounters& counters);
    ObjectPtr read_entry(const std::string& path, ReadCounters& counters);
    ObjectPtr read_file(const ObjectKey& key, ReadCounters& counters);
    ObjectPtr read_space(const std::string& path, ReadCounters& counters);
    ObjectPtr read_xattrs(const ObjectKey& key, ReadCounters& counters);
    ObjectPtr read_xattr_batch(const ObjectKey& key, ReadCounters& counters);

    const Trees trees_;
    const std::shared_ptr<ExtentMemory> memory_;
    MountTable mounts_;
    PathOpener opener_;
    BackingCounters within_trees_;
    BackingCounters outside_trees_;
    Paces paces_;
    FilesystemClocks clocks_;
    std::unique_ptr<OpenFiles> open_files_;
    ListedDirectories listed_;
    ReadVersions* versions_ = nullptr;  // null: nobody asks for them
    std::unique_ptr<ConcurrentCalls> calls_;
};

}  // namespace copper
