#include "collectives/membership.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace copper {
namespace {

// How long it is told that a node has returned: for suspicions of it to have died out.
constexpr std::chrono::seconds returned_told_for{60};
constexpr std::size_t returns_remembered_max = 1024;
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
        ++epoch_;
        std::erase_if(returned_, [&](const Return& returned) { return returned.rank == node.rank; });
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

void Membership::regain(Rank rank, TimePoint heard) {
    const auto is_it = [rank](const LostNode& lost) { return lost.rank == rank && lost.silent_since; };
    if (std::erase_if(lost_, is_it) != 0) {
        alive_.insert(std::upper_bound(alive_.begin(), alive_.end(), rank), rank);
        ++epoch_;
        if (returned_.size() == returns_remembered_max) {
            returned_.erase(returned_.begin());
        }
        returned_.push_back({.rank = rank, .heard = heard, .epoch = epoch_});
        elect_readers();
    }
}

std::optional<Membership::Return> Membership::return_of(Rank rank) const {
    const auto found = std::find_if(returned_.begin(), returned_.end(),
                                    [rank](const Return& returned) { return returned.rank == rank; });
    return found != returned_.end() ? std::optional(*found) : std::nullopt;
}

View Membership::view(TimePoint now) const {
    const auto ago = [now](TimePoint then) {
        return std::chrono::ceil<std::chrono::milliseconds>(now - then);
    };
    View view{.epoch = std::min(epoch_, epoch_max)};
    for (auto node = lost_.rbegin(); node != lost_.rend() && view.suspects.size() < suspects_told_max;
         ++node) {
        if (node->silent_since) {
            view.suspects.push_back({.rank = node->rank, .ago = ago(*node->silent_since)});
        }
    }
    for (auto node = returned_.rbegin(); node != returned_.rend() && view.returned.size() < returned_told_max;
         ++node) {
        if (now - node->heard < returned_told_for) {
            view.returned.push_back({.rank = node->rank, .ago = ago(node->heard)});
        }
    }
    return view;
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

std::vector<Rank> Membership::readers_of(std::string_view file_tree, std::size_t count) const {
    const std::uint64_t what = XXH3_64bits(file_tree.data(), file_tree.size());
    std::vector<std::pair<std::uint64_t, std::size_t>> offices;
    for (std::size_t office = 0; office < holders_.size(); ++office) {
        offices.emplace_back(weight(office, what), office);
    }
    // By weight, and the first of equal ones first, as reader_of() chooses.
    std::sort(offices.begin(), offices.end(),
              [](auto a, auto b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    std::vector<Rank> readers;
    for (const auto& [of_office, office] : offices) {
        for (std::size_t i = office; i < candidates_.size() && readers.size() < count; i += offices.size()) {
            if (is_alive(candidates_[i])) {
                readers.push_back(candidates_[i]);
            }
        }
    }
    return readers;
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

std::optional<Rank> Membership::parent_of(Rank node, Rank root, std::size_t turn) const {
    const auto index = tree_parent(shape_of(root, turn), index_of(node));
    return index ? std::optional(alive_[*index]) : std::nullopt;
}

std::optional<Rank> Membership::parent(Rank root, std::size_t turn) const {
    return parent_of(options_.self, root, turn);
}

std::optional<Rank> Membership::grandparent(Rank root, std::size_t turn) const {
    const auto above = parent(root, turn);
    return above ? parent_of(*above, root, turn) : std::nullopt;
}

std::size_t Membership::depth(Rank root, std::size_t turn) const {
    return tree_depth(shape_of(root, turn), index_of(options_.self));
}

std::vector<Rank> Membership::children(Rank root, std::size_t turn) const {
    std::vector<Rank> ranks;
    for (const std::size_t index : tree_children(shape_of(root, turn), index_of(options_.self))) {
        ranks.push_back(alive_[index]);
    }
    return ranks;
}

}  // namespace copper
