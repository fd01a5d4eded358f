#include "collectives/protocol.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace copper {
namespace {

FailureDetector::Options of_this_job(FailureDetector::Options options, const Membership::Options& job) {
    options.self = job.self;
    options.nodes = job.size;
    return options;
}

}  // namespace

Protocol::Protocol(Options options, const Trees& trees, Effects& effects)
    : effects_(effects),
      membership_(options.membership),
      mover_(options.mover, trees, membership_, effects),
      roll_call_(membership_, effects),
      failure_detector_(of_this_job(options.failure_detector, options.membership)) {}

void Protocol::want(const ObjectKey& key, FetchFor why, TimePoint now) {
    now_ = now;
    mover_.want(key, why, now);
}

void Protocol::read_done(const ObjectKey& key, const ObjectPtr& object, TimePoint now) {
    now_ = now;
    mover_.read_done(key, object, now);
}

void Protocol::backlog_shrank(TimePoint now) {
    now_ = now;
    mover_.backlog_shrank(now);
}

void Protocol::receive(Rank from, const Message& message, TimePoint now) {
    now_ = now;
    if (is_answer(from, message)) {
        failure_detector_.heard(from, now);
    }
    std::visit([this, from](const auto& content) { handle(from, content); }, message);
    if (membership_.state(from) == NodeState::suspect) {
        let_contradict(from);
    }
    note_own_state();
}

// Other messages say that `from` lives, and not that this node reaches it.
bool Protocol::is_answer(Rank from, const Message& message) const {
    if (const auto* publication = std::get_if<Publication>(&message)) {
        return mover_.awaits(publication->key, from);
    }
    return !std::holds_alternative<Interest>(message) && !std::holds_alternative<Call>(message) &&
           !std::holds_alternative<Ping>(message);
}

void Protocol::receive_damaged(Rank from, const Damaged& damaged, TimePoint now) {
    now_ = now;
    mover_.receive_damaged(from, damaged.key, damaged.lane, damaged.sequence, now);
}

void Protocol::handle(Rank from, const Interest& interest) {
    heed(from, interest.news);
    mover_.receive(from, interest, now_);
}

void Protocol::handle(Rank from, const Publication& publication) {
    heed(from, publication.news);
    mover_.receive(from, publication, now_);
}

void Protocol::handle(Rank from, const Ping& ping) {
    heed(from, ping.news);
    send_news(from);
}

void Protocol::handle(Rank from, const Pong& pong) {
    if (failure_detector_.answered_ping(from) && membership_.mend(from)) {
        note_changes({&from, 1});
    }
    heed(from, pong.news);
}

void Protocol::send_news(Rank to) {
    effects_.send({&to, 1}, Pong{.news = membership_.news_for(to)});
}

void Protocol::ping(Rank rank) {
    effects_.send({&rank, 1}, Ping{.news = membership_.news_for(rank)});
}

void Protocol::let_contradict(Rank rank) {
    if (failure_detector_.may_ping(rank, now_)) {
        ping(rank);
    }
}

void Protocol::heed(Rank from, const std::vector<News>& news) {
    std::vector<Rank> changed;
    bool was_denied = false;
    for (const News& each : news) {
        const Membership::Heard heard = membership_.note(each);
        was_denied = was_denied || heard == Membership::Heard::denied;
        if (heard == Membership::Heard::news) {
            changed.push_back(each.rank);
        }
    }
    note_changes(changed);
    ping_accused(changed);
    if (was_denied) {
        send_news(from);
    }
}

// Does a node that has contradicted answer this one?
void Protocol::ping_accused(std::span<const Rank> changed) {
    for (const Rank rank : changed) {
        if (membership_.is_alive(rank) && failure_detector_.is_accused(rank)) {
            let_contradict(rank);
        }
    }
}

void Protocol::note_changes(std::span<const Rank> changed) {
    if (changed.empty()) {
        return;
    }
    for (const Rank rank : changed) {
        effects_.state_changed(rank, membership_.state(rank));
        nodes_lost_ += membership_.is_alive(rank) ? 0 : 1;
    }
    mover_.membership_changed(now_);
    for (const Rank rank : changed) {
        if (!membership_.is_alive(rank)) {
            roll_call_.peer_lost(rank);
        }
    }
}

// Its reads may have made it resign, or it may be time to read again.
void Protocol::note_own_state() {
    const NodeState state = membership_.state(membership_.self());
    if (std::exchange(own_state_, state) != state) {
        effects_.state_changed(membership_.self(), state);
        mover_.membership_changed(now_);
    }
}

std::uint64_t Protocol::call(std::string verb, std::string argument, std::chrono::milliseconds patience,
                             Call::Silence silence, TimePoint now) {
    now_ = now;
    return roll_call_.call(std::move(verb), std::move(argument), patience, silence, now);
}

std::uint64_t Protocol::ask(const std::vector<Rank>& whom, std::string verb, std::string argument,
                            std::chrono::milliseconds patience, TimePoint now) {
    now_ = now;
    return roll_call_.ask(whom, std::move(verb), std::move(argument), patience, now);
}

void Protocol::cut(Rank rank, TimePoint now) {
    now_ = now;
    if (membership_.state(rank) != NodeState::dead) {
        membership_.cut(rank);
        note_changes({&rank, 1});
    }
}

std::vector<Rank> Protocol::leave(TimePoint now) {
    now_ = now;
    membership_.leave();
    std::set<Rank> neighbours;
    for (std::uint32_t tree = 0; tree < tree_count(membership_.size()); ++tree) {
        const Route route{.reader = Rank{tree_root(membership_.size(), tree)}, .tree = tree};
        const std::vector<Rank> ranks = membership_.neighbours(route);
        neighbours.insert(ranks.begin(), ranks.end());
    }
    for (const Rank rank : neighbours) {
        send_news(rank);
    }
    return {neighbours.begin(), neighbours.end()};
}

void Protocol::tick(TimePoint now) {
    now_ = now;
    if (const auto due = mover_.next_deadline(); due && *due <= now) {
        mover_.tick(now);
        note_own_state();
    }
    if (const auto due = roll_call_.next_deadline(); due && *due <= now) {
        roll_call_.tick(now);
    }
    if (now >= next_look_) {
        look_after_peers();
        next_look_ = now + failure_detector_.options().interval;
    }
}

void Protocol::look_after_peers() {
    std::set<Rank> awaited = mover_.awaited();
    awaited.merge(roll_call_.awaited());
    const auto verdict = failure_detector_.look(awaited, membership_.suspects(), now_);
    for (const Rank rank : verdict.to_ping) {
        ping(rank);
    }
    std::vector<Rank> changed;
    for (const Rank rank : verdict.silent) {
        if (membership_.is_alive(rank)) {
            membership_.suspect(rank);
            changed.push_back(rank);
        }
    }
    for (const Rank rank : verdict.out_of_reach) {
        if (membership_.is_alive(rank)) {
            membership_.cut(rank);
            changed.push_back(rank);
        }
    }
    note_changes(changed);
}

std::optional<TimePoint> Protocol::next_deadline() const {
    const auto next = earlier(mover_.next_deadline(), roll_call_.next_deadline());
    const bool is_awaiting = mover_.pending() > 0 || roll_call_.next_deadline();
    return is_awaiting ? earlier(next, next_look_) : next;
}

}  // namespace copper
