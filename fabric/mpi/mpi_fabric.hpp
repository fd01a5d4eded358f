// The fabric over MPI point-to-point messages. Works with any MPI implementation.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/job_key.hpp"
#include "cache/extent_memory.hpp"
#include "fabric/fabric.hpp"

namespace copper {

class MpiFabric : public Fabric {
  public:
    struct Options {
        std::size_t receives_posted = 32;       // messages that can arrive unannounced
        std::size_t bodies_in_flight_max = 32;  // large bodies being received at a time, from all senders
        std::size_t bulk_sends_in_flight_per_peer_max = 8;  // of small messages: one
        // A node is lost if a send to it, or a body announced by it, takes longer.
        std::chrono::milliseconds send_deadline{30000};
        std::shared_ptr<ExtentMemory> memory = ExtentMemory::make();  // for arriving bodies
        std::optional<JobKey> key = {};  // refuses messages that are not sealed with it (envelope.hpp)
    };

    // Settings of MPI. Call it before start(), while the process has one thread.
    static void prepare_process();

    // Calls MPI_Init: once per process. The calling thread is the fabric's thread. REQUIRES: the process
    // ignores SIGPIPE; otherwise MPI's writes to the socket of a dead node would end it.
    static tl::expected<std::unique_ptr<MpiFabric>, std::string> start(Options options);

    // Leaves MPI. `Ending::together` calls MPI_Finalize, which needs every node and could wait for ever if
    // one is lost. `Ending::alone` leaves the process's end to the launcher.
    enum class Ending { together, alone };
    virtual void finish(Ending ending) = 0;

    // True if a launcher (mpirun, srun, ...) started this process as one of several ranks.
    static bool launched();
};

}  // namespace copper
