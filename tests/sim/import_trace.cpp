#include "tests/sim/import_trace.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/path.hpp"
#include "base/unique_fd.hpp"

namespace copper::sim {
namespace {

// How the kernel of a client asks for names, and how many calls PosixBacking's ConcurrentCalls makes at once.
constexpr std::size_t names_buffer_bytes = 32U << 10;
constexpr std::size_t dirent_bytes = 24;
constexpr std::uint32_t stats_at_once = 33;

std::string place_of(const std::string& relative) {
    const std::string root(ImportTrace::root);
    return relative == "." || relative.empty() ? root : join_path(root, relative);
}

Listing::NewEntry entry_of(const std::string& directory, const nlohmann::json& described) {
    Listing::NewEntry entry{.name = described.at(0), .target = {}, .attributes = {}};
    const std::string type = described.at(1);
    Attributes& attributes = entry.attributes;
    attributes.inode = hash_of({.kind = ObjectKind::entry, .path = join_path(directory, entry.name)});
    attributes.links = 1;
    if (type == "l") {
        entry.target = described.at(2);
        attributes.mode = S_IFLNK | 0777U;
        attributes.size = entry.target.size();
    } else {
        attributes.mode = type == "d" ? S_IFDIR | 0755U : S_IFREG | 0644U;
        attributes.size = described.at(2);
    }
    return entry;
}

Operation operation_of(const std::string& name) {
    const auto* const found = std::find(bench::operation_names.begin(), bench::operation_names.end(), name);
    if (found == bench::operation_names.end()) {
        throw nlohmann::json::other_error::create(0, "no such operation: " + name, nullptr);
    }
    return static_cast<Operation>(found - bench::operation_names.begin());
}

ImportTrace trace_of(const nlohmann::json& json) {
    const auto seconds = [&](const char* key) {
        return std::chrono::round<microseconds>(std::chrono::duration<double>(json.at(key).get<double>()));
    };
    ImportTrace trace{.package = json.at("package"),
                      .duration = seconds("seconds"),
                      .duration_local = seconds("seconds_local"),
                      .requests = {},
                      .directories = {}};
    for (const auto& one : json.at("requests")) {
        trace.requests.push_back({.at = microseconds(one.at(0).get<std::int64_t>()),
                                  .took = microseconds(one.at(1).get<std::int64_t>()),
                                  .operation = operation_of(one.at(2)),
                                  .path = place_of(one.at(3)),
                                  .is_found = one.at(4).get<int>() != 0,
                                  .offset = one.at(5),
                                  .bytes = one.at(6)});
    }
    for (const auto& [relative, names] : json.at("directories").items()) {
        auto& entries = trace.directories[place_of(relative)];
        for (const auto& name : names) {
            entries.push_back(entry_of(place_of(relative), name));
        }
    }
    return trace;
}

std::string unpacked(const std::string& path) {
    std::string quoted = path;
    for (std::size_t at = 0; (at = quoted.find('\'', at)) != std::string::npos; at += 4) {
        quoted.replace(at, 1, "'\\''");
    }
    const std::unique_ptr<FILE, int (*)(FILE*)> gzip(::popen(("gzip -dc < '" + quoted + "'").c_str(), "r"),
                                                     &::pclose);
    std::string text;
    char buffer[1U << 16U];
    while (const std::size_t got =
               gzip != nullptr ? std::fread(buffer, 1, sizeof buffer, gzip.get()) : std::size_t{0}) {
        text.append(buffer, got);
    }
    return text;
}

}  // namespace

tl::expected<ImportTrace, std::string> read_trace(const std::string& path) {
    try {
        return trace_of(nlohmann::json::parse(unpacked(path)));
    } catch (const nlohmann::json::exception& error) {
        return tl::make_unexpected(path + ": " + error.what());
    }
}

ImportTrace trace_of_a_large_file(std::uint32_t extents) {
    const std::string root(ImportTrace::root);
    ImportTrace trace{.package = "a large file",
                      .duration = microseconds(2 * extents + 2),
                      .requests = {{.at = microseconds(0),
                                    .took = microseconds(1),
                                    .operation = Operation::lookup,
                                    .path = join_path(root, "model")}},
                      .directories = {{root, {entry_of(root, {"model", "f", extents * extent_bytes})}}}};
    for (std::uint32_t extent = 0; extent < extents; ++extent) {
        trace.requests.push_back({.at = microseconds(2 * extent + 2),
                                  .took = microseconds(1),
                                  .operation = Operation::read,
                                  .path = join_path(root, "model"),
                                  .offset = extent * extent_bytes,
                                  .bytes = extent_bytes});
    }
    return trace;
}

TraceStore::TraceStore(const ImportTrace& trace, microseconds operation_time, std::string contents)
    : trace_(trace),
      operation_time_(operation_time),
      contents_(std::move(contents)),
      zeros_(std::make_shared<std::byte[]>(extent_bytes)) {
    for (const auto& [directory, entries] : trace.directories) {
        for (const auto& entry : entries) {
            entries_.emplace(join_path(directory, entry.name), entry);
        }
    }
    const std::string root(ImportTrace::root);
    entries_.emplace(root, entry_of("/", {root.substr(1), "d", 0}));
}

const Listing::NewEntry* TraceStore::find(const std::string& path) const {
    const auto found = entries_.find(path);
    return found == entries_.end() ? nullptr : &found->second;
}

Directory TraceStore::directory_of(const std::string& path) const {
    Listing all(trace_.directories.at(path), Listing::Detail::names_only);
    Directory directory;
    directory.entries = all.size();
    for (std::size_t first = 0; first < all.size(); first += piece_entries) {
        directory.first_names.emplace_back(all.at(first).name);
    }
    if (directory.first_names.size() <= 1) {
        directory.names = std::move(all);
    }
    directory.operation_time = operation_time_;
    return directory;
}

ObjectPtr TraceStore::read(const ObjectKey& key) const {
    const auto slice = [&](std::size_t entries, Listing::Detail detail) {
        auto all = trace_.directories.at(key.path);
        std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
        const auto begin =
            all.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(key.index * entries, all.size()));
        const auto end =
            begin + std::min<std::ptrdiff_t>(all.end() - begin, static_cast<std::ptrdiff_t>(entries));
        return make_object(Listing({begin, end}, detail));
    };
    const bool is_of_directory =
        key.kind == ObjectKind::directory || key.kind == ObjectKind::names || key.kind == ObjectKind::batch;
    if (is_of_directory && !trace_.directories.contains(key.path)) {
        return make_error(ENOENT);
    }
    switch (key.kind) {
        case ObjectKind::directory:
            return make_object(directory_of(key.path));
        case ObjectKind::names:
            return slice(piece_entries, Listing::Detail::names_only);
        case ObjectKind::batch:
            return slice(batch_entries, Listing::Detail::attributes);
        case ObjectKind::entry: {
            const auto* entry = find(key.path);
            return make_object(
                Listing(entry != nullptr ? std::vector{*entry} : std::vector<Listing::NewEntry>(),
                        Listing::Detail::attributes));
        }
        case ObjectKind::extent:
        case ObjectKind::own_extent:
            return read_extent(key);
        case ObjectKind::space:
        case ObjectKind::data_map:  // no file is sparse
            return make_error(EINVAL);
        case ObjectKind::xattrs:
        case ObjectKind::acl:
            return make_object(Xattrs());
        case ObjectKind::xattr_batch:
        case ObjectKind::acl_batch:
            return make_object(XattrBatch());
    }
    return nullptr;
}

ObjectPtr TraceStore::read_extent(const ObjectKey& key) const {
    const auto* entry = find(key.path);
    if (entry == nullptr || !S_ISREG(entry->attributes.mode)) {
        return make_error(entry == nullptr ? ENOENT : EISDIR);
    }
    const std::uint64_t offset = key.index * extent_bytes;
    const std::uint64_t size = entry->attributes.size;
    const auto bytes = static_cast<std::size_t>(std::min(extent_bytes, size - std::min(size, offset)));
    // A checksum that nobody verifies.
    return make_object(
        Extent{.attributes = entry->attributes,
               .blob = {.data = bytes_of(key.path, offset, bytes), .size = bytes, .checksum = 1}});
}

std::shared_ptr<const std::byte[]> TraceStore::bytes_of(const std::string& path, std::uint64_t offset,
                                                        std::size_t size) const {
    if (contents_.empty()) {
        return zeros_;
    }
    const std::string place = contents_ + path.substr(ImportTrace::root.size());
    const UniqueFd file(::open(place.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) != find(path)->attributes.size) {
        return zeros_;
    }
    auto bytes = std::make_shared<std::byte[]>(size);
    const auto got = ::pread(file.get(), bytes.get(), size, static_cast<off_t>(offset));
    return got == static_cast<ssize_t>(size) ? bytes : zeros_;
}

void TraceStore::add_lookups(const std::string& path, Client& client, std::vector<Step>& steps) const {
    if (path.size() > ImportTrace::root.size() && !client.names.contains(path)) {
        add_lookups(std::string(parent_path(path)), client, steps);
        client.names.insert(path);
        steps.push_back({.operation = Operation::lookup});
    }
}

std::vector<TraceStore::Step> TraceStore::steps_of(const ObjectKey& key, Client& client) const {
    std::vector<Step> steps;
    add_lookups(key.path, client, steps);
    const auto names = trace_.directories.find(key.path);
    switch (key.kind) {
        case ObjectKind::directory:
        case ObjectKind::names:
            steps.push_back({.operation = Operation::opendir});
            if (names != trace_.directories.end()) {
                std::size_t bytes = 0;
                for (const auto& entry : names->second) {
                    bytes += dirent_bytes + (entry.name.size() + 8) / 8 * 8;
                }
                steps.resize(steps.size() + 1 + bytes / names_buffer_bytes,
                             {.operation = Operation::readdir});
            }
            break;
        case ObjectKind::entry:
            if (const auto* entry = find(key.path); entry != nullptr && S_ISLNK(entry->attributes.mode)) {
                steps.push_back({.operation = Operation::readlink});
            }
            break;
        case ObjectKind::batch: {
            std::uint32_t count = 0;
            const ObjectPtr batch = read(key);
            for (std::size_t i = 0; batch->listing() != nullptr && i < batch->listing()->size(); ++i) {
                count +=
                    client.names.insert(join_path(key.path, batch->listing()->at(i).name)).second ? 1 : 0;
            }
            for (; count > 0; count -= std::min(count, stats_at_once)) {
                steps.push_back({.operation = Operation::lookup, .count = std::min(count, stats_at_once)});
            }
            break;
        }
        case ObjectKind::extent:
        case ObjectKind::own_extent: {
            const ObjectPtr object = read_extent(key);
            const Extent* extent = object->extent();
            if (extent == nullptr || client.open_files.insert(key.path).second) {
                steps.push_back({.operation = Operation::open});
            }
            if (extent != nullptr && extent->plain_bytes > 0) {
                steps.push_back({.operation = Operation::read, .bytes = extent->plain_bytes});
            }
            break;
        }
        case ObjectKind::xattrs:
        case ObjectKind::xattr_batch:
        case ObjectKind::acl:
        case ObjectKind::acl_batch:
        case ObjectKind::space:
        case ObjectKind::data_map:
            break;
    }
    return steps;
}

}  // namespace copper::sim
