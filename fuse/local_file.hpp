// A file on this node with the content of a file on the backing filesystem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/unique_fd.hpp"
#include "cache/object.hpp"

namespace copper {

// Has no name, and is mapped: written bytes can be read in place while the LocalFile lives. One thread calls
// write(), and shares the file when it is complete.
class LocalFile {
  public:
    // Nothing if the filesystem of `directory` has no room. REQUIRES: size > 0.
    static std::shared_ptr<LocalFile> make(int directory, std::uint64_t size, const Version& version);
    LocalFile(UniqueFd file, std::span<const std::byte> bytes, const Version& version)
        : file_(std::move(file)), bytes_(bytes), version_(version) {}
    LocalFile(const LocalFile&) = delete;
    LocalFile& operator=(const LocalFile&) = delete;
    ~LocalFile();

    [[nodiscard]] bool write(std::span<const std::byte> bytes, std::uint64_t offset);

    int descriptor() const { return file_.get(); }
    std::span<const std::byte> bytes() const { return bytes_; }
    const Version& version() const { return version_; }

  private:
    const UniqueFd file_;
    const std::span<const std::byte> bytes_;
    const Version version_;
};

}  // namespace copper
