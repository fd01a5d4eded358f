#include "fuse/inode_records.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <type_traits>

namespace copper {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t head_bytes = page_bytes;

// Of removed records.
constexpr std::size_t rewrite_bytes_min = 16U << 20;

std::size_t bytes_of(const InodeRecords::Record& record) {
    constexpr std::size_t unit = alignof(InodeRecords::Record);
    return (sizeof(InodeRecords::Record) + record.name_bytes + unit - 1) / unit * unit;
}

// Stores a value after everything stored before it, even if the process is killed.
template <typename T>
void store(T& place, T value) {
    std::atomic_ref(place).store(value, std::memory_order_release);
}

}  // namespace

struct InodeRecords::Head {
    std::uint32_t active;
    InodeId last_inode;
    std::uint64_t end[2];
};

InodeRecords::InodeRecords(std::span<std::byte> memory)
    : head_(reinterpret_cast<Head*>(memory.data())),
      memory_(memory),
      half_bytes_((memory.size() - head_bytes) / 2 / page_bytes * page_bytes) {
    static_assert(sizeof(Head) <= head_bytes);
    static_assert(alignof(Record) == unit_bytes);
    static_assert(std::is_trivially_copyable_v<Record>);
}

std::span<std::byte> InodeRecords::half(std::uint32_t which) const {
    return memory_.subspan(head_bytes + which * half_bytes_, half_bytes_);
}

InodeRecords::Position InodeRecords::append(std::uint32_t which, const Record& record,
                                            std::string_view name) {
    std::uint64_t& end = head_->end[which];
    if (end + bytes_of(record) > half_bytes_) {
        return 0;
    }
    std::byte* const place = half(which).data() + end;
    new (place) Record(record);
    std::memcpy(place + sizeof(Record), name.data(), name.size());
    store(end, end + bytes_of(record));
    return static_cast<Position>(static_cast<std::size_t>(place - memory_.data()) / unit_bytes);
}

InodeRecords::Position InodeRecords::add(const Record& record, std::string_view name) {
    Record named = record;
    named.name_bytes = static_cast<std::uint8_t>(name.size());
    head_->last_inode = std::max(head_->last_inode, record.inode);
    return append(head_->active, named, name);
}

void InodeRecords::remove(Position position) {
    removed_bytes_ += bytes_of(at(position));
    store(at(position).inode, InodeId{0});
}

void InodeRecords::set_state(Record& record, InodeState state) {
    store(record.state, state);
}

void InodeRecords::set_lookups(Record& record, std::uint64_t lookups) {
    store(record.lookups, lookups);
}

void InodeRecords::for_each(const std::function<void(Position)>& visit) const {
    const auto records = half(head_->active);
    const auto begin = static_cast<std::size_t>(records.data() - memory_.data());
    for (std::uint64_t offset = 0; offset < head_->end[head_->active];) {
        const auto position = static_cast<Position>((begin + offset) / unit_bytes);
        offset += bytes_of(at(position));
        if (at(position).inode != 0) {
            visit(position);
        }
    }
}

InodeId InodeRecords::last_inode() const {
    return head_->last_inode;
}

bool InodeRecords::should_be_rewritten() const {
    return removed_bytes_ >= rewrite_bytes_min && removed_bytes_ * 2 > head_->end[head_->active];
}

void InodeRecords::rewrite() {
    const std::uint32_t from = head_->active;
    const std::uint32_t to = 1 - from;
    head_->end[to] = 0;
    for_each([&](Position position) { append(to, at(position), at(position).name()); });
    store(head_->active, to);
    removed_bytes_ = 0;
    ::madvise(half(from).data(), head_->end[from], MADV_REMOVE);  // returns its pages to the system
}

}  // namespace copper
