#include "collectives/spreading.hpp"

#include <algorithm>
#include <utility>

namespace copper {
namespace {

bool contains(const std::vector<Rank>& all, Rank one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

// Both sides of a link must agree on an object's lane. On the wire, an object never takes more bytes than in
// memory.
Lane lane_of(const Object& object) {
    return object.bytes() > eager_body_bytes_max ? Lane::bulk : Lane::eager;
}

std::size_t index_of(Lane lane) {
    return static_cast<std::size_t>(lane);
}

}  // namespace

Spreading::Spreading(const Options& options, const Membership& membership, Effects& effects)
    : options_(options),
      membership_(membership),
      effects_(effects),
      sharing_({.nodes = membership.size()}),
      received_(membership.size(), Seen{}) {}

void Spreading::note_use(const ObjectKey& key, Rank origin, Interest::Wanted wanted, FetchFor why) {
    sharing_.note(key, origin,
                  why == FetchFor::everyone                ? Sharing::Askers::all
                  : wanted == Interest::Wanted::by_several ? Sharing::Askers::several
                                                           : Sharing::Askers::one);
}

Interest::Wanted Spreading::wanted(const ObjectKey& key) {
    return sharing_.take_evidence(key) ? Interest::Wanted::by_several : Interest::Wanted::by_one_perhaps;
}

bool Spreading::is_own(const ObjectKey& key) const {
    return options_.push == Push::automatic && sharing_.verdict(key) == Sharing::Verdict::own;
}

bool Spreading::is_to_push(const ObjectKey& key) const {
    return options_.push == Push::automatic ? sharing_.verdict(key) == Sharing::Verdict::shared
                                            : options_.push == Push::always;
}

bool Spreading::publish(const ObjectKey& key, const ObjectPtr& object, const std::vector<Rank>& askers) {
    const auto last = broadcasts_.find(key);
    const bool all_have_had_it =
        last != broadcasts_.end() && last->second.root == membership_.self() && last->second.lasts;
    if (all_have_had_it || !is_to_push(key)) {
        answer(key, object, askers);
        return false;
    }
    sharing_.note_pushed(key);
    broadcast({.key = key,
               .root = membership_.self(),
               .tree = membership_.route(key).tree,
               .serial = next_serial_++,
               .object = object},
              std::nullopt, askers);
    return true;
}

void Spreading::forward(Rank from, const Publication& publication, const std::vector<Rank>& askers) {
    if (publication.spread == Publication::Spread::everyone && !is_repeat(publication)) {
        broadcast(publication, from, askers);
    } else {
        answer(publication.key, publication.object, askers);
    }
}

void Spreading::answer(const ObjectKey& key, const ObjectPtr& object, const std::vector<Rank>& to) {
    Publication publication{
        .key = key, .root = membership_.self(), .spread = Publication::Spread::asked, .object = object};
    send(publication, to);
}

void Spreading::broadcast(Publication publication, std::optional<Rank> from,
                          const std::vector<Rank>& askers) {
    std::vector<Rank> below = membership_.children({.reader = publication.root, .tree = publication.tree});
    if (from) {
        std::erase(below, *from);
    }
    below = without_congested(std::move(below), askers);
    std::vector<Rank> others = askers;
    std::erase_if(others, [&below](Rank rank) { return contains(below, rank); });

    const std::uint64_t sequence = send(publication, below);
    answer(publication.key, publication.object, others);
    remember(publication.key, {.root = publication.root,
                               .lasts = !publication.object->lifetime,
                               .serial = publication.serial,
                               .lane = publication.lane,
                               .sequence = sequence,
                               .to = std::move(below)});
}

// Forgets the oldest: that only costs a repeated message now and then.
void Spreading::remember(const ObjectKey& key, Broadcast broadcast) {
    const auto [entry, is_new] = broadcasts_.insert_or_assign(key, std::move(broadcast));
    if (is_new) {
        by_age_.push_back(&entry->first);
    }
    if (by_age_.size() > options_.broadcasts_remembered_max) {
        broadcasts_.erase(broadcasts_.find(*by_age_.front()));
        by_age_.pop_front();
    }
}

// A node that asks has room.
std::vector<Rank> Spreading::without_congested(std::vector<Rank> ranks, const std::vector<Rank>& askers) {
    const std::uint64_t left = options_.total_backlog_bytes_max -
                               std::min(options_.total_backlog_bytes_max, effects_.backlog_bytes());
    const std::uint64_t most = std::min(options_.backlog_bytes_max, left);
    counters_.passed_over += std::erase_if(
        ranks, [&](Rank rank) { return !contains(askers, rank) && effects_.backlog_bytes(rank) > most; });
    return ranks;
}

std::uint64_t Spreading::send(Publication& publication, const std::vector<Rank>& to) {
    publication.lane = lane_of(*publication.object);
    std::uint64_t& sequence = sent_[index_of(publication.lane)];
    if (!to.empty()) {
        publication.sequence = ++sequence;
        publication.news = membership_.news();
        counters_.publications_sent += to.size();
        effects_.send(to, publication);
    }
    return sequence;
}

void Spreading::note_received(Rank from, Lane lane, std::uint64_t sequence) {
    std::uint64_t& last = received_[from.value][index_of(lane)];
    last = std::max(last, sequence);
}

bool Spreading::is_repeat(const Publication& publication) const {
    const auto last = broadcasts_.find(publication.key);
    return last != broadcasts_.end() && last->second.root == publication.root &&
           last->second.serial >= publication.serial;
}

bool Spreading::is_in_flight(const ObjectKey& key, Rank to, const Seen& seen) const {
    const auto last = broadcasts_.find(key);
    return last != broadcasts_.end() && contains(last->second.to, to) &&
           last->second.sequence > seen[index_of(last->second.lane)];
}

}  // namespace copper
