#include "fuse/lasting_memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
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
constexpr std::size_t records_begin = head_bytes + RequestSlots::memory_bytes;
constexpr std::size_t total_bytes_max = records_begin + InodeRecords::memory_bytes_max;
constexpr std::size_t total_bytes_min = records_begin + (std::size_t{16} << 20);
// Of what the process may map: the rest is for its threads and the cache.
constexpr std::size_t part_of_address_space = 4;

std::size_t limit_of(int resource) {
    rlimit limit = {};
    ::getrlimit(resource, &limit);
    return limit.rlim_cur;  // RLIM_INFINITY is the highest number
}

std::string failure(const char* what) {
    return std::string("cannot make memory that outlives the daemon: ") + what + ": " + error_text();
}

}  // namespace

tl::expected<LastingMemory, std::string> LastingMemory::make() {
    const std::size_t bytes =
        std::min({total_bytes_max, limit_of(RLIMIT_FSIZE), limit_of(RLIMIT_AS) / part_of_address_space});
    if (bytes < total_bytes_min) {
        return tl::make_unexpected("cannot make memory that outlives the daemon: it needs files of " +
                                   std::to_string(total_bytes_min >> 20) + " MiB (ulimit -f), and " +
                                   std::to_string(part_of_address_space * total_bytes_min >> 20) +
                                   " MiB of address space (ulimit -v)");
    }
    UniqueFd file(::memfd_create("copper", MFD_CLOEXEC));
    if (!file) {
        return tl::make_unexpected(failure("memfd_create"));
    }
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
        return tl::make_unexpected(failure("ftruncate"));
    }
    return map(std::move(file));
}

tl::expected<LastingMemory, std::string> LastingMemory::adopt(UniqueFd file) {
    return map(std::move(file));
}

tl::expected<LastingMemory, std::string> LastingMemory::map(UniqueFd file) {
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) {
        return tl::make_unexpected(failure("fstat"));
    }
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    if (base == MAP_FAILED) {
        return tl::make_unexpected(failure("mmap"));
    }
    return LastingMemory(std::move(file), {static_cast<std::byte*>(base), bytes});
}

LastingMemory::LastingMemory(LastingMemory&& other) noexcept
    : file_(std::move(other.file_)), memory_(std::exchange(other.memory_, {})) {}

LastingMemory::~LastingMemory() {
    if (!memory_.empty()) {
        ::munmap(memory_.data(), memory_.size());
    }
}

std::span<const std::byte> LastingMemory::init() const {
    const auto* head = reinterpret_cast<const Head*>(memory_.data());
    return {head->init, head->init_bytes};
}

void LastingMemory::keep_init(std::span<const std::byte> request) {
    auto* head = reinterpret_cast<Head*>(memory_.data());
    if (request.size() <= sizeof(head->init)) {
        std::memcpy(head->init, request.data(), request.size());
        std::atomic_ref(head->init_bytes)
            .store(static_cast<std::uint32_t>(request.size()), std::memory_order_release);
    }
}

std::span<std::byte> LastingMemory::requests() const {
    return memory_.subspan(head_bytes, RequestSlots::memory_bytes);
}

std::span<std::byte> LastingMemory::inodes() const {
    return memory_.subspan(records_begin);
}

}  // namespace copper
