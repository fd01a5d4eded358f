#include "daemon/pmix_connection.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

namespace copper {
namespace {

// In variables for several versions, such as PMIX_SERVER_URI41="slurm.pmix.1.0;tcp4://127.0.0.1:36789".
std::set<std::string, std::less<>> server_ports() {
    std::set<std::string, std::less<>> ports;
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
        const std::string_view variable = *entry;
        if (variable.starts_with("PMIX_SERVER_URI")) {
            ports.emplace(variable.substr(variable.rfind(':') + 1));
        }
    }
    return ports;
}

// Empty if this is not a connected TCP socket.
std::string port_of_peer(int descriptor) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    std::array<char, NI_MAXSERV> port = {};
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, nullptr, 0, port.data(), port.size(),
                      NI_NUMERICSERV) != 0) {
        return {};
    }
    return port.data();
}

}  // namespace

std::optional<int> pmix_connection() {
    const auto ports = server_ports();
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
        const int descriptor = std::atoi(entry.path().filename().c_str());
        if (ports.contains(port_of_peer(descriptor))) {
            return descriptor;
        }
    }
    return std::nullopt;
}

}  // namespace copper
