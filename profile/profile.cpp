#include "profile/profile.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/archive.hpp"
#include "base/path.hpp"

namespace copper {
namespace {

constexpr std::string_view mark = "Copper profile";
constexpr std::uint32_t format_version = 2;

std::size_t shared_bytes(std::string_view one, std::string_view other) {
    const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
    return static_cast<std::size_t>(end - one.begin());
}

}  // namespace

// Paths that follow each other are much alike: how many bytes of the one before this one begins with, and the
// rest.
template <typename Archive>
void describe_path(Archive& archive, MaybeConst<std::string> auto& path, std::string_view before) {
    auto shared = static_cast<std::uint16_t>(shared_bytes(before, path));
    std::string rest = path.substr(shared);
    archive(at_most(shared, before.size()), rest);
    if constexpr (Archive::is_reading) {
        archive.require([&] { return shared + rest.size() < path_bytes_max; });
        if (archive.is_sound()) {
            path = std::string(before.substr(0, shared)) + rest;
        }
    }
}

template <typename Archive>
void describe(Archive& archive, MaybeConst<Profile> auto& profile) {
    archive(profile.trees, profile.nodes_asked, profile.runs);
    std::size_t uses = profile.uses.size();
    archive.length(uses, profile_uses_max);
    ProfileRoom room;
    for (std::size_t i = 0; i < uses && archive.is_sound(); ++i) {
        if constexpr (Archive::is_reading) {
            profile.uses.emplace_back();
        }
        auto& use = profile.uses[i];
        describe_path(archive, use.key.path, i != 0 ? profile.uses[i - 1].key.path : std::string_view());
        archive(at_most(use.key.kind, last_shared_object_kind), use.key.index, use.first_used, use.nodes,
                use.runs_missed);
        archive.require([&] {
            const bool is_unknown_acl = use.key.kind == ObjectKind::acl && use.key.index >= acl_names.size();
            return is_normalised_path(use.key.path) && !is_unknown_acl && room.take(use);
        });
    }
}

void JoinedUses::add(const std::vector<Profile::Use>& uses) {
    for (const Profile::Use& use : uses) {
        const std::uint64_t hash = hash_of(use.key);
        if (const auto known = places_.find(hash); known != places_.end()) {
            Profile::Use& joined = uses_[known->second];
            joined.first_used = std::min(joined.first_used, use.first_used);
            ++joined.nodes;
        } else if (room_.take(use)) {
            places_.emplace(hash, static_cast<std::uint32_t>(uses_.size()));
            uses_.push_back(use);
            uses_.back().nodes = 1;
        }
    }
}

Profile JoinedUses::profile(std::uint32_t nodes_asked) const {
    Profile run{.nodes_asked = std::max(nodes_asked, 1U), .uses = uses_};
    std::stable_sort(run.uses.begin(), run.uses.end(), [](const Profile::Use& a, const Profile::Use& b) {
        return a.first_used < b.first_used;
    });
    return run;
}

Profile merged(const Profile& earlier, Profile run) {
    ProfileRoom room;
    std::unordered_set<std::uint64_t> used;  // hashes of keys
    for (const Profile::Use& use : run.uses) {
        room.take(use);
        used.insert(hash_of(use.key));
    }
    for (Profile::Use use : earlier.uses) {
        const bool is_kept = ++use.runs_missed < profile_runs_missed_max && !used.contains(hash_of(use.key));
        if (is_kept && room.take(use)) {
            run.uses.push_back(std::move(use));
        }
    }
    run.runs = earlier.runs + 1;
    return run;
}

std::string encode(const Profile& profile) {
    Writer writer(0);
    writer(mark, format_version, profile);
    return {reinterpret_cast<const char*>(writer.written().data()), writer.written().size()};
}

tl::expected<Profile, std::string> decode_profile(std::string_view bytes) {
    Reader reader(std::as_bytes(std::span(bytes)));
    std::string found_mark;
    std::uint32_t version = 0;
    reader(found_mark, version);
    if (!reader.is_sound() || found_mark != mark) {
        return tl::unexpected(std::string("is not a profile, or is one of an earlier version of Copper"));
    }
    if (version != format_version) {
        return tl::unexpected("is of version " + std::to_string(version) + "; this program writes version " +
                              std::to_string(format_version));
    }
    Profile profile;
    reader(profile);
    if (!reader.is_done()) {
        return tl::unexpected("is damaged, or holds more than " + std::to_string(profile_uses_max) +
                              " uses, or " + std::to_string(profile_bytes_max >> 20) + " MiB of them");
    }
    profile.nodes_asked = std::max(profile.nodes_asked, 1U);
    return profile;
}

}  // namespace copper
