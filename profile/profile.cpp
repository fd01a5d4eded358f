#include "profile/profile.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/path.hpp"
#include "profile_generated.h"

namespace copper {
namespace {

namespace fb = flatbuffers;
namespace format = profile_format;

constexpr std::uint32_t format_version = 1;

static_assert(static_cast<int>(format::Kind::MAX) == static_cast<int>(last_shared_object_kind));

std::size_t shared_bytes(std::string_view one, std::string_view other) {
    const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
    return static_cast<std::size_t>(end - one.begin());
}

std::string_view text_of(const fb::Vector<std::uint8_t>* bytes) {
    return bytes == nullptr ? std::string_view()
                            : std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

fb::Offset<fb::Vector<std::uint8_t>> to_bytes(fb::FlatBufferBuilder& builder, std::string_view text) {
    return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

template <typename T>
T narrow(std::uint64_t value) {
    return static_cast<T>(std::min<std::uint64_t>(value, std::numeric_limits<T>::max()));
}

}  // namespace

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
    fb::FlatBufferBuilder builder;
    std::vector<fb::Offset<format::Use>> uses;
    std::string_view before;
    for (const Profile::Use& use : profile.uses) {
        const std::size_t shared = shared_bytes(before, use.key.path);
        const auto rest = to_bytes(builder, std::string_view(use.key.path).substr(shared));
        uses.push_back(format::CreateUse(
            builder, static_cast<format::Kind>(use.key.kind), static_cast<std::uint16_t>(shared), rest,
            use.key.index, narrow<std::uint32_t>(static_cast<std::uint64_t>(use.first_used.count())),
            use.nodes, narrow<std::uint8_t>(use.runs_missed)));
        before = use.key.path;
    }
    const auto trees = builder.CreateVectorOfStrings(profile.trees);
    builder.Finish(format::CreateProfile(builder, format_version, trees, profile.nodes_asked, profile.runs,
                                         builder.CreateVector(uses)),
                   format::ProfileIdentifier());
    return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

tl::expected<Profile, std::string> decode_profile(std::string_view bytes) {
    const auto wrong = [](std::string what) { return tl::unexpected(std::move(what)); };
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    if (bytes.size() < 2 * sizeof(fb::uoffset_t) || !format::ProfileBufferHasIdentifier(data)) {
        return wrong("is not a profile");
    }
    // Each use is a table of its own.
    fb::Verifier verifier(data, bytes.size(), 64, static_cast<fb::uoffset_t>(4 * profile_uses_max));
    if (!format::VerifyProfileBuffer(verifier)) {
        return wrong("is damaged, or holds more than " + std::to_string(profile_uses_max) + " uses");
    }
    const format::Profile& found = *format::GetProfile(data);
    if (found.version() != format_version) {
        return wrong("is of version " + std::to_string(found.version()) + "; this program writes version " +
                     std::to_string(format_version));
    }
    Profile profile{
        .trees = {}, .nodes_asked = std::max(found.nodes_asked(), 1U), .runs = found.runs(), .uses = {}};
    for (std::size_t i = 0; found.trees() != nullptr && i < found.trees()->size(); ++i) {
        profile.trees.push_back(found.trees()->Get(static_cast<fb::uoffset_t>(i))->str());
    }
    const std::size_t count = found.uses() != nullptr ? found.uses()->size() : 0;
    ProfileRoom room;
    std::string path;
    for (std::size_t i = 0; i < count; ++i) {
        const format::Use& use = *found.uses()->Get(static_cast<fb::uoffset_t>(i));
        const std::string_view rest = text_of(use.rest());
        if (use.shared_bytes() > path.size() || use.shared_bytes() + rest.size() >= path_bytes_max) {
            return wrong("has an impossible path");
        }
        path.resize(use.shared_bytes());
        path += rest;
        const bool is_unknown_acl = use.kind() == format::Kind::acl && use.index() >= acl_names.size();
        if (!is_normalised_path(path) || use.kind() > format::Kind::MAX || is_unknown_acl) {
            return wrong("has a use of no object");
        }
        profile.uses.push_back(
            {.key = {.kind = static_cast<ObjectKind>(use.kind()), .path = path, .index = use.index()},
             .first_used = std::chrono::milliseconds(use.first_used_milliseconds()),
             .nodes = use.nodes(),
             .runs_missed = use.runs_missed()});
        if (!room.take(profile.uses.back())) {
            return wrong("holds more than " + std::to_string(profile_uses_max) + " uses, or " +
                         std::to_string(profile_bytes_max >> 20) + " MiB of them");
        }
    }
    return profile;
}

}  // namespace copper
