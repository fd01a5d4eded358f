#include "tools/copper/programs/check_judge.hpp"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/path.hpp"
#include "tools/copper/programs/interpreter.hpp"

namespace copper::cli {

namespace {

constexpr std::size_t script_bytes_max = 256;  // of which the kernel looks for an interpreter

bool reads(const Call& call) {
    return (call.flags & (O_CREAT | O_ACCMODE)) == O_RDONLY;
}

class Judge {
  public:
    explicit Judge(const Surroundings& surroundings) : around_(surroundings) {}

    Judgement judge(const std::vector<Call>& calls) {
        for (const auto& call : calls) {
            if (!reads(call)) {
                written_.insert(call.place);
            }
        }
        for (const auto& call : calls) {
            call.kind == Call::Kind::exec ? start(call) : open(call);
        }
        Judgement judgement{.around = {}, .opened = through_.size(), .absent = absent_.size()};
        for (const auto& [path, opens] : opens_) {
            judgement.opened += through_.contains(path) ? 0U : 1U;
            judgement.around.push_back({path, opens});
        }
        return judgement;
    }

  private:
    const Mirror& mirror() const { return around_.mirror; }

    static bool is_in(const std::vector<std::string>& places, std::string_view path) {
        return std::any_of(places.begin(), places.end(),
                           [&](const std::string& place) { return is_within(path, place); });
    }
    bool is_around(std::string_view path) const {
        return is_in(mirror().trees, path) && !is_within(path, mirror().mount) &&
               !is_in(mirror().mounts, path) && !is_in(around_.apart, path);
    }

    // The path that is mirrored at this place; nothing if none is.
    std::optional<std::string> original_of(const std::string& place) const {
        auto original = out_of_mirror(mirror().mount, place);
        for (auto mount = mirror().mounts.begin(); !original && mount != mirror().mounts.end(); ++mount) {
            original = out_of_mirror(*mount, place);
        }
        return original;
    }

    // The kernel opens the program and, for a script, its interpreter.
    void start(const Call& call) {
        const auto asked = call.is_absent ? std::nullopt : call.absolute_path();
        auto place = asked ? around_.resolve(*asked) : std::nullopt;
        constexpr int programs_max = 5;  // as in the kernel: an interpreter can be a script
        for (int i = 0; place && i < programs_max; ++i) {
            opened(*place);
            const auto interpreter = interpreter_of(around_.read(*place, script_bytes_max));
            place = interpreter.empty() ? std::nullopt : around_.resolve(interpreter.front());
        }
    }

    void open(const Call& call) {
        const auto asked = call.absolute_path();
        if (call.is_absent && reads(call) && asked && is_around(*asked)) {
            absent_.insert(*asked);
        }
        // What the programs have written is output. O_PATH opens nothing.
        if (!call.place.empty() && !written_.contains(call.place) && (call.flags & O_PATH) == 0) {
            opened(call.place);
        }
    }

    void opened(const std::string& place) {
        if (is_around(place)) {
            ++opens_[place];
        } else if (const auto original = original_of(place); original && is_in(mirror().trees, *original)) {
            through_.insert(*original);
        }
    }

    const Surroundings& around_;
    std::set<std::string> written_;
    std::map<std::string, std::uint64_t> opens_;
    std::set<std::string> through_;
    std::set<std::string> absent_;
};

}  // namespace

Judgement judge(const std::vector<Call>& calls, const Surroundings& surroundings) {
    return Judge(surroundings).judge(calls);
}

}  // namespace copper::cli
