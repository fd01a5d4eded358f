#include "collectives/membership.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace copper {
namespace {

constexpr std::uint64_t candidates_salt = 0x7265616465727321;

std::uint64_t weight(std::uint64_t candidate, std::uint64_t what) {
    return XXH3_64bits_withSeed(&what, sizeof(what), candidate);
}

}  // namespace

Membership::Membership(Options options)
    : options_(options), holders_(std::min<std::size_t>(options.readers, options.size)) {
    for (std::uint32_t rank = 0; rank < options_.size; ++rank) {
        alive_.push_back(Rank{rank});
    }
    candidates_ = alive_;
    std::sort(candidates_.begin(), candidates_.end(), [](Rank a, Rank b) {
        return weight(a.value, candidates_salt) > weight(b.value, candidates_salt);
    });
    elect_readers();
}

bool Membership::is_alive(Rank rank) const {
    return std::binary_search(alive_.begin(), alive_.end(), rank);
}

void Membership::lose(const LostNode& node) {
    if (std::erase(alive_, node.rank) != 0) {
        lost_.push_back(node);
        elect_readers();
    } else if (!node.silent_since) {
        for (LostNode& lost : lost_) {
            if (lost.rank == node.rank) {
                lost.silent_since.reset();
            }
        }
    }
}

std::vector<Rank> Membership::suspects() const {
    std::vector<Rank> ranks;
    for (const LostNode& lost : lost_) {
        if (lost.silent_since) {
            ranks.push_back(lost.rank);
        }
    }
    return ranks;
}

void Membership::regain(Rank rank) {
    const auto is_it = [rank](const LostNode& lost) { return lost.rank == rank && lost.silent_since; };
    if (std::erase_if(lost_, is_it) != 0) {
        alive_.insert(std::upper_bound(alive_.begin(), alive_.end(), rank), rank);
        elect_readers();
    }
}

void Membership::elect_readers() {
    readers_.clear();
    for (std::size_t office = 0; office < holders_.size(); ++office) {
        std::optional<Rank>& holder = holders_[office];
        holder.reset();
        for (std::size_t i = office; i < candidates_.size() && !holder; i += holders_.size()) {
            if (is_alive(candidates_[i])) {
                holder = candidates_[i];
                readers_.push_back(candidates_[i]);
            }
        }
    }
    std::sort(readers_.begin(), readers_.end());
}

Rank Membership::reader_of(std::string_view file_tree) const {
    const std::uint64_t what = XXH3_64bits(file_tree.data(), file_tree.size());
    std::uint64_t highest = 0;
    std::optional<Rank> reader;
    for (std::size_t office = 0; office < holders_.size(); ++office) {
        const std::uint64_t of_office = weight(office, what);
        if (holders_[office] && (!reader || of_office > highest)) {
            highest = of_office;
            reader = holders_[office];
        }
    }
    return reader.value();  // one office at least is held: by this node, if by no other
}

Rank Membership::keeper_of(std::uint64_t hash) const {
    const Rank first{static_cast<std::uint32_t>(hash % options_.size)};
    const auto next = std::lower_bound(alive_.begin(), alive_.end(), first);
    return next != alive_.end() ? *next : alive_.front();
}

std::size_t Membership::index_of(Rank rank) const {
    return static_cast<std::size_t>(std::lower_bound(alive_.begin(), alive_.end(), rank) - alive_.begin());
}

TreeShape Membership::shape_of(Rank root, std::size_t turn) const {
    return {.size = alive_.size(), .arity = options_.arity, .root = index_of(root), .turn = turn};
}

std::optional<Rank> Membership::parent(Rank root, std::size_t turn) const {
    const auto index = tree_parent(shape_of(root, turn), index_of(options_.self));
    return index ? std::optional(alive_[*index]) : std::nullopt;
}

std::vector<Rank> Membership::children(Rank root, std::size_t turn) const {
    std::vector<Rank> ranks;
    for (const std::size_t index : tree_children(shape_of(root, turn), index_of(options_.self))) {
        ranks.push_back(alive_[index]);
    }
    return ranks;
}

}  // namespace copper
