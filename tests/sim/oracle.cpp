#include "tests/sim/oracle.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/path.hpp"

namespace copper::sim {
namespace {

bool is_one(std::span<const TimePoint> moments, const auto& is_right) {
    return std::any_of(moments.begin(), moments.end(), is_right);
}

Oracle::Verdict wrong_unless(bool is_right, const std::string& what) {
    return is_right ? std::nullopt : std::optional(what);
}

}  // namespace

// Attributes may come with those of all names in a directory: that question counts for each of them.
void Oracle::wanted(const ObjectKey& key, TimePoint now) {
    switch (key.kind) {
        case ObjectKind::directory:
        case ObjectKind::names:
            first_wanted_.try_emplace({What::names, key.path}, now);
            break;
        case ObjectKind::entry:
            first_wanted_.try_emplace({What::attributes, key.path}, now);
            break;
        case ObjectKind::batch:
            first_wanted_.try_emplace({What::attributes_of_all, key.path}, now);
            break;
        case ObjectKind::extent:
        case ObjectKind::own_extent:
        case ObjectKind::data_map:
            first_wanted_.try_emplace({What::bytes, key.path}, now);
            break;
        case ObjectKind::xattrs:
        case ObjectKind::xattr_batch:
        case ObjectKind::acl:
        case ObjectKind::acl_batch:
        case ObjectKind::space:
            break;
    }
}

// The moments since the first question at which the answer may have been found.
std::vector<TimePoint> Oracle::moments(std::initializer_list<Question> questions, const std::string& path,
                                       Life life, Times times) const {
    TimePoint begin = times.answered;
    for (const Question& question : questions) {
        if (const auto first = first_wanted_.find(question); first != first_wanted_.end()) {
            begin = std::min(begin, first->second);
        }
    }
    for (const Refresh& refresh : refreshes_) {
        if (is_within(path, refresh.path) && times.asked >= refresh.returned) {
            begin = std::max(begin, refresh.began);
        }
    }
    if (life == Life::doubtful && options_.doubtful_max) {
        begin = std::max(begin, std::min(times.asked, times.answered) - *options_.doubtful_max);
    }
    return store_.moments(path, begin, times.answered);
}

std::vector<TimePoint> Oracle::moments_of_attributes(const std::string& path, Life life, Times times) const {
    return moments({{What::attributes, path}, {What::attributes_of_all, std::string(parent_path(path))}},
                   path, life, times);
}

Oracle::Verdict Oracle::judge_absent(const std::string& path, Life life, Times times) const {
    const std::string directory(parent_path(path));
    const auto is_absent = [&](TimePoint moment) {
        return !store_.exists(path, moment) ||
               (life == Life::doubtful &&
                !std::ranges::binary_search(store_.names_at(directory, moment), base_name(path)));
    };
    const auto when = moments({{What::names, directory}, {What::attributes, path}}, path, life, times);
    return wrong_unless(is_one(when, is_absent), path + " was not absent");
}

Oracle::Verdict Oracle::judge_attributes(const std::string& path, const Attributes& attributes, Life life,
                                         Times times) const {
    const auto had_them = [&](TimePoint moment) {
        return store_.exists(path, moment) && store_.attributes(path, moment) == attributes;
    };
    const auto had_them_whole = [&](TimePoint moment) {
        return had_them(moment) && !store_.state(path, moment).is_being_written;
    };
    const bool is_right =
        is_one(moments_of_attributes(path, Life::lasting, times), had_them_whole) ||
        (life == Life::doubtful && is_one(moments_of_attributes(path, life, times), had_them));
    return wrong_unless(is_right, "attributes of " + path + " that are of no version");
}

Oracle::Verdict Oracle::judge_names(const std::string& directory, const std::vector<std::string>& names,
                                    Life life, Times times) {
    const auto had_them = [&](TimePoint moment) {
        return store_.names_at(directory, moment) == names &&
               (life == Life::doubtful || store_.directory_at(directory, moment).is_proven);
    };
    if (!is_one(moments({{What::names, directory}}, directory, life, times), had_them)) {
        return "names of " + directory + " that are of no version";
    }
    return life == Life::lasting ? agree({What::names, directory}, names) : std::nullopt;
}

Oracle::Verdict Oracle::judge_error(const std::string& path, int error, Times times) const {
    const auto explains = [&](TimePoint moment) {
        return error == EAGAIN ? store_.state(path, moment).is_being_written
                               : error == ENOENT && !store_.exists(path, moment);
    };
    const bool is_explained = is_one(moments({{What::bytes, path}}, path, Life::doubtful, times), explains);
    return wrong_unless(is_explained, path + ": " + std::generic_category().message(error));
}

Oracle::Verdict Oracle::judge_stale(const std::string& path, Times times) const {
    const TimePoint begin = moments_of_attributes(path, Life::lasting, times).front();
    const bool has_changed = store_.state(path, begin).is_being_written ||
                             store_.state(path, begin).changes != store_.state(path, times.answered).changes;
    return wrong_unless(has_changed, path + " is stale and has not changed");
}

bool Oracle::is_at_rest(const std::string& path, TimePoint when) const {
    const auto state = store_.state(path, when);
    return options_.doubtful_max && !state.is_being_written &&
           (state.changes == 0 || state.since < when - 2 * *options_.doubtful_max);
}

std::vector<Attributes> Oracle::versions(const std::string& path, Times times) const {
    std::vector<Attributes> found;
    for (const TimePoint moment : moments({{What::bytes, path}}, path, Life::lasting, times)) {
        if (store_.exists(path, moment) && !store_.state(path, moment).is_being_written) {
            found.push_back(store_.attributes(path, moment));
        }
    }
    return found;
}

Oracle::Verdict Oracle::judge_bytes(const std::string& path, const std::vector<Attributes>& versions) {
    if (versions.empty()) {
        return "bytes of " + path + " that are of no version";
    }
    const Attributes& version = versions.front();
    return agree({What::bytes, path}, {std::to_string(version.size == 0 ? 0 : version.modified.nanoseconds)});
}

Oracle::Verdict Oracle::agree(const Question& question, const std::vector<std::string>& answer) {
    if (!options_.is_one_version || read_alone_.contains(question.second)) {
        return std::nullopt;
    }
    const auto [first, is_first] = agreed_.try_emplace(question, answer);
    return wrong_unless(first->second == answer, "two versions of " + question.second);
}

}  // namespace copper::sim
