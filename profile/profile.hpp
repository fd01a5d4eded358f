// Which objects the programs of a job used: the next job of the same kind fetches them ahead (replay.hpp).
//
// Values, without threads or I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "cache/object.hpp"

namespace copper {

struct Profile {
    struct Use {
        ObjectKey key;                            // without a version: the next job reads what is there then
        std::chrono::milliseconds first_used{0};  // since the job began
        std::uint32_t nodes = 1;                  // that used it, of those that were asked
        std::uint32_t runs_missed = 0;            // runs since the last one that used it
        bool operator==(const Use&) const = default;
    };

    std::vector<std::string> trees = {};  // for people
    std::uint32_t nodes_asked = 1;        // in the last run
    std::uint32_t runs = 1;
    std::vector<Use> uses = {};  // in order of first use
    bool operator==(const Profile&) const = default;

    // Most nodes used it, so all nodes should have it.
    bool is_for_everyone(const Use& use) const { return 2 * use.nodes >= nodes_asked; }
};

inline constexpr std::size_t profile_uses_max = 1U << 18;
inline constexpr std::size_t profile_bytes_max = std::size_t{64} << 20;
// What this many runs in a row did not use is forgotten.
inline constexpr std::uint32_t profile_runs_missed_max = 3;

// What several nodes used in one run, as one profile. Each of `nodes` is what one of them used.
Profile joined(std::span<const std::vector<Profile::Use>> nodes);

// What to fetch ahead next time: what the last run used, then what earlier runs used.
Profile merged(const Profile& earlier, Profile run);

// The bytes of a file (profile.fbs), and back. An error says what is wrong with them. Decoding trusts
// nothing.
std::string encode(const Profile& profile);
tl::expected<Profile, std::string> decode_profile(std::string_view bytes);

}  // namespace copper
