#include "fuse/local_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace copper {

std::shared_ptr<LocalFile> LocalFile::make(int directory, std::uint64_t size, const Version& version) {
    UniqueFd file(::openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
        return nullptr;
    }
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) {
        return nullptr;
    }
    return std::make_shared<LocalFile>(std::move(file),
                                       std::span(static_cast<const std::byte*>(mapped), size), version);
}

LocalFile::~LocalFile() {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool LocalFile::write(std::span<const std::byte> bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const auto written = retry_eintr(
            [&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
        if (written <= 0) {
            return false;
        }
        bytes = bytes.subspan(static_cast<std::size_t>(written));
        offset += static_cast<std::uint64_t>(written);
    }
    return true;
}

}  // namespace copper
