#include "collectives/mover.hpp"

#include <algorithm>
#include <utility>

namespace copper {
namespace {

bool contains(const std::vector<Rank>& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Both sides of a link must agree on an object's lane; an object never takes more bytes on the wire than in
// memory.
Lane lane_of(const Object& object) {
    return object.bytes() > eager_body_bytes_max ? Lane::bulk : Lane::eager;
}

// The extents of a large file are a stream; its first one is taken for a small file.
std::size_t turn_of(const ObjectKey& key) {
    return key.kind == ObjectKind::extent ? key.index : 0;
}

bool is_of_stream(const ObjectKey& key) {
    return turn_of(key) > 0;
}

// This node's own trouble, not what the backing filesystem says of the object.
bool is_lack_of_resources(const std::error_code& error) {
    return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
           error == std::errc::not_enough_memory;
}

}  // namespace

Mover::Mover(Options options, const Trees& trees, Membership& membership, Effects& effects)
    : options_(options),
      trees_(trees),
      membership_(membership),
      effects_(effects),
      sharing_({.nodes = membership.size()}),
      received_(membership.size(), Seen{}) {}

void Mover::want(const ObjectKey& key, TimePoint now) {
    now_ = now;
    if (effects_.find(key) != nullptr) {
        return;  // it arrived between the miss and this call, and woke its waiters then
    }
    const auto [entry, is_new] = pending_.try_emplace(key);
    Pending& pending = entry->second;
    if (pending.local) {
        return;
    }
    pending.local = true;
    pending.deadline = now + options_.deadline;
    note_use(key, membership_.self());
    if (is_new) {
        pending.origin = membership_.self();
        fetch(key, pending);
    }
    schedule(key, pending, now + options_.deadline / 2);
}

void Mover::receive(Rank from, const Interest& interest, TimePoint now) {
    now_ = now;
    const ObjectKey& key = interest.key;
    if (!is_shared(key) || interest.hops > options_.hops_max) {
        ++counters_.interests_refused;
        return;
    }
    const bool at_hand = interest.scope == Interest::Scope::at_hand;
    if (!at_hand && interest.attempt == 0 && is_in_flight(key, from, interest.seen)) {
        return;
    }
    if (!at_hand) {
        note_use(key, interest.origin);
    }
    if (ObjectPtr object = effects_.find(key)) {
        answer({.key = key, .root = membership_.self(), .object = std::move(object)}, {from});
        return;
    }
    if (at_hand) {
        effects_.send({&from, 1}, Decline{.key = key, .reason = Decline::Reason::not_at_hand});
        return;
    }
    if (interest.wanted != Interest::Wanted::by_several && !pending_.contains(key) && is_unshared(key)) {
        effects_.send({&from, 1}, Decline{.key = key, .reason = Decline::Reason::unshared});
        return;
    }
    if (pending_.size() >= options_.pending_max && !pending_.contains(key)) {
        ++counters_.interests_refused;
        return;
    }
    const auto [entry, is_new] = pending_.try_emplace(key);
    Pending& pending = entry->second;
    if (!contains(pending.askers, from)) {
        pending.askers.push_back(from);
    }
    if (!is_new) {
        ++counters_.interests_merged;
        return;
    }
    pending.origin = interest.origin;
    pending.wanted = interest.wanted;
    pending.hops = interest.hops + 1;
    pending.deadline = now + options_.deadline;
    fetch(key, pending);
    schedule(key, pending, now + options_.deadline / 2);
}

void Mover::fetch(const ObjectKey& key, Pending& pending) {
    if (!is_shared(key)) {
        read(key, pending, Reading::directly);
        return;
    }
    const Rank reader = membership_.reader_of(file_tree_of(key));
    if (const auto parent = membership_.parent(reader, turn_of(key))) {
        ask(*parent, key, pending, Interest::Scope::anywhere);
        return;
    }
    const Rank keeper = membership_.keeper_of(hash_of(key));
    if (keeper != membership_.self() && pending.attempt == 0 && was_published(key)) {
        ask(keeper, key, pending, Interest::Scope::at_hand);
    } else {
        read(key, pending, Reading::to_publish);
    }
}

void Mover::ask(Rank whom, const ObjectKey& key, Pending& pending, Interest::Scope scope) {
    if (damaged_.erase(key) != 0) {
        ++pending.attempt;
    }
    pending.asked = whom;
    ++counters_.interests_sent;
    effects_.send({&whom, 1}, Interest{.key = key,
                                       .seen = received_[whom.value],
                                       .attempt = pending.attempt,
                                       .hops = pending.hops,
                                       .suspects = suspects_to_tell(),
                                       .scope = scope,
                                       .origin = pending.origin,
                                       .wanted = pending.wanted});
}

void Mover::receive(Rank from, const Decline& decline, TimePoint now) {
    now_ = now;
    const ObjectKey& key = decline.key;
    const auto entry = pending_.find(key);
    if (entry == pending_.end() || entry->second.asked != from) {
        return;
    }
    Pending& pending = entry->second;
    const std::size_t wanting = pending.askers.size() + (pending.local ? 1 : 0);
    if (decline.reason == Decline::Reason::not_at_hand) {
        ++pending.attempt;
        fetch(key, pending);
    } else if (wanting > 1) {
        pending.wanted = Interest::Wanted::by_several;
        fetch(key, pending);
    } else if (pending.local) {
        ++counters_.unshared_reads;
        read(key, pending, Reading::directly);
    } else {
        effects_.send(settle(key), decline);
    }
}

Suspects Mover::suspects_to_tell() const {
    Suspects suspects;
    const auto& lost = membership_.lost();
    for (auto node = lost.rbegin(); node != lost.rend() && suspects.size() < suspects_told_max; ++node) {
        if (node->silent_since) {
            const auto silence = std::chrono::ceil<std::chrono::milliseconds>(now_ - *node->silent_since);
            suspects.push_back({.rank = node->rank, .silence = silence});
        }
    }
    return suspects;
}

void Mover::read(const ObjectKey& key, Pending& pending, Reading reading) {
    pending.reading = reading;
    pending.asked.reset();
    effects_.read(key);
}

void Mover::read_directly(const ObjectKey& key, Pending& pending) {
    ++counters_.direct_reads;
    read(key, pending, Reading::directly);
}

void Mover::receive(Rank from, const Publication& publication, TimePoint now) {
    now_ = now;
    const ObjectKey& key = publication.key;
    std::uint64_t& seen = received_[from.value][static_cast<std::size_t>(publication.lane)];
    seen = std::max(seen, publication.sequence);

    const bool held = effects_.find(key) != nullptr;
    if (held) {
        ++counters_.duplicates;
    }
    if (publication.spread == Publication::Spread::asked && was_published(key)) {
        counters_.got_back += pending_.contains(key) ? 1 : 0;
    }
    std::vector<Rank> askers = settle(key);
    std::erase(askers, from);  // whatever it asked, it has it now
    // Forward first, use then: the nodes below wait too.
    if (publication.spread == Publication::Spread::everyone && !is_repeat(publication)) {
        broadcast(publication, from, askers);
    } else {
        answer(publication, askers);
    }
    if (!held) {
        deliver(key, publication.object);
    }
}

void Mover::deliver(const ObjectKey& key, const ObjectPtr& object) {
    const bool keeps = membership_.size() > 1 && is_shared(key) && !object->lifetime &&
                       membership_.keeper_of(hash_of(key)) == membership_.self();
    effects_.deliver(key, object, keeps ? Retention::for_job : Retention::ordinary);
}

void Mover::read_done(const ObjectKey& key, const ObjectPtr& object, TimePoint now) {
    now_ = now;
    const auto entry = pending_.find(key);
    const bool to_publish = entry != pending_.end() && entry->second.reading == Reading::to_publish;
    const std::vector<Rank> askers = settle(key);
    if (is_lack_of_resources(object->error())) {
        // Kept nowhere. Who asked asks again, and reads directly if it does not get better.
        deliver(key, make_object(object->error(), std::chrono::milliseconds(0)));
        return;
    }
    Publication publication{.key = key, .root = membership_.self(), .object = object};
    // What was published before was evicted or has expired, here and at its keeper: others may not want it
    // any more.
    if (to_publish && !was_published(key) && is_to_push(key)) {
        publication.serial = next_serial_++;
        broadcast(publication, std::nullopt, askers);
    } else {
        answer(publication, askers);
    }
    // A broadcast may have overtaken a direct read: the first version stays.
    if (effects_.find(key) == nullptr) {
        deliver(key, object);
    }
}

void Mover::corrupt(const ObjectKey& key) {
    ++counters_.corrupt;
    const auto entry = pending_.find(key);
    if (entry != pending_.end() && entry->second.local && entry->second.reading == Reading::no) {
        read_directly(key, entry->second);
    } else if (entry == pending_.end()) {
        if (damaged_.size() >= options_.damaged_remembered_max) {
            damaged_.clear();
        }
        damaged_.insert(key);
    }
}

void Mover::peers_lost(std::span<const LostNode> nodes, TimePoint now) {
    now_ = now;
    for (const LostNode& node : nodes) {
        counters_.peer_lost += membership_.is_alive(node.rank) ? 1 : 0;
        membership_.lose(node);
        if (!node.silent_since) {  // a suspect may still wait for its answers
            for (auto& [key, pending] : pending_) {
                std::erase(pending.askers, node.rank);
            }
        }
    }
    ask_again();
}

void Mover::peer_regained(Rank rank, TimePoint now) {
    now_ = now;
    membership_.regain(rank);
    ask_again();
}

// Also what was asked of nodes that are still there: they may wait for the lost one, by a tree of a view that
// is out of date, or for this very node, by one that is not.
void Mover::ask_again() {
    for (auto& [key, pending] : pending_) {
        if (pending.asked) {
            ++counters_.retries;
            ++pending.attempt;
            fetch(key, pending);
            schedule(key, pending, std::min(now_ + options_.deadline / 2, pending.deadline));
        }
    }
}

void Mover::tick(TimePoint now) {
    now_ = now;
    while (!timers_.empty() && timers_.begin()->first <= now) {
        const ObjectKey key = timers_.begin()->second;
        timers_.erase(timers_.begin());
        on_timer(key, now);
    }
}

void Mover::on_timer(const ObjectKey& key, TimePoint now) {
    Pending& pending = pending_.at(key);
    if (pending.reading != Reading::no) {
        return;  // ends when the backing filesystem answers
    }
    if (now < pending.deadline) {
        ++counters_.retries;
        ++pending.attempt;
        fetch(key, pending);
        schedule(key, pending, pending.deadline);
    } else if (pending.local) {
        ++counters_.deadline;
        read_directly(key, pending);
    } else {
        settle(key);  // those who asked have deadlines of their own
    }
}

std::optional<TimePoint> Mover::next_deadline() const {
    return timers_.empty() ? std::nullopt : std::optional(timers_.begin()->first);
}

std::set<Rank> Mover::awaited() const {
    std::set<Rank> ranks;
    for (const auto& [key, pending] : pending_) {
        if (pending.asked) {
            ranks.insert(*pending.asked);
        }
    }
    return ranks;
}

void Mover::schedule(const ObjectKey& key, Pending& pending, TimePoint due) {
    timers_.erase({pending.due, key});
    pending.due = due;
    timers_.emplace(due, key);
}

std::vector<Rank> Mover::settle(const ObjectKey& key) {
    const auto entry = pending_.find(key);
    if (entry == pending_.end()) {
        return {};
    }
    std::vector<Rank> askers = std::move(entry->second.askers);
    timers_.erase({entry->second.due, key});
    pending_.erase(entry);
    return askers;
}

void Mover::broadcast(Publication publication, std::optional<Rank> from, const std::vector<Rank>& askers) {
    std::vector<Rank> below;
    if (membership_.is_alive(publication.root)) {
        below = membership_.children(publication.root, turn_of(publication.key));
    }
    if (from) {
        std::erase(below, *from);
    }
    below = without_congested(std::move(below), askers);
    std::vector<Rank> others = askers;
    std::erase_if(others, [&below](Rank rank) { return contains(below, rank); });

    if (broadcasts_.size() >= options_.broadcasts_remembered_max) {
        broadcasts_.clear();  // forgetting costs a repeated message here and there, nothing else
    }
    const Lane lane = lane_of(*publication.object);
    broadcasts_[publication.key] = {.root = publication.root,
                                    .lasts = !publication.object->lifetime,
                                    .serial = publication.serial,
                                    .lane = lane,
                                    .sequence = send(publication, below),
                                    .to = below};
    answer(std::move(publication), others);
}

// Who asks has made room for it.
std::vector<Rank> Mover::without_congested(std::vector<Rank> ranks, const std::vector<Rank>& askers) {
    counters_.passed_over += std::erase_if(ranks, [&](Rank rank) {
        return !contains(askers, rank) && effects_.backlog_bytes(rank) > options_.backlog_bytes_max;
    });
    return ranks;
}

void Mover::answer(Publication publication, const std::vector<Rank>& to) {
    publication.spread = Publication::Spread::asked;
    send(publication, to);
}

std::uint64_t Mover::send(Publication& publication, const std::vector<Rank>& to) {
    publication.lane = lane_of(*publication.object);
    std::uint64_t& sequence = sent_[static_cast<std::size_t>(publication.lane)];
    if (!to.empty()) {
        publication.sequence = ++sequence;
        publication.suspects = suspects_to_tell();
        counters_.publications_sent += to.size();
        effects_.send(to, publication);
    }
    return sequence;
}

bool Mover::is_shared(const ObjectKey& key) const {
    return key.kind <= last_shared_object_kind && trees_.contains(key.path);
}

bool Mover::is_to_push(const ObjectKey& key) const {
    if (options_.push == Push::automatic && is_of_stream(key)) {
        return sharing_.verdict(file_tree_of(key), key.path) == Sharing::Verdict::shared;
    }
    return options_.push != Push::never;
}

void Mover::note_use(const ObjectKey& key, Rank origin) {
    if (options_.push == Push::automatic && is_of_stream(key) &&
        membership_.reader_of(file_tree_of(key)) == membership_.self()) {
        sharing_.note(file_tree_of(key), key.path, origin);
    }
}

bool Mover::is_unshared(const ObjectKey& key) const {
    return options_.push == Push::automatic && is_of_stream(key) &&
           membership_.reader_of(file_tree_of(key)) == membership_.self() &&
           sharing_.verdict(file_tree_of(key), key.path) == Sharing::Verdict::own;
}

bool Mover::was_published(const ObjectKey& key) const {
    const auto last = broadcasts_.find(key);
    return last != broadcasts_.end() && last->second.root == membership_.self() && last->second.lasts;
}

bool Mover::is_repeat(const Publication& publication) const {
    const auto last = broadcasts_.find(publication.key);
    return last != broadcasts_.end() && last->second.root == publication.root &&
           last->second.serial >= publication.serial;
}

bool Mover::is_in_flight(const ObjectKey& key, Rank to, const Seen& seen) const {
    const auto last = broadcasts_.find(key);
    return last != broadcasts_.end() && contains(last->second.to, to) &&
           last->second.sequence > seen[static_cast<std::size_t>(last->second.lane)];
}

}  // namespace copper
