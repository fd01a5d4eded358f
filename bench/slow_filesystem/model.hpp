// How long the servers of a parallel filesystem take: for one operation, and for those of all clients
// together.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace copper::bench {

using Nanoseconds = std::chrono::nanoseconds;

// A rate of 0 has no limit.
struct Model {
    Nanoseconds metadata_latency{0};
    double metadata_rate = 0;  // operations a second, of all clients together
    Nanoseconds data_latency{0};
    double client_bandwidth = 0;  // bytes a second to one client
    double total_bandwidth = 0;   // bytes a second to all clients together
    double stall_share = 0;       // of all operations, which take stall_time longer
    Nanoseconds stall_time{0};
    std::uint64_t seed = 1;  // decides which operations stall
    // Of the client:
    bool opens_directories_itself = false;  // without asking a server
    bool is_serial = false;                 // looks up one name at a time in a directory
    bool forgets_names = false;             // looks a name up each time that it is used
    bool forgets_attributes = false;        // asks for the attributes of a file each time
};

struct Preset {
    std::string_view name;
    std::string_view source;  // where the figures come from
    Model model;
};
const std::vector<Preset>& presets();

// What a TOML file may say, with commas in between.
std::string model_keys();

// The text of such a file. `name` stands in front of an error, which names the key that is wrong.
tl::expected<Model, std::string> parse_model(std::string_view text, const std::string& name);

// A preset's name, or a file.
tl::expected<Model, std::string> find_model(const std::string& preset_or_file);

// A server that does one thing after the other. May lie in memory that processes share, zeroed at first.
class ServerQueue {
  public:
    // When the work of a request that arrives now begins. Any thread.
    Nanoseconds begin(Nanoseconds now, Nanoseconds work);

  private:
    std::atomic<std::int64_t> free_ns_ = 0;  // when the server has done all that it was asked so far
};

// What all clients share.
struct SharedQueues {
    ServerQueue metadata;
    ServerQueue data;
    std::atomic<std::uint64_t> operations = 0;
};

// The servers as one client sees them. Each method says when the answer to a request of `now` reaches the
// client. Any thread.
class Servers {
  public:
    // `shared` must outlive it.
    Servers(const Model& model, SharedQueues& shared) : model_(model), shared_(shared) {}

    Nanoseconds metadata(Nanoseconds now);
    Nanoseconds data(Nanoseconds now, std::size_t bytes);

  private:
    Nanoseconds stall();

    const Model model_;
    SharedQueues& shared_;
    ServerQueue link_;  // of this client
};

}  // namespace copper::bench
