#include "daemon/pmix_connection.hpp"

#include <dlfcn.h>
#include <link.h>
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

void leave_pmix() {
    // The library that MPI has loaded. Linking with one could bring in another.
    std::string library;
    ::dl_iterate_phdr(
        [](dl_phdr_info* loaded, std::size_t, void* found) {
            const std::string_view path = loaded->dlpi_name;
            if (path.find("/libpmix.so") == std::string_view::npos) {
                return 0;
            }
            *static_cast<std::string*>(found) = path;
            return 1;
        },
        &library);
    void* pmix = library.empty() ? nullptr : ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (pmix == nullptr) {
        return;
    }
    // PMIx Standard, "Initialization and Finalization".
    const auto initialized = reinterpret_cast<int (*)()>(::dlsym(pmix, "PMIx_Initialized"));
    const auto finalize = reinterpret_cast<int (*)(const void*, std::size_t)>(::dlsym(pmix, "PMIx_Finalize"));
    while (initialized != nullptr && finalize != nullptr && initialized() != 0 && finalize(nullptr, 0) == 0) {
    }
}

}  // namespace copper
