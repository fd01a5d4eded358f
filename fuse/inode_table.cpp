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

// Whether the name still means this inode if a Listing says `listed`.
bool still_means(const InodeRecords::Record& record, const Attributes& listed) {
    const Attributes& known = record.attributes;
    if ((known.mode & S_IFMT) != (listed.mode & S_IFMT)) {
        return false;
    }
    return record.state == InodeState::listed
               ? have_same_size(known, listed)
               : listed.changed <= known.changed || version_of(listed) == version_of(known);
}

std::uint64_t hash_of(NodeId parent, std::string_view name) {
    return std::hash<std::string_view>()(name) ^ (parent * 0x9e3779b97f4a7c15U);
}

}  // namespace

std::uint64_t InodeTable::State::ByName::operator()(Position position) const {
    const Record& record = records->at(position);
    return hash_of(record.parent, record.name());
}

InodeTable::InodeTable(const Attributes& root, std::span<std::byte> memory) : state_(memory) {
    state_.lock()->restore(root);
}

void InodeTable::State::restore(const Attributes& root) {
    index_all();
    if (const Position known = find(root_node)) {
        replace(known, root);
    } else {
        // The kernel never forgets the mount's own lookup.
        add({.node = root_node,
             .parent = 0,
             .lookups = 1,
             .children = 0,
             .state = InodeState::listed,
             .name_bytes = 0,
             .attributes = root},
            "");
    }
    records.for_each([this](Position position) { records.at(position).children = 0; });
    records.for_each([this](Position position) {
        const Record& record = records.at(position);
        kept += is_kept(record.state) ? 1 : 0;
        if (record.node != root_node) {
            ++at(record.parent).children;
        }
    });
}

void InodeTable::State::index_all() {
    by_node.clear();
    by_name.clear();
    records.for_each([this](Position position) {
        // The previous process may have been killed in replace().
        if (const Position older = find(records.at(position).node)) {
            by_node.erase(older);
            records.remove(older);
        }
        by_node.insert(position);
    });
    records.for_each([this](Position position) {
        const Record& record = records.at(position);
        if (record.node != root_node && record.state != InodeState::nameless) {
            by_name.insert(position);
        }
    });
}

InodeTable::Position InodeTable::State::find(NodeId node) const {
    return by_node.find(node, [&](Position position) { return records.at(position).node == node; });
}

InodeTable::Position InodeTable::State::find(NodeId parent, std::string_view name) const {
    return by_name.find(hash_of(parent, name), [&](Position position) {
        const Record& record = records.at(position);
        return record.parent == parent && record.name() == name;
    });
}

InodeTable::Position InodeTable::State::add(const Record& record, std::string_view name) {
    const Position position = records.add(record, name);
    if (position != 0) {
        by_node.insert(position);
        if (record.node != root_node && record.state != InodeState::nameless) {
            by_name.insert(position);
        }
    }
    return position;
}

InodeTable::Position InodeTable::State::add_below(NodeId parent, std::string_view name, InodeState state,
                                                  const Attributes& attributes) {
    const Position position = add({.node = records.last_node() + 1,
                                   .parent = parent,
                                   .lookups = 0,
                                   .children = 0,
                                   .state = state,
                                   .name_bytes = 0,
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
    by_node.insert(added);
    if (record.node != root_node && record.state != InodeState::nameless) {
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
    if (record.node != root_node && record.state != InodeState::nameless) {
        by_name.erase(position);
        set_state(record, InodeState::nameless);
    }
}

// Removes its record.
void InodeTable::State::remove(Position position) {
    const Record& record = records.at(position);
    by_node.erase(position);
    if (record.node != root_node && record.state != InodeState::nameless) {
        by_name.erase(position);
    }
    records.remove(position);
}

void InodeTable::State::remove_if_unused(NodeId node) {
    while (node != root_node) {
        const Position position = find(node);
        const Record& record = records.at(position);
        if (record.lookups > 0 || record.children > 0 || is_kept(record.state)) {
            break;
        }
        const NodeId parent = record.parent;
        remove(position);
        read_aheads.erase(node);
        --at(parent).children;
        node = parent;
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
    for (const Record* above = &record; above->node != root_node; above = &at(above->parent)) {
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
    if (record.node == root_node) {
        return {.parent = root_node, .directory = "/", .name = ""};
    }
    return {
        .parent = record.parent, .directory = path(at(record.parent)), .name = std::string(record.name())};
}

std::optional<InodeTable::Told> InodeTable::look_up(NodeId parent, std::string_view name,
                                                    const Attributes& attributes) {
    auto state = state_.lock();
    if (state->find(parent) == 0) {
        return std::nullopt;
    }
    Position position = state->find(parent, name);
    if (position != 0 && !still_means(state->records.at(position), attributes)) {
        const NodeId old = state->records.at(position).node;
        state->take_name(position);
        state->remove_if_unused(old);
        position = 0;
    }
    if (position == 0) {
        position = state->add_below(parent, name, InodeState::listed, attributes);
    } else if (state->records.at(position).state == InodeState::listed) {
        position = state->replace(position, attributes);
    }
    if (position == 0) {
        return std::nullopt;
    }
    Record& record = state->records.at(position);
    InodeRecords::set_lookups(record, record.lookups + 1);
    return Told{.node = record.node, .attributes = record.attributes};
}

InodeTable::Known InodeTable::forget(NodeId node, std::uint64_t lookups) {
    auto state = state_.lock();
    const Position position = state->find(node);
    if (position == 0) {
        return Known::no_more;
    }
    if (node != root_node) {
        Record& record = state->records.at(position);
        InodeRecords::set_lookups(record, record.lookups - std::min(lookups, record.lookups));
        state->remove_if_unused(node);
    }
    return state->find(node) != 0 ? Known::still : Known::no_more;
}

void InodeTable::detach(NodeId node) {
    auto state = state_.lock();
    if (const Position position = state->find(node)) {
        state->take_name(position);
        state->remove_if_unused(node);
    }
}

std::optional<std::string> InodeTable::path(NodeId node) {
    auto state = state_.lock();
    const Position position = state->find(node);
    return position != 0 ? std::optional(state->path(state->records.at(position))) : std::nullopt;
}

std::optional<InodeTable::Place> InodeTable::place(NodeId node) {
    auto state = state_.lock();
    const Position position = state->find(node);
    return position != 0 ? std::optional(state->place(state->records.at(position))) : std::nullopt;
}

std::optional<Attributes> InodeTable::attributes(NodeId node) {
    auto state = state_.lock();
    const Position position = state->find(node);
    return position != 0 ? std::optional(state->records.at(position).attributes) : std::nullopt;
}

std::uint64_t InodeTable::inode_number(NodeId node) {
    const auto known = attributes(node);
    return known ? known->inode : 0;
}

InodeTable::Verdict InodeTable::hand_out(NodeId node, const Attributes& attributes, Bytes bytes) {
    auto state = state_.lock();
    Position position = state->find(node);
    if (position == 0) {
        return Verdict::other;
    }
    const Record& record = state->records.at(position);
    const bool is_current = version_of(record.attributes) == version_of(attributes);
    if (!is_current) {
        if (!may_take_another_version(record.state) || !have_same_size(record.attributes, attributes)) {
            return Verdict::other;
        }
        const Position taken = state->replace(position, attributes);
        if (taken == position) {  // no memory left
            return Verdict::other;
        }
        position = taken;
    }
    if (bytes == Bytes::some) {
        Record& read = state->records.at(position);
        state->set_state(read, with_bytes(read.state));
    }
    return is_current ? Verdict::current : Verdict::adopted;
}

ExtentRange InodeTable::read_ahead(NodeId node, ExtentRange read, std::uint32_t extents,
                                   std::uint32_t window_max) {
    auto state = state_.lock();
    if (state->find(node) == 0) {
        return {};
    }
    if (state->read_aheads.size() >= read_aheads_max) {
        state->read_aheads.clear();
    }
    return state->read_aheads[node].next(read, extents, window_max);
}

std::optional<InodeTable::Place> InodeTable::supersede(NodeId node, const Attributes& attributes) {
    auto state = state_.lock();
    const Position position = state->find(node);
    if (position == 0 || node == root_node) {
        return std::nullopt;
    }
    Place place = state->place(state->records.at(position));
    const Position meant = state->find(place.parent, place.name);
    const Record* current = meant != 0 ? &state->records.at(meant) : nullptr;
    const NodeId current_node = current != nullptr ? current->node : node;
    if (current_node != node && (version_of(current->attributes) == version_of(attributes) ||
                                 attributes.changed < current->attributes.changed)) {
        return place;
    }
    if (meant != 0) {
        state->take_name(meant);
    }
    if (state->kept < kept_max) {
        state->add_below(place.parent, place.name, InodeState::kept, attributes);
    }
    state->remove_if_unused(current_node);
    return place;
}

std::size_t InodeTable::size() {
    return state_.lock()->by_node.size();
}

}  // namespace copper
