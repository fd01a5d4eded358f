#include "fuse/lasting_memory.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error_text.hpp"
#include "fuse/inode_records.hpp"
#include "fuse/request_slots.hpp"

namespace copper {
namespace {

struct Head {
    std::uint32_t init_bytes;
    std::byte init[4000];
};
constexpr std::size_t head_bytes = 4096;
static_assert(sizeof(Head) <= head_bytes);
constexpr std::size_t total_bytes = head_bytes + RequestSlots::memory_bytes + InodeRecords::memory_bytes;

std::string failure(const char* what) {
    return std::string("cannot make memory that outlives the daemon: ") + what + ": " + error_text();
}

}  // namespace

tl::expected<LastingMemory, std::string> LastingMemory::make() {
    UniqueFd file(::memfd_create("copper", MFD_CLOEXEC));
    if (!file) {
        return tl::make_unexpected(failure("memfd_create"));
    }
    if (::ftruncate(file.get(), static_cast<off_t>(total_bytes)) != 0) {
        return tl::make_unexpected(failure("ftruncate"));
    }
    return map(std::move(file));
}

tl::expected<LastingMemory, std::string> LastingMemory::adopt(UniqueFd file) {
    return map(std::move(file));
}

tl::expected<LastingMemory, std::string> LastingMemory::map(UniqueFd file) {
    void* base =
        ::mmap(nullptr, total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    if (base == MAP_FAILED) {
        return tl::make_unexpected(failure("mmap"));
    }
    return LastingMemory(std::move(file), static_cast<std::byte*>(base));
}

LastingMemory::LastingMemory(LastingMemory&& other) noexcept
    : file_(std::move(other.file_)), base_(std::exchange(other.base_, nullptr)) {}

LastingMemory::~LastingMemory() {
    if (base_ != nullptr) {
        ::munmap(base_, total_bytes);
    }
}

std::span<const std::byte> LastingMemory::init() const {
    const auto* head = reinterpret_cast<const Head*>(base_);
    return {head->init, head->init_bytes};
}

void LastingMemory::keep_init(std::span<const std::byte> request) {
    auto* head = reinterpret_cast<Head*>(base_);
    if (request.size() <= sizeof(head->init)) {
        std::memcpy(head->init, request.data(), request.size());
        std::atomic_ref(head->init_bytes)
            .store(static_cast<std::uint32_t>(request.size()), std::memory_order_release);
    }
}

std::span<std::byte> LastingMemory::requests() const {
    return {base_ + head_bytes, RequestSlots::memory_bytes};
}

std::span<std::byte> LastingMemory::inodes() const {
    return {base_ + head_bytes + RequestSlots::memory_bytes, InodeRecords::memory_bytes};
}

}  // namespace copper
