// Doorbells in memory that the nodes of one machine share. MPI cannot wake a process that sleeps.
#pragma once

#include <vector>

#include "base/doorbell.hpp"

namespace copper {

// Those of all ranks of MPI_COMM_WORLD, which all call this. Nothing for ranks on other machines, and for all
// if this rank is alone on its machine or there is no memory to share. They last as long as the process. (To
// MPICH, the nodes of `copper launch --local` are hosts of their own, so these look.)
std::vector<Doorbell*> share_doorbells();

}  // namespace copper
