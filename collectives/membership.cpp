#include "collectives/membership.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>

namespace copper {
namespace {

constexpr std::size_t changes_told_max = news_told_max - 2;  // and two for news_for()

std::uint64_t weight_of(std::uint64_t hash, std::size_t office) {
    return XXH3_64bits_withSeed(&hash, sizeof(hash), office);
}

// Whose turn a stripe behind the first one is. In the first rounds, the office of the file tree is left out,
// until each of the others has had as much of the file as it has by the first stripe.
std::size_t office_in_turn(std::size_t of_file_tree, std::uint64_t start, std::uint32_t stripe,
                           std::size_t offices) {
    constexpr std::size_t rounds = first_stripe_extents / stripe_extents;
    const std::size_t turn = stripe - 1;
    const std::size_t others = offices - 1;
    return turn < rounds * others ? (of_file_tree + 1 + (start + turn) % others) % offices
                                  : (start + turn - rounds * others) % offices;
}

// Which office an object belongs to: the one with the highest weight.
class Claim {
  public:
    Claim(const ObjectKey& key, std::size_t offices) {
        const auto file_tree = file_tree_of(key);
        hash_ = XXH3_64bits(file_tree.data(), file_tree.size());
        if (const std::uint32_t stripe = stripe_of(key); stripe > 0) {
            std::size_t of_file_tree = 0;
            std::uint64_t highest = 0;
            for (std::size_t office = 0; office < offices; ++office) {
                if (const std::uint64_t of_office = weight_of(hash_, office); of_office > highest) {
                    highest = of_office;
                    of_file_tree = office;
                }
            }
            hash_ = XXH3_64bits(key.path.data(), key.path.size());
            in_turn_ = office_in_turn(of_file_tree, hash_ >> 32U, stripe, offices);
            hash_ += stripe;
        }
    }

    std::uint64_t weight(std::size_t office) const {
        return office == in_turn_ ? std::numeric_limits<std::uint64_t>::max() : weight_of(hash_, office);
    }

  private:
    std::uint64_t hash_ = 0;
    std::optional<std::size_t> in_turn_;
};

}  // namespace

Membership::Membership(Options options) : options_(options), members_(options.size) {
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
        alive_.push_back(Rank{rank});
    }
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(options_.readers, size()));
    const std::uint32_t trees = tree_count(size());
    for (std::uint32_t office = 0; office < count; ++office) {
        const auto tree = static_cast<std::uint32_t>(std::uint64_t{office} * trees / count);
        const bool has_own_tree = count <= trees;
        offices_.push_back({.seat = has_own_tree
                                        ? tree_root(size(), tree)
                                        : static_cast<std::uint32_t>(std::uint64_t{office} * size() / count),
                            .end = size(),
                            .tree = tree,
                            .holder = {}});
        if (office > 0) {
            offices_[office - 1].end = offices_[office].seat;
        }
    }
    for (Office& office : offices_) {
        fill(office);
    }
}

void Membership::fill(Office& office) const {
    office.holder.reset();
    for (std::uint32_t rank = office.seat; rank < office.end && !office.holder; ++rank) {
        if (members_[rank].state == NodeState::serving) {
            office.holder = Rank{rank};
        }
    }
}

std::vector<Rank> Membership::suspects() const {
    std::vector<Rank> ranks;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
        if (members_[rank].state == NodeState::suspect) {
            ranks.push_back(Rank{rank});
        }
    }
    return ranks;
}

Membership::Heard Membership::note(const News& news) {
    const Member& known = members_[news.rank.value];
    if (known.is_cut || std::tie(news.incarnation, news.state) <= std::tie(known.incarnation, known.state)) {
        return Heard::nothing_new;
    }
    if (news.rank == self()) {
        const std::uint32_t next = std::min(news.incarnation, incarnation_max - 1) + 1;
        change(self(), {.incarnation = next, .state = known.state});
        return Heard::denied;
    }
    change(news.rank, {.incarnation = news.incarnation, .state = news.state});
    return Heard::news;
}

void Membership::suspect(Rank rank) {
    note({.rank = rank, .incarnation = members_[rank.value].incarnation, .state = NodeState::suspect});
}

void Membership::cut(Rank rank) {
    const Member& known = members_[rank.value];
    if (!known.is_cut) {
        change(rank, {.incarnation = known.incarnation, .state = NodeState::dead, .is_cut = true});
    }
}

bool Membership::mend(Rank rank) {
    const Member& known = members_[rank.value];
    if (!known.is_cut) {
        return false;
    }
    change(rank, {.incarnation = known.incarnation});
    return true;
}

void Membership::change_own(NodeState state) {
    const std::uint32_t incarnation = members_[self().value].incarnation;
    change(self(), {.incarnation = std::min(incarnation, incarnation_max - 1) + 1, .state = state});
}

void Membership::change(Rank rank, Member member) {
    Member& known = members_[rank.value];
    const auto states = std::uint64_t{static_cast<std::uint8_t>(NodeState::dead)} + 1;
    epoch_ += (std::uint64_t{member.incarnation} - known.incarnation) * states +
              static_cast<std::uint64_t>(member.state) - static_cast<std::uint64_t>(known.state);
    const bool was_alive = is_alive(rank);
    known = member;
    if (was_alive && !is_alive(rank)) {
        std::erase(alive_, rank);
    } else if (!was_alive && is_alive(rank)) {
        alive_.insert(std::upper_bound(alive_.begin(), alive_.end(), rank), rank);
    }
    const auto office = std::find_if(offices_.begin(), offices_.end(),
                                     [rank](const Office& each) { return rank.value < each.end; });
    fill(*office);
    std::erase(changed_, rank);
    if (member.is_cut) {
        return;  // no news about the node: others may reach it
    }
    changed_.push_back(rank);
    if (changed_.size() > changes_told_max) {
        changed_.pop_front();
    }
}

void Membership::add_news(std::vector<News>& told, Rank rank) const {
    const Member& member = members_[rank.value];
    const bool is_told =
        std::any_of(told.begin(), told.end(), [&](const News& each) { return each.rank == rank; });
    if (!member.is_cut && !is_told) {
        told.push_back({.rank = rank, .incarnation = member.incarnation, .state = member.state});
    }
}

std::vector<News> Membership::news() const {
    std::vector<News> told;
    for (const Rank rank : changed_) {
        add_news(told, rank);
    }
    return told;
}

std::vector<News> Membership::news_for(Rank to) const {
    std::vector<News> told = news();
    add_news(told, to);
    add_news(told, self());
    return told;
}

std::vector<Rank> Membership::readers() const {
    std::vector<Rank> readers;
    for (const Office& office : offices_) {
        if (office.holder) {
            readers.push_back(*office.holder);
        }
    }
    return readers;
}

const Membership::Office& Membership::office_of(const ObjectKey& key) const {
    const Claim claim(key, offices_.size());
    const Office* chosen = nullptr;
    std::uint64_t highest = 0;
    for (std::size_t office = 0; office < offices_.size(); ++office) {
        const std::uint64_t of_office = claim.weight(office);
        const bool is_better = chosen == nullptr || of_office > highest;
        if (is_better && offices_[office].holder) {
            highest = of_office;
            chosen = &offices_[office];
        }
    }
    return chosen != nullptr ? *chosen : offices_.front();
}

Route Membership::route(const ObjectKey& key) const {
    const Office& office = office_of(key);
    const std::uint32_t trees = tree_count(size());
    std::uint32_t tree = office.tree;
    // Extents take the trees in turn, but not the reader's own: at its root, the reader would send to all
    // children. The first one goes with the small objects.
    const std::uint32_t turn = key.kind == ObjectKind::extent ? key.index : 0;
    if (turn > 0 && trees > 1) {
        tree = (tree + 1 + (turn - 1) % (trees - 1)) % trees;
    }
    // If all nodes have resigned or died, this node is as good as any.
    return {.reader = office.holder.value_or(self()), .tree = tree};
}

std::optional<Rank> Membership::next_reader(const ObjectKey& key, std::span<const Rank> tried) const {
    const Claim claim(key, offices_.size());
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t office = 0; office < offices_.size(); ++office) {
        order.emplace_back(claim.weight(office), office);
    }
    std::sort(order.rbegin(), order.rend());
    std::optional<Rank> resigned;
    for (const auto& [of_office, office] : order) {
        for (std::uint32_t rank = offices_[office].seat; rank < offices_[office].end; ++rank) {
            if (std::find(tried.begin(), tried.end(), Rank{rank}) != tried.end()) {
                continue;
            }
            if (members_[rank].state == NodeState::serving) {
                return Rank{rank};
            }
            if (members_[rank].state == NodeState::resigned && !resigned) {
                resigned = Rank{rank};
            }
        }
    }
    return resigned;
}

TreeShape Membership::shape(std::uint32_t tree) const {
    return {.size = size(), .arity = options_.arity, .first = tree_root(size(), tree)};
}

std::optional<Rank> Membership::parent_of(Rank rank, const Route& route) const {
    if (rank == route.reader) {
        return std::nullopt;
    }
    const TreeShape tree = shape(route.tree);
    for (auto above = tree_parent(tree, rank); above; above = tree_parent(tree, *above)) {
        if (is_alive(*above)) {
            return above;
        }
    }
    return route.reader;
}

std::optional<Rank> Membership::grandparent(const Route& route) const {
    const auto above = parent(route);
    return above ? parent_of(*above, route) : std::nullopt;
}

// Adds `rank` or, if it is not alive, the live nodes nearest below it.
void Membership::add_live(std::vector<Rank>& ranks, const TreeShape& tree, Rank rank, Rank reader) const {
    if (is_alive(rank)) {
        if (rank != reader && rank != self()) {
            ranks.push_back(rank);
        }
        return;
    }
    for (const Rank below : tree_children(tree, rank)) {
        add_live(ranks, tree, below, reader);
    }
}

std::vector<Rank> Membership::children(const Route& route) const {
    const TreeShape tree = shape(route.tree);
    std::vector<Rank> ranks;
    if (self() == route.reader) {
        add_live(ranks, tree, Rank{tree.first}, route.reader);
    }
    for (const Rank below : tree_children(tree, self())) {
        add_live(ranks, tree, below, route.reader);
    }
    return ranks;
}

std::vector<Rank> Membership::neighbours(const Route& route) const {
    std::vector<Rank> ranks = children(route);
    if (const auto above = parent(route)) {
        ranks.push_back(*above);
    }
    return ranks;
}

std::size_t Membership::depth(const Route& route) const {
    std::size_t hops = 0;
    for (auto above = parent(route); above && hops < size(); above = parent_of(*above, route)) {
        ++hops;
    }
    return hops;
}

}  // namespace copper
