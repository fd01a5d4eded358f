// The connection of an MPI process with its launcher, if both speak PMIx (pmix.github.io).
#pragma once

#include <optional>

namespace copper {

// The socket that MPI_Init opened. MPI owns it. Nothing if there is none.
std::optional<int> pmix_connection();

// Tells the launcher that this process leaves on purpose. MPI_Finalize does that too, but needs all nodes. No
// effect if MPI does not use PMIx. May take some seconds.
void leave_pmix();

}  // namespace copper
