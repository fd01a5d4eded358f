#include "bench/slow_filesystem/model.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>

#include "base/toml_text.hpp"

namespace copper::bench {
namespace {

using std::chrono::milliseconds;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr auto lustre_latency = std::chrono::microseconds(700);
constexpr double lustre_client_bandwidth = 2e9;
constexpr double lustre_total_bandwidth = 650e9;  // of Grand and Eagle at ALCF, each

Model lustre() {
    return {.metadata_latency = lustre_latency,
            .metadata_rate = 20'000,
            .data_latency = lustre_latency,
            .client_bandwidth = lustre_client_bandwidth,
            .total_bandwidth = lustre_total_bandwidth};
}

Model busy() {
    return {.metadata_latency = milliseconds(2),
            .metadata_rate = 2'000,
            .data_latency = milliseconds(2),
            .client_bandwidth = lustre_client_bandwidth};
}

Model leased() {
    constexpr auto latency = std::chrono::microseconds(1200);
    return {.metadata_latency = latency,
            .metadata_rate = 20'000,
            .data_latency = latency,
            .client_bandwidth = lustre_client_bandwidth,
            .opens_directories_itself = true};
}

Model serial() {
    Model model = leased();
    model.is_serial = true;
    return model;
}

Model stalling() {
    Model model = lustre();
    model.stall_share = 0.01;
    model.stall_time = std::chrono::seconds(1);
    return model;
}

struct Key {
    std::string_view name;
    double min;
    double max;
    std::function<void(Model&, double)> set;
};

Nanoseconds from_milliseconds(double value) {
    return std::chrono::duration_cast<Nanoseconds>(Milliseconds(value));
}

constexpr double longest_ms = 60'000;
constexpr double fastest = 1e15;
constexpr double largest_seed = 1e15;

const std::vector<Key>& keys() {
    static const std::vector<Key> all = {
        {"metadata_latency_ms", 0, longest_ms,
         [](Model& model, double value) { model.metadata_latency = from_milliseconds(value); }},
        {"metadata_operations_per_second", 0, fastest,
         [](Model& model, double value) { model.metadata_rate = value; }},
        {"data_latency_ms", 0, longest_ms,
         [](Model& model, double value) { model.data_latency = from_milliseconds(value); }},
        {"client_bytes_per_second", 0, fastest,
         [](Model& model, double value) { model.client_bandwidth = value; }},
        {"total_bytes_per_second", 0, fastest,
         [](Model& model, double value) { model.total_bandwidth = value; }},
        {"stall_share", 0, 1, [](Model& model, double value) { model.stall_share = value; }},
        {"stall_ms", 0, longest_ms,
         [](Model& model, double value) { model.stall_time = from_milliseconds(value); }},
        {"seed", 0, largest_seed,
         [](Model& model, double value) { model.seed = static_cast<std::uint64_t>(value); }},
        {"opens_directories_itself", 0, 1,
         [](Model& model, double value) { model.opens_directories_itself = value != 0; }},
        {"is_serial", 0, 1, [](Model& model, double value) { model.is_serial = value != 0; }},
        {"forgets_names", 0, 1, [](Model& model, double value) { model.forgets_names = value != 0; }},
        {"forgets_attributes", 0, 1,
         [](Model& model, double value) { model.forgets_attributes = value != 0; }},
    };
    return all;
}

Nanoseconds time_of(double amount, double per_second) {
    if (per_second <= 0) {
        return Nanoseconds(0);
    }
    // A rate of nearly nothing must not overflow.
    constexpr double longest_ns = 3600e9;
    return Nanoseconds(std::llround(std::min(amount / per_second * 1e9, longest_ns)));
}

// Spreads consecutive numbers over all values (SplitMix64, Steele et al., OOPSLA 2014).
std::uint64_t scatter(std::uint64_t number) {
    number += 0x9e3779b97f4a7c15;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
    return number ^ (number >> 31);
}

}  // namespace

const std::vector<Preset>& presets() {
    static const std::vector<Preset> all = {
        {"fast", "no waits: what the emulation itself costs", {}},
        {"lustre",
         "a stat of one process takes 0.7 ms: 11 minutes for a million (Xfast, SC'23, "
         "https://sc23.supercomputing.org/proceedings/tech_paper/tech_paper_pages/pap400.html); the rates "
         "are "
         "assumptions",
         lustre()},
        {"busy", "the same filesystem while other jobs load it: assumed", busy()},
        {"stalling", "lustre, and 1% of all operations take 1 s longer: assumed", stalling()},
        {"leased", "its client opens directories without asking a server, as sshfs does: assumed", leased()},
        {"serial",
         "the same, and it looks up one name at a time in a directory, as clients with libfuse before 3.16 "
         "do",
         serial()},
    };
    return all;
}

std::string model_keys() {
    std::string names;
    for (const Key& key : keys()) {
        names += (names.empty() ? "" : ", ") + std::string(key.name);
    }
    return names;
}

tl::expected<Model, std::string> parse_model(std::string_view text, const std::string& name) {
    const auto table = parse_toml(text, name);
    if (!table) {
        return tl::make_unexpected(table.error());
    }
    Model model;
    for (const auto& [found, node] : *table) {
        const std::string_view wanted = found.str();
        const std::string source = name + ": key \"" + std::string(wanted) + "\": ";
        const auto key =
            std::find_if(keys().begin(), keys().end(), [&](const Key& one) { return one.name == wanted; });
        if (key == keys().end()) {
            return tl::make_unexpected(source + "no such key; there are " + model_keys());
        }
        const auto value = node.is_number() ? node.value<double>() : std::nullopt;
        // The comparison is false for "nan" too.
        if (!value || !(*value >= key->min && *value <= key->max)) {
            std::ostringstream message;
            message << source << "must be a number from " << key->min << " to " << key->max << ", not ";
            node.visit([&message](const auto& one) { message << one; });
            return tl::make_unexpected(message.str());
        }
        key->set(model, *value);
    }
    return model;
}

tl::expected<Model, std::string> find_model(const std::string& preset_or_file) {
    std::string names;
    for (const Preset& preset : presets()) {
        if (preset.name == preset_or_file) {
            return preset.model;
        }
        names += (names.empty() ? "" : ", ") + std::string(preset.name);
    }
    const auto text = read_text_file(preset_or_file);
    if (!text) {
        return tl::make_unexpected("model " + text.error() + "; the presets are " + names);
    }
    return parse_model(*text, preset_or_file);
}

Nanoseconds ServerQueue::begin(Nanoseconds now, Nanoseconds work) {
    std::int64_t free = free_ns_.load();
    std::int64_t start = 0;
    do {
        start = std::max(free, std::int64_t{now.count()});
    } while (!free_ns_.compare_exchange_weak(free, start + work.count()));
    return Nanoseconds(start);
}

Nanoseconds Servers::stall() {
    const std::uint64_t number = scatter(model_.seed ^ scatter(shared_.operations++));
    constexpr double numbers = 18446744073709551616.0;  // 2^64
    return static_cast<double>(number) / numbers < model_.stall_share ? model_.stall_time : Nanoseconds(0);
}

Nanoseconds Servers::metadata(Nanoseconds now) {
    const auto start = shared_.metadata.begin(now, time_of(1, model_.metadata_rate));
    return start + model_.metadata_latency + stall();
}

Nanoseconds Servers::data(Nanoseconds now, std::size_t bytes) {
    const auto amount = static_cast<double>(bytes);
    const Nanoseconds to_client = time_of(amount, model_.client_bandwidth);
    const Nanoseconds to_all = time_of(amount, model_.total_bandwidth);
    const Nanoseconds arrived =
        std::max(link_.begin(now, to_client) + to_client, shared_.data.begin(now, to_all) + to_all);
    return arrived + model_.data_latency + stall();
}

}  // namespace copper::bench
