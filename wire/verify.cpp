#include "wire/verify.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/path.hpp"

namespace copper {
namespace {

// <linux/limits.h>: XATTR_NAME_MAX, XATTR_SIZE_MAX
constexpr std::size_t xattr_name_bytes_max = 255;
constexpr std::size_t xattr_value_bytes_max = 65536;
constexpr std::uint32_t nanoseconds_max = 999'999'999;

bool has_nul(std::string_view text) {
    return text.find('\0') != std::string_view::npos;
}

bool is_file_type(std::uint32_t mode) {
    constexpr std::uint32_t types[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
    return std::ranges::find(types, mode & S_IFMT) != std::end(types);
}

bool is_sound(const Attributes& attributes) {
    return is_file_type(attributes.mode) &&
           attributes.size <= std::uint64_t{std::numeric_limits<std::int64_t>::max()} &&
           attributes.accessed.nanoseconds <= nanoseconds_max &&
           attributes.modified.nanoseconds <= nanoseconds_max &&
           attributes.changed.nanoseconds <= nanoseconds_max;
}

bool is_sound(const Listing::Entry& entry) {
    return is_sound(entry.attributes) &&
           (entry.target.empty() || (S_ISLNK(entry.attributes.mode) && entry.target.size() < path_bytes_max &&
                                     !has_nul(entry.target)));
}

bool suits(const Listing& listing, const ObjectKey& key) {
    if (!listing.has_attributes()) {
        return key.kind == ObjectKind::names && listing.size() <= piece_entries;
    }
    if (key.kind == ObjectKind::names ||
        listing.size() > (key.kind == ObjectKind::entry ? 1 : batch_entries)) {
        return false;
    }
    for (std::size_t i = 0; i < listing.size(); ++i) {
        const Listing::Entry entry = listing.at(i);
        const bool is_meant = key.kind != ObjectKind::entry || entry.name == base_name(key.path);
        if (!is_meant || !is_sound(entry)) {
            return false;
        }
    }
    return true;
}

bool is_sound(const Directory& directory) {
    const std::uint64_t pieces = (directory.entries + piece_entries - 1) / piece_entries;
    return directory.version != 0 && directory.entries <= directory_entries_max &&
           directory.first_names.size() == pieces && (pieces > 1 || directory.has_all_names());
}

// Objects that last are of one version and as long as their file says. (An object read during a change may
// not be, and nobody keeps it.)
bool suits(const Extent& extent, const Object& object, const ObjectKey& key) {
    const std::uint64_t size = extent.attributes.size;
    const std::uint64_t expected = std::min(extent_bytes, size - std::min(size, key.index * extent_bytes));
    return is_sound(extent.attributes) && S_ISREG(extent.attributes.mode) &&
           (object.lifetime || extent.plain_bytes == expected);
}

bool is_sound(const DataMap& map) {
    const auto& segments = map.segments;
    return is_sound(map.attributes) && S_ISREG(map.attributes.mode) &&
           std::ranges::all_of(segments, [](const auto& one) { return one.begin < one.end; }) &&
           std::ranges::adjacent_find(
               segments, [](const auto& a, const auto& b) { return a.end >= b.begin; }) == segments.end() &&
           (segments.empty() || segments.back().end <= map.attributes.size);
}

bool is_sound(const Xattrs& xattrs) {
    return std::all_of(xattrs.begin(), xattrs.end(), [](const auto& pair) {
        const auto& [name, value] = pair;
        return !name.empty() && name.size() <= xattr_name_bytes_max && !has_nul(name) &&
               value.size() <= xattr_value_bytes_max;
    });
}

bool suits(const Object& object, const ObjectKey& key) {
    // Where the directory has other names by now, they are told at once, and asked for by their own key
    // later.
    if (key.kind == ObjectKind::names && object.directory() != nullptr && !object.lifetime) {
        return false;
    }
    if (const Listing* listing = object.listing()) {
        return suits(*listing, key);
    }
    if (const Directory* directory = object.directory()) {
        return is_sound(*directory);
    }
    if (const Extent* extent = object.extent()) {
        return suits(*extent, object, key);
    }
    if (const XattrBatch* batch = object.xattr_batch()) {
        return std::all_of(batch->entries.begin(), batch->entries.end(),
                           [](const auto& entry) { return !entry.xattrs || is_sound(*entry.xattrs); });
    }
    if (const DataMap* map = object.data_map()) {
        return is_sound(*map);
    }
    return object.xattrs() == nullptr || is_sound(*object.xattrs());
}

using Verdict = tl::expected<void, WireError>;

class Verifier {
  public:
    explicit Verifier(const Job& job) : job_(job) {}

    Verdict operator()(const Interest& interest) const {
        if (!is_node(interest.origin) || !are_nodes(interest.news, &News::rank) ||
            !are_nodes(interest.findings, &Finding::reader)) {
            return refuse("an interest with an unknown node");
        }
        return within_trees(interest.key);
    }
    Verdict operator()(const Decline& decline) const {
        return decline.found && !is_node(decline.found->reader) ? refuse("a finding of an unknown node")
                                                                : within_trees(decline.key);
    }
    Verdict operator()(const Working& working) const { return within_trees(working.key); }
    Verdict operator()(const Publication& publication) const {
        if (!is_node(publication.root) || !are_nodes(publication.news, &News::rank)) {
            return refuse("a publication with an unknown node");
        }
        if (publication.tree >= tree_count(job_.nodes)) {
            return refuse("a publication on an unknown tree");
        }
        return within_trees(publication.key).and_then([&]() -> Verdict {
            if (!suits(*publication.object, publication.key)) {
                return refuse("a content that cannot be that of " + to_string(publication.key),
                              Damaged{publication.key, publication.lane, publication.sequence});
            }
            return {};
        });
    }
    Verdict operator()(const Call& call) const {
        return is_node(call.origin) ? Verdict() : refuse("a call of an unknown node");
    }
    Verdict operator()(const Answer& answer) const {
        const bool are_parts = std::ranges::all_of(
            answer.parts, [this](const auto& part) { return is_node(part.rank) && are_nodes(part.with); });
        return is_node(answer.origin) && are_parts ? Verdict() : refuse("an answer with an unknown node");
    }
    Verdict operator()(const Ping& ping) const { return speaks_of_nodes(ping.news); }
    Verdict operator()(const Pong& pong) const { return speaks_of_nodes(pong.news); }

  private:
    bool is_node(Rank rank) const { return rank.value < job_.nodes; }
    template <typename Value, typename ToRank = std::identity>
    bool are_nodes(const std::vector<Value>& values, ToRank rank = {}) const {
        return std::ranges::all_of(
            values, [this](Rank each) { return is_node(each); }, rank);
    }
    Verdict speaks_of_nodes(const std::vector<News>& news) const {
        return are_nodes(news, &News::rank) ? Verdict() : refuse("news of an unknown node");
    }
    Verdict within_trees(const ObjectKey& key) const {
        return is_shared(key, job_.trees) ? Verdict()
                                          : refuse("an object outside the trees: " + to_string(key));
    }

    const Job& job_;
};

}  // namespace

bool is_shared(const ObjectKey& key, const Trees& trees) {
    return (key.kind <= last_shared_object_kind && trees.contains(key.path)) ||
           (key.kind == ObjectKind::entry && trees.is_on_the_way(key.path));
}

tl::expected<Message, WireError> verified(Message message, const Job& job) {
    if (auto verdict = std::visit(Verifier(job), message); !verdict) {
        return tl::make_unexpected(std::move(verdict.error()));
    }
    return message;
}

}  // namespace copper
