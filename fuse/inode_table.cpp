#include "fuse/inode_table.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <unordered_set>

#include "cache/path.hpp"

namespace copper {

namespace {

// The kernel relies on the size of files and symbolic links for as long as it knows the inode.
bool have_same_size(const Attributes& a, const Attributes& b) {
    return S_ISDIR(a.mode) || a.size == b.size;
}

}  // namespace

InodeTable::InodeTable(const Attributes& root, InodeLog log) {
    auto state = state_.lock();
    Inode& inode = state->inodes[root_node];
    inode.lookups = 1;  // the mount's own, never forgotten
    inode.attributes = root;
    state->log = log;
    state->restore();
}

void InodeTable::State::restore() {
    log.for_each([this](const InodeLog::Inode& logged) {
        Inode& inode = inodes[logged.node];
        static_cast<InodeLog::State&>(inode) = logged.state;
        inode.parent = logged.parent;
        inode.name = logged.name;
        inode.attributes = logged.attributes;
        inode.record = logged.record;
        kept += inode.is_kept ? 1 : 0;
        if (inode.is_named) {
            names.emplace(Key{inode.parent, inode.name}, logged.node);
        }
    });
    for (const auto& [node, inode] : inodes) {
        if (Inode* parent = find(inode.parent); parent != nullptr && node != root_node) {
            ++parent->children;
        }
    }
    next = std::max(next, log.last_node() + 1);
}

// What the log tells of it is what `inode` says by now.
void InodeTable::State::save(NodeId node, Inode& inode) {
    if (inode.record != nullptr) {
        log.change(inode.record, inode, inode.attributes);
    } else if (node != root_node) {
        inode.record = log.add(node, inode.parent, inode.name, inode, inode.attributes);
    }
}

void InodeTable::State::remove(std::unordered_map<NodeId, Inode>::iterator inode) {
    if (inode->second.record != nullptr) {
        log.remove(inode->second.record);
    }
    inodes.erase(inode);
    if (log.should_be_rewritten()) {
        log.rewrite([this](NodeId node, InodeLog::Record* record) { inodes.at(node).record = record; });
    }
}

InodeTable::Inode* InodeTable::State::find(NodeId node) {
    const auto found = inodes.find(node);
    return found != inodes.end() ? &found->second : nullptr;
}

void InodeTable::State::detach(NodeId node, Inode& inode) {
    const auto named = names.find(Key{inode.parent, inode.name});
    if (named != names.end() && named->second == node) {
        names.erase(named);
        inode.is_named = false;
        save(node, inode);
    }
}

void InodeTable::State::remove_if_unused(NodeId node) {
    while (node != root_node) {
        const auto found = inodes.find(node);
        if (found == inodes.end() || found->second.lookups > 0 || found->second.children > 0 ||
            found->second.is_kept) {
            return;
        }
        const NodeId parent = found->second.parent;
        detach(node, found->second);
        remove(found);
        if (Inode* above = find(parent)) {
            --above->children;
        }
        node = parent;
    }
}

NodeId InodeTable::State::add(NodeId parent, std::string_view name) {
    ++inodes.at(parent).children;
    const NodeId node = next++;
    Inode& inode = inodes[node];
    inode.parent = parent;
    inode.name = name;
    names.emplace(Key{parent, inode.name}, node);
    return node;
}

// Keeps it no longer than the kernel does.
void InodeTable::State::release(NodeId node) {
    Inode& inode = inodes.at(node);
    if (inode.is_kept) {
        inode.is_kept = false;
        --kept;
        save(node, inode);
        remove_if_unused(node);
    }
}

std::string InodeTable::State::path(const Inode& inode) const {
    // Collects the components from the leaf up, so that the text is allocated once.
    std::vector<const Inode*> chain;
    std::size_t bytes = 0;
    for (const Inode* at = &inode; !at->name.empty(); at = &inodes.at(at->parent)) {
        chain.push_back(at);
        bytes += 1 + at->name.size();
    }
    if (chain.empty()) {
        return "/";
    }
    std::string text;
    text.reserve(bytes);
    for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
        text.append(1, '/').append((*at)->name);
    }
    return text;
}

InodeTable::Inode* InodeTable::State::find_same(NodeId parent, std::string_view name,
                                                const Attributes& attributes, NodeId& node) {
    const auto named = names.find(Key{parent, name});
    if (named == names.end()) {
        return nullptr;
    }
    node = named->second;
    Inode& inode = inodes.at(node);
    const bool same_type = (inode.attributes.mode & S_IFMT) == (attributes.mode & S_IFMT);
    const bool knows_better = inode.bytes_handed_out || inode.is_kept;
    const bool is_older = knows_better && attributes.changed <= inode.attributes.changed;
    const bool is_the_same = knows_better ? version_of(inode.attributes) == version_of(attributes)
                                          : have_same_size(inode.attributes, attributes);
    if (same_type && (is_older || is_the_same)) {
        return &inode;
    }
    detach(node, inode);
    release(node);
    return nullptr;
}

std::optional<InodeTable::Told> InodeTable::look_up(NodeId parent, std::string_view name,
                                                    const Attributes& attributes) {
    auto state = state_.lock();
    if (state->find(parent) == nullptr) {
        return std::nullopt;
    }
    NodeId node = 0;
    Inode* inode = state->find_same(parent, name, attributes, node);
    if (inode == nullptr) {
        node = state->add(parent, name);
        inode = state->find(node);
    }
    ++inode->lookups;
    if (!inode->bytes_handed_out && !inode->is_kept) {
        inode->attributes = attributes;
        inode->attributes_known = true;
    }
    state->save(node, *inode);
    return Told{.node = node, .attributes = inode->attributes};
}

InodeTable::Known InodeTable::forget(NodeId node, std::uint64_t lookups) {
    auto state = state_.lock();
    Inode* inode = state->find(node);
    if (inode != nullptr && node != root_node) {
        inode->lookups -= std::min(lookups, inode->lookups);
        state->save(node, *inode);
        state->remove_if_unused(node);
    }
    return state->find(node) != nullptr ? Known::still : Known::no_more;
}

void InodeTable::detach(NodeId node) {
    auto state = state_.lock();
    if (Inode* inode = state->find(node); inode != nullptr && node != root_node) {
        state->detach(node, *inode);
        state->release(node);
    }
}

std::optional<std::string> InodeTable::path(NodeId node) {
    auto state = state_.lock();
    const Inode* inode = state->find(node);
    return inode != nullptr ? std::optional(state->path(*inode)) : std::nullopt;
}

std::optional<InodeTable::Place> InodeTable::place(NodeId node) {
    auto state = state_.lock();
    const Inode* inode = state->find(node);
    if (inode == nullptr) {
        return std::nullopt;
    }
    if (node == root_node) {
        return Place{.parent = root_node, .directory = "/", .name = ""};
    }
    return Place{.parent = inode->parent,
                 .directory = state->path(state->inodes.at(inode->parent)),
                 .name = inode->name};
}

std::optional<Attributes> InodeTable::attributes(NodeId node) {
    auto state = state_.lock();
    const Inode* inode = state->find(node);
    return inode != nullptr && inode->attributes_known ? std::optional(inode->attributes) : std::nullopt;
}

void InodeTable::set_attributes(NodeId node, const Attributes& attributes) {
    auto state = state_.lock();
    Inode* inode = state->find(node);
    if (inode != nullptr && !inode->bytes_handed_out) {
        inode->attributes = attributes;
        inode->attributes_known = true;
        state->save(node, *inode);
    }
}

std::uint64_t InodeTable::inode_number(NodeId node) {
    auto state = state_.lock();
    const Inode* inode = state->find(node);
    return inode != nullptr ? inode->attributes.inode : 0;
}

InodeTable::Verdict InodeTable::hand_out(NodeId node, const Attributes& attributes, Bytes bytes) {
    auto state = state_.lock();
    Inode* inode = state->find(node);
    if (inode == nullptr) {
        return Verdict::other;
    }
    const bool same = inode->attributes_known && version_of(inode->attributes) == version_of(attributes);
    if (!same && (inode->bytes_handed_out || !have_same_size(inode->attributes, attributes))) {
        return Verdict::other;
    }
    if (same && (inode->bytes_handed_out || bytes == Bytes::none)) {
        return Verdict::current;
    }
    inode->bytes_handed_out = inode->bytes_handed_out || bytes == Bytes::some;
    if (!same) {
        inode->attributes = attributes;
        inode->attributes_known = true;
    }
    state->save(node, *inode);
    return same ? Verdict::current : Verdict::adopted;
}

ExtentRange InodeTable::read_ahead(NodeId node, ExtentRange read, std::uint32_t extents,
                                   std::uint32_t window_max) {
    auto state = state_.lock();
    Inode* inode = state->find(node);
    return inode != nullptr ? inode->read_ahead.next(read, extents, window_max) : ExtentRange{};
}

std::optional<InodeTable::Place> InodeTable::supersede(NodeId node, const Attributes& attributes) {
    auto state = state_.lock();
    Inode* old = state->find(node);
    if (old == nullptr || node == root_node) {
        return std::nullopt;
    }
    const Place place{
        .parent = old->parent, .directory = state->path(state->inodes.at(old->parent)), .name = old->name};
    const auto named = state->names.find(Key{old->parent, old->name});
    const NodeId current = named != state->names.end() ? named->second : 0;
    Inode* inode = state->find(current);
    if (current != node && inode != nullptr &&
        (version_of(inode->attributes) == version_of(attributes) ||
         attributes.changed < inode->attributes.changed)) {
        return place;
    }
    const bool has_room = state->kept < kept_max || (inode != nullptr && inode->is_kept);
    if (inode != nullptr) {
        state->detach(current, *inode);
    }
    if (has_room) {
        const NodeId successor = state->add(place.parent, place.name);
        Inode& kept = state->inodes.at(successor);
        kept.attributes = attributes;
        kept.is_kept = true;
        ++state->kept;
        state->save(successor, kept);
    }
    if (inode != nullptr) {
        state->release(current);
    }
    return place;
}

std::optional<NodeId> InodeTable::find(std::string_view path) {
    auto state = state_.lock();
    NodeId node = root_node;
    while (path.size() > 1) {
        path.remove_prefix(1);
        const auto name = path.substr(0, path.find('/'));
        const auto named = state->names.find(Key{node, name});
        if (named == state->names.end()) {
            return std::nullopt;
        }
        node = named->second;
        path.remove_prefix(name.size());
    }
    return node;
}

std::vector<NodeId> InodeTable::within(NodeId node) {
    std::vector<std::pair<NodeId, NodeId>> parents;
    {
        auto state = state_.lock();
        parents.reserve(state->inodes.size());
        for (const auto& [id, inode] : state->inodes) {
            parents.emplace_back(id, inode.parent);
        }
    }
    // A parent is always made before what lies in it, so one pass in the order of ids sees it first.
    std::sort(parents.begin(), parents.end());
    std::unordered_set<NodeId> inside{node};
    std::vector<NodeId> result;
    for (const auto& [id, parent] : parents) {
        if (id == node || inside.contains(parent)) {
            inside.insert(id);
            result.push_back(id);
        }
    }
    return result;
}

void InodeTable::drop(const std::vector<NodeId>& nodes) {
    auto state = state_.lock();
    ++state->epoch;
    for (const NodeId node : nodes) {
        Inode* inode = state->find(node);
        if (inode != nullptr && node != root_node) {
            inode->attributes_known = false;
            inode->bytes_handed_out = false;
            state->save(node, *inode);
            state->release(node);
        }
    }
}

std::uint64_t InodeTable::epoch() {
    return state_.lock()->epoch;
}

bool InodeTable::is_lasting() {
    return state_.lock()->log.is_whole();
}

std::size_t InodeTable::size() {
    return state_.lock()->inodes.size();
}

}  // namespace copper
