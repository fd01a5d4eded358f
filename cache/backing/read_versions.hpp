// Of which version everything was that this node has read, to look later whether it still is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// Thread-safe.
class ReadVersions {
  public:
    enum class Kind : std::uint8_t { directory, file };
    using Paths = std::vector<std::pair<std::string, Version>>;

    // Each takes some 250 bytes.
    static constexpr std::size_t paths_max = std::size_t{1} << 18;
    static constexpr std::size_t files_a_round = 128;  // or as many as there are directories

    // Beyond paths_max, only what is known already. Some nodes may still show the version before, which stays
    // to be compared until it is forgotten.
    void note(Kind kind, const std::string& path, const Version& version);

    // What to look at next: all directories, because they tell of most changes in few operations, and as many
    // files, in turn.
    Paths next_round();

    // All nodes have dropped these versions. What has been read again is of the latest one.
    void forget(const Paths& paths);

    // Some paths were not taken.
    bool is_full() const { return state_.lock()->is_full; }

  private:
    struct Noted {
        Version oldest;  // that a node may show
        Version latest;
    };
    using Versions = std::map<std::string, Noted>;
    struct State {
        Versions directories;
        Versions files;
        std::string last_file;  // of the last round
        bool is_full = false;
    };
    mutable Guarded<State> state_;
};

}  // namespace copper
