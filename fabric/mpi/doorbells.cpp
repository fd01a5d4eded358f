#include "fabric/mpi/doorbells.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <new>
#include <random>

#include "base/unique_fd.hpp"

namespace copper {
namespace {

// Memory that processes of one user share. Not a window of MPI (MPI_Win_allocate_shared): Open MPI 5 warns
// that with one, the loss of a process may end the others, even where it tolerates faults.
using MemoryName = std::array<char, 32>;  // empty: there is none

MemoryName create_memory(std::size_t bytes) {
    MemoryName name{};
    std::random_device random;
    std::snprintf(name.data(), name.size(), "/copper-%08x%08x", random(), random());
    const UniqueFd file(::shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
    if (!file) {
        return {};
    }
    // Takes the memory now: if there was none later, a ring would end the process.
    if (::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)) != 0) {
        ::shm_unlink(name.data());
        return {};
    }
    return name;
}

// For as long as the process lives. Null if it cannot be had.
void* map_memory(const MemoryName& name, std::size_t bytes) {
    const UniqueFd file(name.front() == '\0' ? -1 : ::shm_open(name.data(), O_RDWR, 0));
    if (!file) {
        return nullptr;
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

std::vector<Doorbell*> share_doorbells() {
    int size = 1, self = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    std::vector<Doorbell*> doorbells(static_cast<std::size_t>(size));
    MPI_Comm machine = MPI_COMM_NULL;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, self, MPI_INFO_NULL, &machine) !=
        MPI_SUCCESS) {
        return doorbells;
    }
    int count = 1, place = 0;
    MPI_Comm_size(machine, &count);
    MPI_Comm_rank(machine, &place);
    if (count == 1) {
        return doorbells;
    }
    std::vector<int> ranks(static_cast<std::size_t>(count));
    MPI_Allgather(&self, 1, MPI_INT, ranks.data(), 1, MPI_INT, machine);
    const std::size_t bytes = ranks.size() * sizeof(Doorbell);
    auto name = place == 0 ? create_memory(bytes) : MemoryName{};
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, machine);
    auto* memory = static_cast<Doorbell*>(map_memory(name, bytes));
    if (memory != nullptr) {
        new (memory + place) Doorbell;
    }
    const int has_it = memory != nullptr ? 1 : 0;
    int all_have_it = 0;
    MPI_Allreduce(&has_it, &all_have_it, 1, MPI_INT, MPI_MIN, machine);
    if (place == 0) {
        ::shm_unlink(name.data());
    }
    for (std::size_t i = 0; all_have_it != 0 && i < ranks.size(); ++i) {
        doorbells[static_cast<std::size_t>(ranks[i])] = std::launder(memory + i);
    }
    return doorbells;
}

}  // namespace copper
