#include "fuse/hot_paths.hpp"

#include <algorithm>

namespace copper {
namespace {

using Entry = std::pair<std::string, HotPaths::Counts>;

bool is_hotter(const Entry& a, const Entry& b) {
    return a.second.requests != b.second.requests ? a.second.requests > b.second.requests : a.first < b.first;
}

}  // namespace

void HotPaths::count(std::string_view path, Counts more) {
    auto table = table_.lock();
    auto at = table->find(path);
    if (at == table->end()) {
        if (table->size() >= 2 * kept_min) {
            std::vector<Entry> entries(table->begin(), table->end());
            std::nth_element(entries.begin(), entries.begin() + kept_min, entries.end(), is_hotter);
            *table = Table(entries.begin(), entries.begin() + kept_min);
        }
        at = table->emplace(path, Counts{.requests = 0}).first;
    }
    at->second.requests += more.requests;
    at->second.absent += more.absent;
    at->second.bytes_read += more.bytes_read;
}

std::vector<Entry> HotPaths::top(std::size_t paths_max) {
    std::vector<Entry> entries;
    {
        auto table = table_.lock();
        entries.assign(table->begin(), table->end());
    }
    std::sort(entries.begin(), entries.end(), is_hotter);
    entries.resize(std::min(entries.size(), paths_max));
    return entries;
}

}  // namespace copper
