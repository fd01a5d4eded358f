#include "cache/backing/directory_names.hpp"

#include <algorithm>

#include "base/checksum.hpp"

namespace copper {

void DirectoryNames::add(std::string_view name, std::uint64_t inode, std::uint32_t type) {
    slots_.push_back({.inode = inode,
                      .type = type,
                      .text_offset = static_cast<std::uint32_t>(text_.size()),
                      .text_bytes = static_cast<std::uint8_t>(name.size())});
    text_.append(name);
}

void DirectoryNames::sort_and_drop_repeats() {
    std::sort(slots_.begin(), slots_.end(),
              [this](const Slot& a, const Slot& b) { return text_of(a) < text_of(b); });
    slots_.erase(std::unique(slots_.begin(), slots_.end(),
                             [this](const Slot& a, const Slot& b) { return text_of(a) == text_of(b); }),
                 slots_.end());
}

std::optional<std::size_t> DirectoryNames::find(std::string_view name) const {
    const auto slot = std::lower_bound(slots_.begin(), slots_.end(), name,
                                       [this](const Slot& s, std::string_view n) { return text_of(s) < n; });
    if (slot == slots_.end() || text_of(*slot) != name) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(slot - slots_.begin());
}

void DirectoryNames::erase(const std::vector<std::size_t>& indexes) {
    auto next = indexes.begin();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (next != indexes.end() && *next == i) {
            ++next;
        } else {
            slots_[kept++] = slots_[i];
        }
    }
    slots_.resize(kept);
}

Directory DirectoryNames::directory() const {
    Directory directory;
    directory.entries = size();
    RunningChecksum version;
    for (std::size_t i = 0; i < size(); ++i) {
        const std::string_view name = text(i);
        if (i % piece_entries == 0) {
            directory.first_names.emplace_back(name);
        }
        // The length comes in front of the name, so that different lists of names never hash the same text.
        const std::uint64_t type_and_length = (std::uint64_t{slots_[i].type} << 32U) | name.size();
        version.add(std::as_bytes(std::span(&type_and_length, 1)));
        version.add(std::as_bytes(std::span(name)));
    }
    directory.version = std::max<std::uint64_t>(version.value(), 1);
    if (directory.first_names.size() == 1) {
        directory.names = piece(0);
    }
    return directory;
}

Listing DirectoryNames::piece(std::uint32_t number) const {
    std::vector<Listing::NewEntry> entries;
    const std::size_t first = std::size_t{number} * piece_entries;
    for (std::size_t i = first; i < std::min(first + piece_entries, size()); ++i) {
        entries.push_back({.name = std::string(text(i)),
                           .target = {},
                           .attributes = {.inode = slots_[i].inode, .mode = slots_[i].type}});
    }
    return Listing(std::move(entries), Listing::Detail::names_only);
}

}  // namespace copper
