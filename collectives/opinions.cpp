#include "collectives/opinions.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace copper {
namespace {

// Errors that come of a path or of what lies there, whoever reads it. (EAGAIN: it changes all the time.
// E2BIG: it is more than Copper takes.) Any other may be the trouble of one node: of its mount, its network,
// its ticket, its resources.
constexpr std::array errors_of_all_nodes = {
    EAGAIN, E2BIG, EFBIG, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENODATA, ENOTSUP, EOVERFLOW, ERANGE,
};

}  // namespace

std::vector<Rank> Opinions::readers() const {
    std::vector<Rank> readers;
    for (const Finding& finding : findings_) {
        readers.push_back(finding.reader);
    }
    return readers;
}

const Finding* Opinions::of(Rank reader) const {
    const auto found = std::ranges::find(findings_, reader, &Finding::reader);
    return found != findings_.end() ? &*found : nullptr;
}

void Opinions::set(Finding finding) {
    const auto known = std::ranges::find(findings_, finding.reader, &Finding::reader);
    if (known != findings_.end()) {
        *known = finding;
    } else if (findings_.size() < findings_max) {
        findings_.push_back(finding);
    }
}

void Opinions::forget(Rank reader) {
    std::erase_if(findings_, [reader](const Finding& finding) { return finding.reader == reader; });
}

Opinions::Verdict Opinions::on(const Object& object, Rank reader) const {
    const auto doubt = doubt_of(object);
    if (!doubt) {
        return Verdict::believe;
    }
    const bool is_agreed = std::ranges::any_of(findings_, [&](const Finding& finding) {
        return finding.error == *doubt && finding.reader != reader;
    });
    return is_agreed ? Verdict::believe_longer : Verdict::ask_another;
}

std::vector<Rank> Opinions::slow_besides(Rank reader) const {
    std::vector<Rank> slow;
    for (const Finding& finding : findings_) {
        if (finding.error == ETIMEDOUT && finding.reader != reader) {
            slow.push_back(finding.reader);
        }
    }
    return slow;
}

std::optional<int> doubt_of(const Object& object) {
    const bool is_empty = (object.listing() != nullptr && object.listing()->size() == 0) ||
                          (object.directory() != nullptr && object.directory()->entries == 0);
    if (is_empty) {
        return Finding::empty;
    }
    const int error = object.error().value();
    const bool is_doubtful =
        error != 0 && std::ranges::find(errors_of_all_nodes, error) == errors_of_all_nodes.end();
    return is_doubtful ? std::optional(error) : std::nullopt;
}

ObjectPtr object_of(const Finding& finding, ObjectKind kind) {
    if (finding.error != Finding::empty) {
        return make_error(finding.error);
    }
    if (kind == ObjectKind::names) {
        return make_object(Directory(), error_lifetime);  // it has other names by now: none
    }
    return kind == ObjectKind::directory ? make_object(Directory())
                                         : make_object(Listing({}, Listing::Detail::attributes));
}

ObjectPtr for_this_node(const ObjectPtr& object) {
    Object own = *object;
    if (auto* directory = std::get_if<Directory>(&own.content)) {
        directory->is_proven = false;
    }
    own.lifetime = std::min(own.lifetime.value_or(doubtful_lifetime), doubtful_lifetime);
    own.is_for_others = false;
    return std::make_shared<const Object>(std::move(own));
}

ObjectPtr confirmed(const ObjectPtr& object) {
    return object->error() ? make_object(object->content, 2 * error_lifetime) : object;
}

}  // namespace copper
