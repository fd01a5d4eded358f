#include "collectives/mover.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace copper {
namespace {

template <typename T>
bool contains(const std::vector<T>& all, const T& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
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

// This node's own trouble, not what the backing filesystem says of the object.
bool is_lack_of_resources(const std::error_code& error) {
    return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
           error == std::errc::not_enough_memory;
}

// What a node sees whose own mount of the backing filesystem is broken, stale or missing; or everybody.
bool is_perhaps_trouble_of_one_node(const std::error_code& error) {
    constexpr std::array suspicious = {EIO,       ESTALE,    ENOTCONN,     ETIMEDOUT,    ENODEV,
                                       ENXIO,     EHOSTDOWN, EHOSTUNREACH, ECONNREFUSED, ECONNRESET,
                                       EREMOTEIO, ESHUTDOWN, ENOENT,       ENOTDIR};
    return std::find(suspicious.begin(), suspicious.end(), error.value()) != suspicious.end();
}

// Who reads instead of a reader, beyond itself: a filesystem that is slow or broken everywhere is not to be
// read by ever more nodes.
constexpr std::size_t helpers_max = 2;

// Of a deadline. Two words of who reads may be lost, and the third comes in time.
constexpr int words_of_work = 4;
constexpr int ways = 3;
// The part of it, at its end, in which nodes turn to the filesystem: ever more of them.
constexpr int last_part = 4;
constexpr std::size_t last_steps = 16;

}  // namespace

Mover::Mover(Options options, const Trees& trees, Membership& membership, Effects& effects)
    : options_(options),
      trees_(trees),
      membership_(membership),
      effects_(effects),
      sharing_({.nodes = membership.size()}),
      received_(membership.size(), Seen{}),
      next_serial_((std::uint64_t{options.incarnation} << 32U) + 1) {}

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
    begin_deadline(pending);
    note_use(key, membership_.self());
    if (is_new) {
        pending.origin = membership_.self();
        pending.attempt = options_.incarnation == 0 ? 0 : 1;
        fetch(key, pending);
    } else if (!is_at_it(pending)) {
        pending.tries = 0;
        wait(key, pending);
    }
}

void Mover::begin_deadline(Pending& pending) {
    pending.deadline = now_ + options_.deadline;
    pending.latest = now_ + options_.deadline * options_.deadlines_max;
}

void Mover::receive(Rank from, const Interest& interest, TimePoint now) {
    now_ = now;
    const ObjectKey& key = interest.key;
    if (!is_shared(key) || interest.hops > options_.hops_max) {
        ++counters_.interests_refused;
        return;
    }
    const bool anywhere = interest.scope == Interest::Scope::anywhere;
    if (anywhere && interest.attempt == 0 && is_in_flight(key, from, interest.seen)) {
        return;
    }
    if (anywhere) {
        note_use(key, interest.origin);
    }
    if (ObjectPtr object = effects_.find(key)) {
        answer({.key = key, .root = membership_.self(), .object = std::move(object)}, {from});
        return;
    }
    if (interest.scope == Interest::Scope::at_hand) {
        effects_.send({&from, 1}, Decline{.key = key, .reason = Decline::Reason::not_at_hand});
        return;
    }
    if (anywhere && interest.wanted != Interest::Wanted::by_several && !pending_.contains(key) &&
        is_unshared(key)) {
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
    if (is_new) {
        pending.origin = interest.origin;
        pending.wanted = interest.wanted;
        pending.hops = interest.hops + 1;
        begin_deadline(pending);
    } else {
        ++counters_.interests_merged;
    }
    if (is_at_it(pending)) {
        if (interest.attempt > 0) {
            tell_working({&from, 1}, key, pending);
        }
    } else if (interest.scope == Interest::Scope::instead) {
        pending.reader = from;
        read(key, pending, Reading::for_reader);
        tell_working(pending.askers, key, pending);
    } else if (is_new) {
        fetch(key, pending);
    }
}

void Mover::fetch(const ObjectKey& key, Pending& pending) {
    if (!is_shared(key)) {
        read(key, pending, Reading::directly);
        return;
    }
    const Rank reader = membership_.reader_of(file_tree_of(key));
    if (const auto parent = membership_.parent(reader, turn_of(key))) {
        ask(other_way(key, pending, reader).value_or(*parent), key, pending, Interest::Scope::anywhere);
        wait(key, pending);
        return;
    }
    const Rank keeper = membership_.keeper_of(hash_of(key));
    if (keeper != membership_.self() && pending.attempt == 0 && was_published(key)) {
        ask(keeper, key, pending, Interest::Scope::at_hand);
        wait(key, pending);
    } else if (now_ >= hands_on_until_ || !hand_on(key, pending)) {
        read(key, pending, Reading::to_publish);
    }
}

// For a node that has waited for its parent in vain.
std::optional<Rank> Mover::other_way(const ObjectKey& key, const Pending& pending, Rank reader) const {
    if (pending.tries == 0) {
        return std::nullopt;
    }
    const auto grandparent = membership_.grandparent(reader, turn_of(key));
    if (pending.tries == 1 && grandparent) {
        return grandparent;
    }
    const auto readers = membership_.readers_of(file_tree_of(key), 2);
    return readers.size() == 2 ? membership_.parent(readers[1], turn_of(key)) : std::nullopt;
}

void Mover::wait(const ObjectKey& key, Pending& pending) {
    schedule(key, pending, std::min(now_ + options_.deadline / ways, last_call(key, pending)));
}

TimePoint Mover::last_call(const ObjectKey& key, const Pending& pending) const {
    if (!pending.local) {
        return pending.deadline;  // those who asked have deadlines of their own
    }
    // Level by level, and within a level as chance has it.
    const Rank reader = membership_.reader_of(file_tree_of(key));
    const std::size_t depth = std::min(membership_.depth(reader, turn_of(key)), last_steps - 1);
    constexpr std::uint64_t fractions = 1024;
    const std::uint64_t mix = (hash_of(key) + membership_.self().value) * 0x9e3779b97f4a7c15U;
    const std::uint64_t position = depth * fractions + (mix >> 32U) % fractions;
    const std::chrono::microseconds part = options_.deadline / last_part;
    return pending.deadline - part + part * position / (last_steps * fractions);
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
                                       .view = membership_.view(now_),
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
    if (pending.helpers > 0) {
        give_up_helper(key, pending);
    } else if (decline.reason == Decline::Reason::not_at_hand) {
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

void Mover::read(const ObjectKey& key, Pending& pending, Reading reading) {
    begin_work(pending);
    pending.reading = reading;
    pending.asked.reset();
    pending.read_at = now_;
    effects_.read(key, reading == Reading::directly ? Effects::ReadFor::itself : Effects::ReadFor::others);
    go_on_at(key, pending, reading == Reading::to_publish ? now_ + slow_after() : TimePoint::max());
}

void Mover::begin_work(Pending& pending) {
    if (!is_at_it(pending)) {
        // Who asked this node may have heard of others' work by way of it, and listens to what goes on only.
        pending.began = now_ - (pending.told + std::chrono::milliseconds(1));
        pending.word_at = now_ + options_.deadline / words_of_work;
    }
}

// With the next word of its work, or the next reader.
void Mover::go_on_at(const ObjectKey& key, Pending& pending, TimePoint help_at) {
    pending.help_at = help_at;
    schedule(key, pending, std::min(pending.word_at, help_at));
}

void Mover::read_directly(const ObjectKey& key, Pending& pending) {
    ++counters_.direct_reads;
    direct_reads_.insert(key);
    read(key, pending, Reading::directly);
    tell_working(pending.askers, key, pending);
}

void Mover::read_directly_in_turn(const ObjectKey& key, Pending& pending) {
    if (direct_reads_.size() < options_.direct_reads_max || now_ >= pending.deadline + options_.deadline) {
        ++counters_.deadline;
        read_directly(key, pending);
    } else {
        direct_reads_to_be_.insert(key);
        schedule(key, pending, pending.deadline + options_.deadline);
    }
}

void Mover::start_waiting_direct_reads() {
    while (direct_reads_.size() < options_.direct_reads_max && !direct_reads_to_be_.empty()) {
        const ObjectKey key = *direct_reads_to_be_.begin();
        direct_reads_to_be_.erase(direct_reads_to_be_.begin());
        const auto entry = pending_.find(key);
        if (entry != pending_.end() && !is_at_it(entry->second) && now_ >= last_call(key, entry->second)) {
            read_directly_in_turn(key, entry->second);
        }
    }
}

std::chrono::microseconds Mover::slow_after() const {
    return reading_time_.bound(options_.deadline / 5, options_.deadline / 2);
}

// The next reader of the tree is to read too, or in this node's stead. False if no other is left to ask.
bool Mover::hand_on(const ObjectKey& key, Pending& pending) {
    auto readers = membership_.readers_of(file_tree_of(key), helpers_max + 1);
    std::erase(readers, membership_.self());
    if (pending.helpers >= std::min(readers.size(), helpers_max)) {
        return false;
    }
    begin_work(pending);
    ++counters_.handed_on;
    ask(readers[pending.helpers], key, pending, Interest::Scope::instead);
    ++pending.helpers;
    go_on_at(key, pending, now_ + 2 * slow_after());
    return true;
}

// The timer of a node that is at it.
void Mover::go_on(const ObjectKey& key, Pending& pending) {
    if (now_ >= pending.word_at) {
        tell_working(pending.askers, key, pending);
        pending.word_at = now_ + options_.deadline / words_of_work;
    }
    if (now_ >= pending.help_at) {
        if (!pending.read_at) {
            read(key, pending, Reading::to_publish);
            return;
        }
        // What waits for links that are slow would come no sooner from another reader.
        const bool is_slow =
            pending.reading == Reading::no || effects_.backlog_bytes() < options_.bytes_for_others_max / 2;
        if (is_slow && hand_on(key, pending)) {
            return;
        }
        if (pending.reading == Reading::no) {
            publish(key, ObjectPtr(pending.doubtful));
            return;
        }
        pending.help_at = is_slow ? TimePoint::max() : now_ + slow_after();
    }
    go_on_at(key, pending, pending.help_at);
}

void Mover::tell_working(std::span<const Rank> to, const ObjectKey& key, const Pending& pending) {
    if (!to.empty()) {
        const auto spent = std::chrono::floor<std::chrono::milliseconds>(now_ - pending.began);
        effects_.send(to, Working{.key = key, .spent = spent});
    }
}

void Mover::receive(Rank from, const Working& working, TimePoint now) {
    now_ = now;
    const auto entry = pending_.find(working.key);
    if (entry == pending_.end() || is_at_it(entry->second) || working.spent <= entry->second.told) {
        return;  // also if it has come round to where it has been
    }
    Pending& pending = entry->second;
    pending.told = working.spent;
    pending.tries = 0;
    pending.deadline = std::max(pending.deadline, std::min(now + options_.deadline, pending.latest));
    wait(working.key, pending);
    std::vector<Rank> askers = pending.askers;
    std::erase(askers, from);
    if (!askers.empty()) {
        effects_.send(askers, working);
    }
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
    const auto entry = pending_.find(key);
    if (publication.spread == Publication::Spread::asked && entry != pending_.end() &&
        is_to_publish(entry->second)) {
        Pending& pending = entry->second;
        if (is_doubtful(key, *publication.object)) {
            pending.asked.reset();
            note_doubtful(key, pending, publication.object);
            return;
        }
        if (pending.helpers > 0 && pending.read_at) {
            hands_on_until_ = now + options_.deadline;
        }
        publish(key, publication.object);
        return;
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
    direct_reads_.erase(key);
    start_waiting_direct_reads();
    const auto entry = pending_.find(key);
    if (entry == pending_.end() || entry->second.reading == Reading::no) {
        return;  // it came another way, and the first version stays
    }
    Pending& pending = entry->second;
    const Reading reading = std::exchange(pending.reading, Reading::no);
    reading_time_.note(std::chrono::floor<std::chrono::microseconds>(now - *pending.read_at));
    const bool doubtful = is_doubtful(key, *object);
    if (reading == Reading::for_reader && doubtful) {
        finish_for_reader(key, pending, object);
    } else if (reading == Reading::to_publish && doubtful) {
        note_doubtful(key, pending, object);
    } else if (reading == Reading::to_publish) {
        publish(key, object);
    } else {
        const std::vector<Rank> askers = settle(key);
        if (!doubtful) {
            answer({.key = key, .root = membership_.self(), .object = object}, askers);
        }
        deliver_here(key, object);
    }
}

// Lack of resources is kept nowhere: who asked asks again, and reads directly if it does not get better.
void Mover::deliver_here(const ObjectKey& key, const ObjectPtr& object) {
    const bool passes = is_lack_of_resources(object->error());
    deliver(key, passes ? make_object(object->error(), std::chrono::milliseconds(0)) : object);
}

void Mover::publish(const ObjectKey& key, const ObjectPtr& object) {
    const std::vector<Rank> askers = settle(key);
    if (is_lack_of_resources(object->error())) {
        deliver_here(key, object);
        return;
    }
    Publication publication{.key = key, .root = membership_.self(), .object = object};
    // What was published before was evicted or has expired, here and at its keeper: others may not want it
    // any more.
    if (!was_published(key) && is_to_push(key)) {
        if (is_judged(key)) {
            sharing_.note_pushed(key);
        }
        publication.serial = next_serial_++;
        broadcast(publication, std::nullopt, askers);
    } else {
        answer(publication, askers);
    }
    deliver(key, object);
}

// An error that is one node's trouble only must not become everybody's. Also where a filesystem is not
// mounted its mount point is there, and empty.
bool Mover::is_doubtful(const ObjectKey& key, const Object& object) const {
    if (const Listing* listing = object.listing()) {
        return key.kind == ObjectKind::listing && listing->size() == 0 && contains(trees_.roots(), key.path);
    }
    return is_perhaps_trouble_of_one_node(object.error()) || is_lack_of_resources(object.error());
}

// This node or one that it has asked has read it so.
void Mover::note_doubtful(const ObjectKey& key, Pending& pending, const ObjectPtr& object) {
    const bool agreed = pending.doubtful != nullptr && pending.doubtful->error() == object->error();
    if (agreed) {
        publish(key, object);
        return;
    }
    pending.doubtful = object;
    if (!pending.asked) {
        give_up_helper(key, pending);
    }
}

void Mover::give_up_helper(const ObjectKey& key, Pending& pending) {
    pending.asked.reset();
    if (pending.reading == Reading::no) {
        go_on_at(key, pending, now_);
    }
}

// It could not read what the reader wanted it to.
void Mover::finish_for_reader(const ObjectKey& key, Pending& pending, const ObjectPtr& object) {
    const Rank reader = pending.reader;
    std::erase(pending.askers, reader);
    if (is_lack_of_resources(object->error())) {
        effects_.send({&reader, 1}, Decline{.key = key, .reason = Decline::Reason::unable});
    } else {
        answer({.key = key, .root = membership_.self(), .object = object}, {reader});
    }
    if (pending.local || !pending.askers.empty()) {
        fetch(key, pending);
    } else {
        settle(key);
    }
}

void Mover::corrupt(const ObjectKey& key) {
    ++counters_.corrupt;
    const auto entry = pending_.find(key);
    if (entry == pending_.end()) {
        if (damaged_.size() >= options_.damaged_remembered_max) {
            damaged_.clear();
        }
        damaged_.insert(key);
        return;
    }
    Pending& pending = entry->second;
    if (is_to_publish(pending)) {
        give_up_helper(key, pending);
    } else if (pending.local && !is_at_it(pending)) {
        if (direct_reads_.size() < options_.direct_reads_max) {
            read_directly(key, pending);
        } else {
            ++counters_.retries;
            ++pending.attempt;
            fetch(key, pending);
        }
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

void Mover::peer_regained(Rank rank, TimePoint heard, TimePoint now) {
    now_ = now;
    const std::uint64_t before = membership_.epoch();
    membership_.regain(rank, heard);
    if (membership_.epoch() != before) {
        ask_again();
    }
}

// Also what was asked of nodes that are still there: they may wait for the lost one, by a tree of a view that
// is out of date, or for this very node, by one that is not.
void Mover::ask_again() {
    for (auto& [key, pending] : pending_) {
        if (!pending.asked) {
            continue;
        }
        if (pending.helpers > 0) {
            if (!membership_.is_alive(*pending.asked)) {
                give_up_helper(key, pending);
            }
            continue;
        }
        ++counters_.retries;
        ++pending.attempt;
        pending.tries = 0;
        pending.told = std::chrono::milliseconds(-1);
        fetch(key, pending);
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
    if (is_at_it(pending)) {
        go_on(key, pending);
    } else if (now < last_call(key, pending)) {
        ++counters_.retries;
        ++pending.attempt;
        ++pending.tries;
        pending.told = std::chrono::milliseconds(-1);
        fetch(key, pending);
    } else if (pending.local) {
        read_directly_in_turn(key, pending);
    } else {
        settle(key);
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
    const std::uint64_t left = options_.total_backlog_bytes_max -
                               std::min(options_.total_backlog_bytes_max, effects_.backlog_bytes());
    const std::uint64_t most = std::min(options_.backlog_bytes_max, left);
    counters_.passed_over += std::erase_if(
        ranks, [&](Rank rank) { return !contains(askers, rank) && effects_.backlog_bytes(rank) > most; });
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
        publication.view = membership_.view(now_);
        counters_.publications_sent += to.size();
        effects_.send(to, publication);
    }
    return sequence;
}

bool Mover::is_shared(const ObjectKey& key) const {
    return key.kind <= last_shared_object_kind && trees_.contains(key.path);
}

bool Mover::is_judged(const ObjectKey& key) const {
    return options_.push == Push::automatic && key.kind == ObjectKind::extent;
}

bool Mover::is_to_push(const ObjectKey& key) const {
    return is_judged(key) ? sharing_.verdict(key) == Sharing::Verdict::shared : options_.push != Push::never;
}

void Mover::note_use(const ObjectKey& key, Rank origin) {
    if (is_judged(key) && membership_.reader_of(file_tree_of(key)) == membership_.self() &&
        !was_published(key)) {
        sharing_.note(key, origin);
    }
}

bool Mover::is_unshared(const ObjectKey& key) const {
    return is_judged(key) && membership_.reader_of(file_tree_of(key)) == membership_.self() &&
           sharing_.verdict(key) == Sharing::Verdict::own;
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
