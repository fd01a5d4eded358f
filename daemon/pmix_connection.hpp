// The connection of an MPI process with its launcher, if both speak PMIx (pmix.github.io).
#pragma once

#include <optional>

namespace copper {

// The socket that MPI_Init opened. MPI owns it. Nothing if there is none.
std::optional<int> pmix_connection();

}  // namespace copper
