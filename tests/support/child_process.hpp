// Runs a part of a test in its own process, so that changes to the process (user, mounts) end with it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace copper::test {

// `part` returns the reason why it cannot run here, or nothing; this function returns the same. Failures in
// `part` are failures of the test. REQUIRES: `part` starts no threads.
template <typename Part>
std::optional<std::string> run_in_child(Part part) {
    int pipe[2];
    if (::pipe(pipe) != 0) {
        return "no pipe";
    }
    UniqueFd read_end(pipe[0]);
    UniqueFd write_end(pipe[1]);
    std::fflush(nullptr);
    const auto child = ::fork();
    if (child == 0) {
        std::optional<std::string> reason;
        try {
            reason = part();
        } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
        }
        if (reason && ::write(write_end.get(), reason->data(), reason->size()) < 0) {
            ::_exit(2);
        }
        std::fflush(nullptr);
        ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    write_end.reset();
    char buffer[256];
    const auto bytes = retry_eintr([&] { return ::read(read_end.get(), buffer, sizeof buffer); });
    int status = 0;
    EXPECT_EQ(retry_eintr([&] { return ::waitpid(child, &status, 0); }), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "in a child process, status " << status;
    return bytes > 0 ? std::optional(std::string(buffer, static_cast<std::size_t>(bytes))) : std::nullopt;
}

}  // namespace copper::test
