// Which objects the programs of a job used: the next job of the same kind fetches them ahead (replay.hpp).
//
// Values, without threads or I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
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

// A file of uses that fit into ProfileRoom is no larger than profile_bytes_max.
inline constexpr std::size_t profile_uses_max = 1U << 18;
inline constexpr std::size_t profile_bytes_max = std::size_t{64} << 20;
// What a use takes at most in a file.
inline std::size_t bytes_of(const Profile::Use& use) {
    constexpr std::size_t without_path = 64;
    return use.key.path.size() + without_path;
}
// What still fits into a profile.
class ProfileRoom {
  public:
    // False: the use does not fit any more.
    bool take(const Profile::Use& use) {
        const std::size_t bytes = bytes_of(use);
        if (uses_ == 0 || bytes_ < bytes) {
            return false;
        }
        --uses_;
        bytes_ -= bytes;
        return true;
    }

  private:
    std::size_t uses_ = profile_uses_max;
    std::size_t bytes_ = profile_bytes_max;
};

// What this many runs in a row did not use is forgotten.
inline constexpr std::uint32_t profile_runs_missed_max = 3;

// What several nodes used in one run, joined while they tell it. What does not fit into a profile any more is
// left out.
class JoinedUses {
  public:
    // What one node used. REQUIRES: no node tells an object twice.
    void add(const std::vector<Profile::Use>& uses);
    // Of a run in which so many nodes were asked.
    Profile profile(std::uint32_t nodes_asked) const;

  private:
    std::vector<Profile::Use> uses_;
    std::unordered_map<std::uint64_t, std::uint32_t> places_;  // in uses_, by the hash of the key
    ProfileRoom room_;
};

// What to fetch ahead next time: what the last run used, then what earlier runs used, as far as it fits.
Profile merged(const Profile& earlier, Profile run);

// The bytes of a file, and back. An error says what is wrong with them. Decoding trusts
// nothing.
std::string encode(const Profile& profile);
tl::expected<Profile, std::string> decode_profile(std::string_view bytes);

}  // namespace copper
