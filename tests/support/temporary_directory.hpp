// A directory that is removed after the test, whatever the test did.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "base/unique_fd.hpp"

namespace copper::test {

// Writes `content` to `path`, in place if the file exists.
inline void write_file(const std::string& path, std::string_view content) {
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file) {
        throw std::system_error(errno, std::generic_category(), path);
    }
    while (!content.empty()) {
        const auto written = retry_eintr([&] { return ::write(file.get(), content.data(), content.size()); });
        if (written < 0) {
            throw std::system_error(errno, std::generic_category(), path);
        }
        content.remove_prefix(static_cast<std::size_t>(written));
    }
}

class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        const auto parent = std::filesystem::canonical(std::filesystem::temp_directory_path());
        path_ = (parent / "copper-test-XXXXXX").string();
        if (::mkdtemp(path_.data()) == nullptr) {
            throw std::system_error(errno, std::generic_category(), path_);
        }
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    const std::string& path() const { return path_; }
    std::string operator/(std::string_view name) const { return path_ + '/' + std::string(name); }

  private:
    std::string path_;
};

}  // namespace copper::test
