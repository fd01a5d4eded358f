#include "fabric/mpi/doorbells.hpp"

#include <mpi.h>

#include <new>
#include <numeric>

namespace copper {
namespace {

// Their ranks in MPI_COMM_WORLD.
std::vector<int> world_ranks(MPI_Comm machine, int count) {
    MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_group(machine, &here);
    std::vector<int> ranks(static_cast<std::size_t>(count)), of_world(ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    MPI_Group_translate_ranks(here, count, ranks.data(), all, of_world.data());
    MPI_Group_free(&here);
    MPI_Group_free(&all);
    return of_world;
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
    int count = 1;
    MPI_Comm_size(machine, &count);
    MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
    void* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    if (count == 1 || MPI_Win_allocate_shared(sizeof(Doorbell), 1, MPI_INFO_NULL, machine, &memory,
                                              &window) != MPI_SUCCESS) {
        return doorbells;
    }
    new (memory) Doorbell;
    MPI_Barrier(machine);
    const auto ranks = world_ranks(machine, count);
    for (int i = 0; i < count; ++i) {
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_Win_shared_query(window, i, &bytes, &unit, &memory);
        doorbells[static_cast<std::size_t>(ranks[static_cast<std::size_t>(i)])] =
            std::launder(static_cast<Doorbell*>(memory));
    }
    return doorbells;
}

}  // namespace copper
