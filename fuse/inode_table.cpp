#include "fuse/inode_table.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/path.hpp"

namespace copper {
namespace {

// Of files of several extents that are being read. Beyond this number, all windows start again.
constexpr std::size_t read_aheads_max = 65536;

bool is_kept(InodeState state) {
    return state == InodeState::kept || state == InodeState::kept_and_read;
}

bool may_take_another_version(InodeState state) {
    return state == InodeState::listed || state == InodeState::kept;
}

InodeState with_bytes(InodeState state) {
    switch (state) {
        case InodeState::listed:
            return InodeState::read;
        case InodeState::kept:
            return InodeState::kept_and_read;
        case InodeState::read:
        case InodeState::kept_and_read:
        case InodeState::nameless:
            break;
    }
    return state;
}

// The kernel relies on the size of files and symbolic links while it knows the inode.
bool have_same_size(const Attributes& a, const Attributes& b) {
    return S_ISDIR(a.mode) || a.size == b.size;
}

// Whether a name means this inode. (The root has none.)
bool is_named(const InodeRecords::Record& record) {
    return record.inode != root_inode && record.state != InodeState::nameless;
}

// 16 bits of a hash, never 0. If two Versions have the same, a read finds out that the size is wrong
// (ESTALE).
std::uint16_t mark_of(const Attributes& attributes) {
    return static_cast<std::uint16_t>(hash_of(version_of(attributes)) | 1U);
}

// What the last Listing told of this inode.
std::uint16_t listed_mark(const InodeRecords::Record& record) {
    return record.outdated != 0 ? record.outdated : mark_of(record.attributes);
}

// Whether the name still means this inode if a Listing says `listed`. The file may have been exchanged for an
// older one, so time stamps alone do not tell.
bool still_means(const InodeRecords::Record& record, const Attributes& listed) {
    const Attributes& known = record.attributes;
    if ((known.mode & S_IFMT) != (listed.mode & S_IFMT)) {
        return false;
    }
    if (record.is_doubted != 0 && !S_ISDIR(known.mode)) {
        return version_of(listed) == version_of(known);
    }
    return record.state == InodeState::listed
               ? have_same_size(known, listed)
               : listed.changed <= known.changed || mark_of(listed) == record.outdated ||
                     version_of(listed) == version_of(known);
}

InodeTable::Told told_of(const InodeRecords::Record& record) {
    return {.inode = record.inode,
            .attributes = record.attributes,
            .number = record.numbers.number(record.attributes.inode)};
}

std::uint64_t hash_of(InodeId parent, std::string_view name) {
    return std::hash<std::string_view>()(name) ^ (parent * 0x9e3779b97f4a7c15U);
}

}  // namespace

std::uint64_t InodeTable::State::ByName::operator()(Position position) const {
    const Record& record = records->at(position);
    return hash_of(record.parent, record.name());
}

InodeTable::InodeTable(const Attributes& root, std::span<std::byte> memory, std::string main_filesystem)
    : state_(memory, std::move(main_filesystem)) {
    state_.lock()->restore(root);
}

void InodeTable::State::restore(const Attributes& root) {
    index_all();
    if (const Position known = find(root_inode)) {
        replace(known, root);
    } else {
        // The kernel never forgets the mount's own lookup.
        add({.inode = root_inode,
             .parent = 0,
             .lookups = 1,
             .children = 0,
             .state = InodeState::listed,
             .name_bytes = 0,
             .numbers = numbers_of("/"),
             .attributes = root},
            "");
    }
    records.for_each([this](Position position) { records.at(position).children = 0; });
    records.for_each([this](Position position) {
        const Record& record = records.at(position);
        kept += is_kept(record.state) ? 1 : 0;
        if (record.inode != root_inode) {
            ++at(record.parent).children;
        }
    });
}

void InodeTable::State::index_all() {
    by_inode.clear();
    by_name.clear();
    records.for_each([this](Position position) {
        // The previous process may have been killed in replace().
        if (const Position older = find(records.at(position).inode)) {
            by_inode.erase(older);
            records.remove(older);
        }
        by_inode.insert(position);
    });
    records.for_each([this](Position position) {
        const Record& record = records.at(position);
        if (is_named(record)) {
            by_name.insert(position);
        }
    });
}

InodeTable::Position InodeTable::State::find(InodeId inode) const {
    return by_inode.find(inode, [&](Position position) { return records.at(position).inode == inode; });
}

InodeTable::Position InodeTable::State::find(InodeId parent, std::string_view name) const {
    return by_name.find(hash_of(parent, name), [&](Position position) {
        const Record& record = records.at(position);
        return record.parent == parent && record.name() == name;
    });
}

InodeTable::Position InodeTable::State::add(const Record& record, std::string_view name) {
    const Position position = records.add(record, name);
    if (position != 0) {
        by_inode.insert(position);
        if (is_named(record)) {
            by_name.insert(position);
        }
    }
    return position;
}

NumberSpace InodeTable::State::numbers_of(std::string root_path) const {
    return root_path == main_filesystem ? NumberSpace::unchanged() : NumberSpace::of(std::move(root_path));
}

InodeTable::Position InodeTable::State::add_below(InodeId parent, std::string_view name, InodeState state,
                                                  const Attributes& attributes, NumberSpace numbers,
                                                  std::uint16_t outdated) {
    const Position position = add({.inode = records.last_inode() + 1,
                                   .parent = parent,
                                   .lookups = 0,
                                   .children = 0,
                                   .state = state,
                                   .name_bytes = 0,
                                   .outdated = outdated,
                                   .numbers = numbers,
                                   .attributes = attributes},
                                  name);
    if (position != 0) {
        ++at(parent).children;
        kept += is_kept(state) ? 1 : 0;
    }
    return position;
}

// Gives the inode other attributes. If no memory is left, it keeps its present ones.
InodeTable::Position InodeTable::State::replace(Position position, const Attributes& attributes) {
    Record record = records.at(position);
    record.attributes = attributes;
    const Position added =
        records.at(position).attributes != attributes ? records.add(record, records.at(position).name()) : 0;
    if (added == 0) {
        return position;
    }
    remove(position);
    by_inode.insert(added);
    if (is_named(record)) {
        by_name.insert(added);
    }
    return added;
}

void InodeTable::State::set_state(Record& record, InodeState state) {
    kept += is_kept(state) ? 1 : 0;
    kept -= is_kept(record.state) ? 1 : 0;
    InodeRecords::set_state(record, state);
}

// Call remove_if_unused() afterwards.
void InodeTable::State::take_name(Position position) {
    Record& record = records.at(position);
    if (is_named(record)) {
        by_name.erase(position);
        set_state(record, InodeState::nameless);
    }
}

// Removes its record.
void InodeTable::State::remove(Position position) {
    const Record& record = records.at(position);
    by_inode.erase(position);
    if (is_named(record)) {
        by_name.erase(position);
    }
    records.remove(position);
}

void InodeTable::State::remove_if_unused(InodeId inode) {
    while (inode != root_inode) {
        const Position position = find(inode);
        const Record& record = records.at(position);
        if (record.lookups > 0 || record.children > 0 || is_kept(record.state)) {
            break;
        }
        const InodeId parent = record.parent;
        remove(position);
        read_aheads.erase(inode);
        --at(parent).children;
        inode = parent;
    }
    if (records.should_be_rewritten()) {
        records.rewrite();
        index_all();
    }
}

std::string InodeTable::State::path(const Record& record) const {
    // Collects the components from the leaf up, to allocate the text once.
    std::vector<std::string_view> names;
    std::size_t bytes = 0;
    for (const Record* above = &record; above->inode != root_inode; above = &at(above->parent)) {
        names.push_back(above->name());
        bytes += 1 + names.back().size();
    }
    if (names.empty()) {
        return "/";
    }
    std::string text;
    text.reserve(bytes);
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        text.append(1, '/').append(*name);
    }
    return text;
}

InodeTable::Place InodeTable::State::place(const Record& record) const {
    if (record.inode == root_inode) {
        return {.parent = root_inode, .directory = "/", .name = ""};
    }
    return {
        .parent = record.parent, .directory = path(at(record.parent)), .name = std::string(record.name())};
}

std::optional<InodeTable::Told> InodeTable::look_up(InodeId parent, std::string_view name,
                                                    const Attributes& attributes, Filesystem filesystem,
                                                    std::optional<std::uint64_t> asked) {
    auto state = state_.lock();
    const bool is_of_before = asked && *asked != doubts_;
    const Position above = state->find(parent);
    if (above == 0) {
        return std::nullopt;
    }
    // Before anything is removed: that may move the records.
    const Record& directory = state->records.at(above);
    const NumberSpace numbers = filesystem == Filesystem::of_parent
                                    ? directory.numbers
                                    : state->numbers_of(join_path(state->path(directory), name));
    Position position = state->find(parent, name);
    if (position != 0 && !still_means(state->records.at(position), attributes)) {
        const InodeId old = state->records.at(position).inode;
        state->take_name(position);
        state->remove_if_unused(old);
        position = 0;
    }
    if (position == 0) {
        position = state->add_below(parent, name, InodeState::listed, attributes, numbers);
        if (position != 0 && is_of_before) {
            state->records.at(position).is_doubted = 1;
        }
    } else if (state->records.at(position).state == InodeState::listed) {
        position = state->replace(position, attributes);
        state->records.at(position).outdated = 0;
    }
    if (position == 0) {
        return std::nullopt;
    }
    Record& record = state->records.at(position);
    if (!is_of_before) {
        record.is_doubted = 0;
    }
    InodeRecords::set_lookups(record, record.lookups + 1);
    return told_of(record);
}

InodeTable::Known InodeTable::forget(InodeId inode, std::uint64_t lookups) {
    auto state = state_.lock();
    const Position position = state->find(inode);
    if (position == 0) {
        return Known::no_more;
    }
    if (inode != root_inode) {
        Record& record = state->records.at(position);
        InodeRecords::set_lookups(record, record.lookups - std::min(lookups, record.lookups));
        state->remove_if_unused(inode);
    }
    return state->find(inode) != 0 ? Known::still : Known::no_more;
}

void InodeTable::detach(InodeId inode) {
    auto state = state_.lock();
    if (const Position position = state->find(inode)) {
        state->take_name(position);
        state->remove_if_unused(inode);
    }
}

std::pair<InodeTable::Position, std::string_view> InodeTable::State::find_on_the_way(
    std::string_view path) const {
    Position position = find(root_inode);
    path.remove_prefix(1);
    while (!path.empty()) {
        const std::string_view name = path.substr(0, path.find('/'));
        const Position below = find(records.at(position).inode, name);
        if (below == 0) {
            break;
        }
        position = below;
        path.remove_prefix(std::min(name.size() + 1, path.size()));
    }
    return {position, path};
}

InodeTable::BelowByFilesystem InodeTable::doubt(const std::string& path, Reach reach,
                                                std::optional<NumberSpace> only) {
    BelowByFilesystem below;
    auto state = state_.lock();
    ++doubts_;
    const auto is_wanted = [&](NumberSpace filesystem) { return !only || filesystem == *only; };
    const auto add_name = [&](NumberSpace filesystem, InodeId parent, std::string_view name) {
        if (is_wanted(filesystem)) {
            below[filesystem].names.push_back({.parent = parent, .name = std::string(name)});
        }
    };
    const auto add_directory = [&](NumberSpace filesystem, InodeId directory) {
        if (is_wanted(filesystem)) {
            below[filesystem].directories.push_back(directory);
        }
    };
    const auto last = state->find_on_the_way(path);
    const Position top = last.first;
    const std::string_view rest = last.second;
    const Record& found = state->records.at(top);
    // A name in it may have come or gone.
    state->records.at(rest.empty() ? state->find(found.parent) : top).is_doubted = 1;
    if (!rest.empty()) {
        // The kernel may know that it is absent, or one of the directories above it.
        add_directory(found.numbers, found.inode);
        add_name(found.numbers, found.inode, rest.substr(0, rest.find('/')));
        return below;
    }
    // The filesystem of a directory, if it lies there. All that a record says of its place is its parent.
    constexpr InodeId above_root = 0;
    using Place = std::optional<NumberSpace>;
    std::unordered_map<InodeId, Place> places = {{above_root, std::nullopt}, {root_inode, std::nullopt}};
    places[found.inode] = found.numbers;
    std::vector<InodeId> way;
    const auto place_of = [&](InodeId directory) {
        if (reach == Reach::one_level) {
            return directory == found.inode ? Place(found.numbers) : std::nullopt;
        }
        for (way.clear(); !places.contains(directory); directory = state->at(directory).parent) {
            way.push_back(directory);
        }
        const bool is_there = places[directory].has_value();
        for (const InodeId inode : way) {
            places[inode] = is_there ? Place(state->at(inode).numbers) : std::nullopt;
        }
        return places[way.empty() ? directory : way.front()];
    };
    state->records.for_each([&](Position position) {
        Record& record = state->records.at(position);
        const bool is_top = position == top;
        const Place place = is_top ? Place(record.numbers) : place_of(record.parent);
        if (!place) {
            return;
        }
        if (is_wanted(*place)) {
            record.is_doubted = 1;
        }
        if (S_ISDIR(record.attributes.mode) && (is_top || reach == Reach::everything_below)) {
            add_directory(record.numbers, record.inode);
        }
        // The kernel may still have a nameless one under its name.
        if (record.inode != root_inode && !is_top) {
            add_name(*place, record.parent, record.name());
        }
    });
    if (found.inode != root_inode) {
        const NumberSpace of_parent = state->at(found.parent).numbers;
        add_directory(of_parent, found.parent);
        add_name(of_parent, found.parent, found.name());
    }
    return below;
}

std::optional<InodeTable::Place> InodeTable::doubted_directory(InodeId inode) {
    auto state = state_.lock();
    const Position position = state->find(inode);
    if (position == 0 || inode == root_inode) {
        return std::nullopt;
    }
    const Record& record = state->records.at(position);
    const bool is_doubted = record.is_doubted != 0 && S_ISDIR(record.attributes.mode);
    return is_doubted ? std::optional(state->place(record)) : std::nullopt;
}

std::optional<std::string> InodeTable::path(InodeId inode) {
    auto state = state_.lock();
    const Position position = state->find(inode);
    return position != 0 ? std::optional(state->path(state->records.at(position))) : std::nullopt;
}

std::optional<InodeTable::Place> InodeTable::place(InodeId inode) {
    auto state = state_.lock();
    const Position position = state->find(inode);
    return position != 0 ? std::optional(state->place(state->records.at(position))) : std::nullopt;
}

std::optional<InodeTable::Told> InodeTable::told(InodeId inode) {
    auto state = state_.lock();
    const Position position = state->find(inode);
    return position != 0 ? std::optional(told_of(state->records.at(position))) : std::nullopt;
}

std::optional<Attributes> InodeTable::attributes(InodeId inode) {
    auto known = told(inode);
    return known ? std::optional(std::move(known->attributes)) : std::nullopt;
}

NumberSpace InodeTable::numbers(InodeId directory) {
    auto state = state_.lock();
    const Position position = state->find(directory);
    return position != 0 ? state->records.at(position).numbers : NumberSpace::unchanged();
}

InodeTable::Verdict InodeTable::hand_out(InodeId inode, const Attributes& attributes, Bytes bytes) {
    auto state = state_.lock();
    Position position = state->find(inode);
    if (position == 0) {
        return Verdict::other;
    }
    const Record& record = state->records.at(position);
    const bool is_current = version_of(record.attributes) == version_of(attributes);
    if (!is_current) {
        if (!may_take_another_version(record.state) || !have_same_size(record.attributes, attributes)) {
            return Verdict::other;
        }
        const auto outdated = listed_mark(record);
        const Position taken = state->replace(position, attributes);
        if (taken == position) {  // no memory left
            return Verdict::other;
        }
        state->records.at(taken).outdated = outdated;
        position = taken;
    }
    if (bytes == Bytes::some) {
        Record& read = state->records.at(position);
        state->set_state(read, with_bytes(read.state));
    }
    return is_current ? Verdict::current : Verdict::adopted;
}

ExtentRange InodeTable::read_ahead(InodeId inode, ExtentRange read, std::uint32_t extents,
                                   std::uint32_t window_max) {
    auto state = state_.lock();
    if (state->find(inode) == 0) {
        return {};
    }
    if (state->read_aheads.size() >= read_aheads_max) {
        state->read_aheads.clear();
    }
    return state->read_aheads[inode].next(read, extents, window_max);
}

std::optional<InodeTable::Place> InodeTable::supersede(InodeId inode, const Attributes& attributes) {
    auto state = state_.lock();
    const Position position = state->find(inode);
    if (position == 0 || inode == root_inode) {
        return std::nullopt;
    }
    Place place = state->place(state->records.at(position));
    const Position meant = state->find(place.parent, place.name);
    const Record* current = meant != 0 ? &state->records.at(meant) : nullptr;
    const InodeId current_inode = current != nullptr ? current->inode : inode;
    const std::uint16_t outdated = current != nullptr ? listed_mark(*current) : 0;
    const NumberSpace numbers = state->records.at(meant != 0 ? meant : position).numbers;
    const bool is_doubted = state->records.at(position).is_doubted != 0;  // then the read may be as old
    if (current_inode != inode && (version_of(current->attributes) == version_of(attributes) ||
                                   attributes.changed < current->attributes.changed)) {
        return place;
    }
    if (meant != 0) {
        state->take_name(meant);
    }
    if (state->kept < kept_max) {
        const Position added =
            state->add_below(place.parent, place.name, InodeState::kept, attributes, numbers, outdated);
        if (added != 0 && is_doubted) {
            state->records.at(added).is_doubted = 1;
        }
    }
    state->remove_if_unused(current_inode);
    return place;
}

std::size_t InodeTable::size() {
    return state_.lock()->by_inode.size();
}

}  // namespace copper
