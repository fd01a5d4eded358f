#include "bench/slow_filesystem/shared_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error_text.hpp"
#include "base/unique_fd.hpp"

namespace copper::bench {
namespace {

tl::expected<SharedStatePtr, std::string> map(const std::string& path, int flags) {
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
    struct stat st {};
    if (!file || ::fstat(file.get(), &st) != 0) {
        return tl::make_unexpected("shared file " + path + ": " + error_text());
    }
    constexpr auto bytes = sizeof(SharedState);
    // Two first clients may both come here: the file grows once, and what it grows by is zero.
    const bool is_new = st.st_size == 0 && (flags & O_CREAT) != 0;
    if (is_new && ::ftruncate(file.get(), bytes) != 0) {
        return tl::make_unexpected("shared file " + path + ": " + error_text());
    }
    if (!is_new && st.st_size != bytes) {
        return tl::make_unexpected("shared file " + path + ": was not made by this program");
    }
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) {
        return tl::make_unexpected("shared file " + path + ": " + error_text());
    }
    return SharedStatePtr(static_cast<SharedState*>(memory),
                          [](SharedState* state) { ::munmap(state, sizeof(SharedState)); });
}

}  // namespace

tl::expected<SharedStatePtr, std::string> open_shared_state(const std::string& path) {
    return map(path, O_CREAT);
}

tl::expected<SharedStatePtr, std::string> find_shared_state(const std::string& path) {
    return map(path, 0);
}

tl::expected<ClientCounters*, std::string> add_client(SharedState& state) {
    const std::uint32_t number = state.clients++;
    if (number >= clients_max) {
        return tl::make_unexpected("the shared file has seen " + std::to_string(clients_max) +
                                   " clients, which is all that it has room for");
    }
    return &state.counters[number];
}

std::string counters_json(const SharedState& state) {
    auto clients = nlohmann::ordered_json::array();
    const std::size_t count = std::min<std::size_t>(state.clients, clients_max);
    for (std::size_t client = 0; client < count; ++client) {
        const ClientCounters& counters = state.counters[client];
        nlohmann::ordered_json object;
        for (std::size_t operation = 0; operation < operation_names.size(); ++operation) {
            object[operation_names[operation]] = counters.operations[operation].load();
        }
        object["bytes_read"] = counters.bytes_read.load();
        clients.push_back(std::move(object));
    }
    return nlohmann::ordered_json{{"clients", std::move(clients)}}.dump();
}

}  // namespace copper::bench
