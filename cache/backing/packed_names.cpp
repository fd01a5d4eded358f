#include "cache/backing/packed_names.hpp"

#include <lz4.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace copper {
namespace {

constexpr unsigned bits = 7;  // of a number in a byte; the highest bit says that more follow
constexpr std::uint64_t more = 1U << bits;

void add_number(std::string& text, std::uint64_t number) {
    for (; number >= more; number >>= bits) {
        text.push_back(static_cast<char>(number % more + more));
    }
    text.push_back(static_cast<char>(number));
}

std::uint64_t take_number(std::string_view& text) {
    std::uint64_t number = 0;
    for (unsigned shift = 0;; shift += bits) {
        const auto byte = static_cast<unsigned char>(text.front());
        text.remove_prefix(1);
        number |= (byte % more) << shift;
        if (byte < more) {
            return number;
        }
    }
}

// Small for small steps up and down.
std::uint64_t step_between(std::uint64_t from, std::uint64_t to) {
    const std::uint64_t step = to - from;
    return (step << 1U) ^ (step >> 63U != 0 ? ~std::uint64_t{0} : 0);
}

std::uint64_t after_step(std::uint64_t from, std::uint64_t step) {
    return from + ((step >> 1U) ^ (step % 2 != 0 ? ~std::uint64_t{0} : 0));
}

}  // namespace

// All numbers come first, then all names, which LZ4 shrinks: they are sorted, so each begins as the one
// before it does.
PackedNames::PackedNames(const Listing& names) : count_(names.size()) {
    std::string plain;
    std::string text;
    std::uint64_t last_inode = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        const Listing::Entry entry = names.at(i);
        add_number(plain, entry.name.size());
        add_number(plain, entry.attributes.mode);
        add_number(plain, step_between(last_inode, entry.attributes.inode));
        last_inode = entry.attributes.inode;
        text.append(entry.name);
    }
    plain.append(text);
    plain_bytes_ = plain.size();
    std::string packed(plain.size(), '\0');
    const int bytes = LZ4_compress_default(plain.data(), packed.data(), static_cast<int>(plain.size()),
                                           static_cast<int>(packed.size()));
    if (bytes > 0 && static_cast<std::size_t>(bytes) < plain.size()) {
        packed_.assign(packed, 0, static_cast<std::size_t>(bytes));
    } else {
        packed_ = std::move(plain);
        packed_.shrink_to_fit();
    }
}

Listing PackedNames::names() const {
    std::string plain;
    std::string_view rest = packed_;
    if (packed_.size() != plain_bytes_) {
        plain.resize(plain_bytes_);
        LZ4_decompress_safe(packed_.data(), plain.data(), static_cast<int>(packed_.size()),
                            static_cast<int>(plain.size()));
        rest = plain;
    }
    std::vector<std::size_t> sizes;
    std::vector<Listing::NewEntry> entries(count_);
    std::uint64_t inode = 0;
    for (auto& entry : entries) {
        sizes.push_back(take_number(rest));
        entry.attributes.mode = static_cast<std::uint32_t>(take_number(rest));
        inode = after_step(inode, take_number(rest));
        entry.attributes.inode = inode;
    }
    for (std::size_t i = 0; i < count_; ++i) {
        entries[i].name = rest.substr(0, sizes[i]);
        rest.remove_prefix(sizes[i]);
    }
    return Listing(std::move(entries), Listing::Detail::names_only);
}

std::size_t PackedNames::bytes() const {
    return sizeof(*this) + allocated_bytes(packed_.capacity() + 1);
}

}  // namespace copper
