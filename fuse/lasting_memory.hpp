// Memory that outlives a daemon's process, so that its successor can go on serving the same mount: the
// requests that the kernel has handed out and that nobody has answered, and the inodes that the kernel knows.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <tl/expected.hpp>

#include "base/unique_fd.hpp"

namespace copper {

// What one process gives to the next: the kernel's connection (/dev/fuse) and the memory.
struct HandOver {
    UniqueFd device;
    UniqueFd memory;
};

// A file without a name (memfd_create(2)), mapped. It takes as many pages as were written to. What the kernel
// stored or the process wrote before it was killed is there for the next one, in program order; so whatever
// is kept here is written such that it is right between any two stores.
class LastingMemory {
  public:
    static tl::expected<LastingMemory, std::string> make();
    // Of the process before.
    static tl::expected<LastingMemory, std::string> adopt(UniqueFd file);
    LastingMemory(LastingMemory&& other) noexcept;
    LastingMemory& operator=(LastingMemory&&) = delete;
    ~LastingMemory();

    int file() const { return file_.get(); }

    // The first request of a connection (INIT), once it has come.
    std::span<const std::byte> init() const;
    void keep_init(std::span<const std::byte> request);

    std::span<std::byte> requests() const;  // for RequestSlots
    std::span<std::byte> inodes() const;    // for InodeTable

  private:
    LastingMemory(UniqueFd file, std::byte* base) : file_(std::move(file)), base_(base) {}
    static tl::expected<LastingMemory, std::string> map(UniqueFd file);

    UniqueFd file_;
    std::byte* base_;
};

}  // namespace copper
