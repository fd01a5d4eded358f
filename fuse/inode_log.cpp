#include "fuse/inode_log.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <new>
#include <type_traits>

namespace copper {
namespace {

enum Flag : std::uint32_t {
    is_named = 1,
    attributes_known = 2,
    bytes_handed_out = 4,
    is_kept = 8,
    is_removed = 16,
};

// Of removed inodes.
constexpr std::size_t rewrite_bytes_min = 16U << 20;

std::uint32_t flags_of(const InodeLog::State& state) {
    return (state.is_named ? is_named : 0U) | (state.attributes_known ? attributes_known : 0U) |
           (state.bytes_handed_out ? bytes_handed_out : 0U) | (state.is_kept ? is_kept : 0U);
}

}  // namespace

struct InodeLog::Head {
    std::uint32_t active;
    std::uint32_t is_incomplete;
    NodeId last_node;
    std::uint64_t end[2];
};

// Followed by the name, and padding to a multiple of 8 bytes.
struct InodeLog::Record {
    NodeId node;
    NodeId parent;
    std::uint64_t lookups;
    std::uint32_t flags;
    std::uint32_t name_bytes;
    Attributes attributes;

    std::size_t bytes() const { return (sizeof(Record) + name_bytes + 7) / 8 * 8; }
    char* name() { return reinterpret_cast<char*>(this) + sizeof(Record); }
};

InodeLog::InodeLog(std::span<std::byte> memory)
    : head_(reinterpret_cast<Head*>(memory.data())), memory_(memory) {
    static_assert(std::is_trivially_copyable_v<Attributes>);
}

std::span<std::byte> InodeLog::half(std::uint32_t which) const {
    return memory_.subspan(4096 + which * half_bytes, half_bytes);
}

InodeLog::Record* InodeLog::append(std::uint32_t which, std::uint64_t& end, const Inode& inode) {
    const Record draft{.node = inode.node,
                       .parent = inode.parent,
                       .lookups = inode.state.lookups,
                       .flags = flags_of(inode.state),
                       .name_bytes = static_cast<std::uint32_t>(inode.name.size()),
                       .attributes = inode.attributes};
    if (end + draft.bytes() > half_bytes) {
        return nullptr;
    }
    auto* record = new (half(which).data() + end) Record(draft);
    std::memcpy(record->name(), inode.name.data(), inode.name.size());
    std::atomic_ref(end).store(end + record->bytes(), std::memory_order_release);
    return record;
}

InodeLog::Record* InodeLog::add(NodeId node, NodeId parent, std::string_view name, const State& state,
                                const Attributes& attributes) {
    if (head_ == nullptr) {
        return nullptr;
    }
    head_->last_node = node;
    Record* record = append(head_->active, head_->end[head_->active],
                            {.record = nullptr,
                             .node = node,
                             .parent = parent,
                             .name = name,
                             .state = state,
                             .attributes = attributes});
    if (record == nullptr) {
        head_->is_incomplete = 1;
    }
    return record;
}

void InodeLog::change(Record* record, const State& state, const Attributes& attributes) {
    record->lookups = state.lookups;
    const std::atomic_ref flags(record->flags);
    if (record->attributes != attributes) {
        // Nobody must take half of the new ones for the old ones.
        flags.store(flags_of(state) & ~static_cast<std::uint32_t>(attributes_known | bytes_handed_out),
                    std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        record->attributes = attributes;
    }
    flags.store(flags_of(state), std::memory_order_release);
}

void InodeLog::remove(Record* record) {
    std::atomic_ref(record->flags).store(is_removed, std::memory_order_release);
    removed_bytes_ += record->bytes();
}

bool InodeLog::is_whole() const {
    return head_ != nullptr && head_->is_incomplete == 0;
}

NodeId InodeLog::last_node() const {
    return head_ != nullptr ? head_->last_node : 0;
}

void InodeLog::for_each(const std::function<void(const Inode&)>& visit) const {
    if (head_ == nullptr) {
        return;
    }
    const auto records = half(head_->active);
    for (std::uint64_t at = 0; at < head_->end[head_->active];) {
        auto* record = reinterpret_cast<Record*>(records.data() + at);
        at += record->bytes();
        if ((record->flags & is_removed) == 0) {
            visit({.record = record,
                   .node = record->node,
                   .parent = record->parent,
                   .name = {record->name(), record->name_bytes},
                   .state = {.lookups = record->lookups,
                             .is_named = (record->flags & is_named) != 0,
                             .attributes_known = (record->flags & attributes_known) != 0,
                             .bytes_handed_out = (record->flags & bytes_handed_out) != 0,
                             .is_kept = (record->flags & is_kept) != 0},
                   .attributes = record->attributes});
        }
    }
}

bool InodeLog::should_be_rewritten() const {
    return removed_bytes_ >= rewrite_bytes_min && removed_bytes_ * 2 > head_->end[head_->active];
}

void InodeLog::rewrite(const std::function<void(NodeId, Record*)>& moved) {
    const std::uint32_t from = head_->active;
    const std::uint32_t to = 1 - from;
    head_->end[to] = 0;
    for_each([&](const Inode& inode) { moved(inode.node, append(to, head_->end[to], inode)); });
    std::atomic_ref(head_->active).store(to, std::memory_order_release);
    removed_bytes_ = 0;
    const auto old = half(from);
    ::madvise(old.data(), head_->end[from], MADV_REMOVE);  // its pages go back to the system
}

}  // namespace copper
