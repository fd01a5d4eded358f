#include "fabric/message_order.hpp"

#include <algorithm>

namespace copper {

bool MessageOrder::add(Rank from, std::uint64_t tag, Message message, TimePoint now, const Take& take) {
    Peer& peer = peers_[from.value];
    const std::uint64_t ahead = (tag - peer.next) % message_tags;
    const std::uint64_t number = peer.next + ahead;
    if (ahead >= early_messages_max ||
        !sealer_.is_sealed({.from = from, .to = self_, .number = number}, message)) {
        return false;
    }
    if (ahead != 0) {
        peer.early.try_emplace(number, Early{{message.begin(), message.end()}, now});
        with_early_.insert(from);
        return true;
    }
    take(message);
    ++peer.next;
    for (auto early = peer.early.find(peer.next); early != peer.early.end();
         early = peer.early.find(peer.next)) {
        take(early->second.message);
        peer.early.erase(early);
        ++peer.next;
    }
    if (peer.early.empty()) {
        with_early_.erase(from);
    }
    return true;
}

std::vector<Rank> MessageOrder::waiting_since(TimePoint then) const {
    std::vector<Rank> ranks;
    std::copy_if(with_early_.begin(), with_early_.end(), std::back_inserter(ranks), [&](Rank rank) {
        const auto& early = peers_[rank.value].early;
        return std::any_of(early.begin(), early.end(),
                           [then](const auto& entry) { return entry.second.since < then; });
    });
    return ranks;
}

void MessageOrder::forget(Rank rank) {
    peers_[rank.value].early.clear();
    with_early_.erase(rank);
}

}  // namespace copper
