// Memory that outlives a daemon's process, so that its successor can serve the same mount: the requests taken
// from the kernel and not answered, and the inodes that the kernel knows.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <tl/expected.hpp>

#include "base/unique_fd.hpp"

namespace copper {

// What a process hands over to its successor: the kernel's connection (/dev/fuse) and the memory. (A clone
// of the connection would not do: when the process that made it dies, the kernel fails its requests.)
struct HandOver {
    UniqueFd device;
    UniqueFd memory;
};

// A file without a name (memfd_create(2)), mapped. It takes as many pages as were written, but its size
// counts for `ulimit -f` and `ulimit -v`, so it is smaller if these are low. If the process is killed, the
// next one finds all earlier stores of kernel and process, in program order. So data here must be valid
// between any two stores.
class LastingMemory {
  public:
    static tl::expected<LastingMemory, std::string> make();
    // Takes over the previous process's memory.
    static tl::expected<LastingMemory, std::string> adopt(UniqueFd file);
    LastingMemory(LastingMemory&& other) noexcept;
    LastingMemory& operator=(LastingMemory&&) = delete;
    ~LastingMemory();

    int file() const { return file_.get(); }

    // The first request of a connection (INIT), once it has arrived.
    std::span<const std::byte> init() const;
    void keep_init(std::span<const std::byte> request);

    std::span<std::byte> requests() const;  // for RequestSlots
    std::span<std::byte> inodes() const;    // for InodeTable

  private:
    LastingMemory(UniqueFd file, std::span<std::byte> memory) : file_(std::move(file)), memory_(memory) {}
    static tl::expected<LastingMemory, std::string> map(UniqueFd file);

    UniqueFd file_;
    std::span<std::byte> memory_;
};

}  // namespace copper
