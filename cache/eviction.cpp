#include "cache/eviction.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace copper {
namespace {

constexpr std::uint64_t small_share = 20;  // of the budget: a twentieth (in the paper, a tenth)
constexpr unsigned uses_to_stay = 2;
constexpr std::size_t ghosts_max = std::size_t{1} << 17;
// For one admission; then objects leave even if they were used. The progress loop waits meanwhile, and a
// cache that was never full may hold a million objects that are due for the main queue.
constexpr int moves_max = 4096;
constexpr std::size_t walked_at_once = 1024;

bool is_of_reader(const Kept& kept) {
    return kept.copy == Copy::of_reader;
}

// Of the main queue, for an object that wants to enter it. With as many as it has itself, other data takes
// long to take over; that will do for a reader's copy, which has not been used more than once.
std::uint64_t bytes_to_look_at(const Kept& kept) {
    return is_of_reader(kept) ? kept.bytes : 2 * kept.bytes;
}

}  // namespace

Eviction::Eviction(std::uint64_t budget_bytes)
    : budget_bytes_(budget_bytes), main_bytes_max_(budget_bytes - budget_bytes / small_share) {}

Eviction::Queue& Eviction::Queues::of(const Kept& kept) {
    return kept.place_ == Kept::Place::small_queue ? small_queue : main_queue;
}

std::vector<KeptPtr> Eviction::admit(const KeptPtr& kept, TimePoint now) {
    auto queues = queues_.lock();
    if (kept->place_ == Kept::Place::gone) {
        return {};
    }
    if (kept->bytes > budget_bytes_) {
        kept->place_ = Kept::Place::gone;
        ++queues->evictions;
        return {kept};
    }
    Admission admission;
    const bool was_here = queues->ghosts_by_hash.contains(hash_of(kept->key));
    while (queues->bytes() + kept->bytes > budget_bytes_) {
        free_one(*queues, now, admission);
    }
    const bool stays = (was_here || is_of_reader(*kept)) && make_way(*queues, *kept, admission);
    kept->place_ = stays ? Kept::Place::main_queue : Kept::Place::small_queue;
    Queue& queue = queues->of(*kept);
    kept->position_ = queue.objects.insert(queue.objects.end(), kept);
    kept->walk_ = queues->walks;
    queue.bytes += kept->bytes;
    if (kept->expires) {
        kept->expiring_ = queues->expiring.emplace(*kept->expires, kept);
    }
    return std::move(admission.leaving);
}

void Eviction::remove(const KeptPtr& taken_out) {
    auto queues = queues_.lock();
    if (taken_out->place_ != Kept::Place::arriving && taken_out->place_ != Kept::Place::gone) {
        take_out(*queues, *taken_out);
    }
    taken_out->place_ = Kept::Place::gone;
}

// The small queue first: what moves to the main queue meanwhile is shown there.
void Eviction::for_each(const std::function<void(const KeptPtr&)>& show) {
    const std::lock_guard walking(walking_);
    ++queues_.lock()->walks;
    for (Queue Queues::*const queue : {&Queues::small_queue, &Queues::main_queue}) {
        bool is_end = false;
        while (!is_end) {
            std::vector<KeptPtr> some;
            {
                auto queues = queues_.lock();
                Objects& objects = ((*queues).*queue).objects;
                auto next = queues->walk.value_or(objects.begin());
                for (std::size_t count = 0; next != objects.end() && count < walked_at_once;
                     ++next, ++count) {
                    if (std::exchange((*next)->walk_, queues->walks) != queues->walks) {
                        some.push_back(*next);
                    }
                }
                is_end = next == objects.end();
                queues->walk = is_end ? std::nullopt : std::optional(next);
            }
            std::for_each(some.begin(), some.end(), show);
        }
    }
}

Eviction::Usage Eviction::usage() const {
    auto queues = queues_.lock();
    return {.objects = queues->objects(), .bytes = queues->bytes(), .evictions = queues->evictions};
}

std::uint64_t Eviction::room_for_new() const {
    return budget_bytes_ - queues_.lock()->main_queue.bytes;
}

// Lets the next object leave; or moves it within the queues, because it was used. REQUIRES: a queue is not
// empty.
void Eviction::free_one(Queues& queues, TimePoint now, Admission& admission) const {
    if (!queues.expiring.empty() && queues.expiring.begin()->first <= now) {
        admission.leaving.push_back(take_out(queues, *queues.expiring.begin()->second));
        return;
    }
    Queue& queue = queues.small_queue.objects.empty() ? queues.main_queue : queues.small_queue;
    Kept& kept = *queue.objects.front();
    const bool from_small = kept.place_ == Kept::Place::small_queue;
    const auto uses = kept.uses_.load(std::memory_order_relaxed);
    const bool was_used = uses >= (from_small ? uses_to_stay : 1);
    if (was_used && admission.moves < moves_max && (!from_small || make_way(queues, kept, admission))) {
        ++admission.moves;
        kept.uses_.store(from_small ? 1 : 0, std::memory_order_relaxed);
        move_to_end(queues, kept, Kept::Place::main_queue);
        return;
    }
    if (from_small && !was_used) {
        remember(queues, kept.key);
    }
    let_leave(queues, kept, admission);
}

// Whether the main queue has room for this object. Those at its front that were not used since their last
// turn make room.
bool Eviction::make_way(Queues& queues, const Kept& kept, Admission& admission) const {
    Queue& queue = queues.main_queue;
    const bool arrives = kept.place_ == Kept::Place::arriving;
    for (std::uint64_t looked_at = 0; queue.bytes + kept.bytes > main_bytes_max_ &&
                                      looked_at < bytes_to_look_at(kept) && !queue.objects.empty() &&
                                      admission.moves < moves_max;) {
        Kept& front = *queue.objects.front();
        looked_at += front.bytes;
        if (arrives && is_of_reader(front) && !is_of_reader(kept)) {
            ++admission.moves;
            move_to_end(queues, front, Kept::Place::main_queue);
            continue;
        }
        const bool was_used = front.uses_.exchange(0, std::memory_order_relaxed) != 0;
        const bool is_spared = arrives && is_of_reader(front) && front.is_new_;
        if (was_used || is_spared) {
            front.is_new_ = false;
            ++admission.moves;
            move_to_end(queues, front, Kept::Place::main_queue);
        } else {
            let_leave(queues, front, admission);
        }
    }
    return queue.bytes + kept.bytes <= main_bytes_max_;
}

void Eviction::let_leave(Queues& queues, Kept& kept, Admission& admission) {
    ++queues.evictions;
    admission.leaving.push_back(take_out(queues, kept));
}

// Before `kept` leaves its position.
void Eviction::walk_past(Queues& queues, const Kept& kept) {
    if (queues.walk == kept.position_) {
        ++*queues.walk;
    }
}

void Eviction::move_to_end(Queues& queues, Kept& kept, Kept::Place place) {
    Queue& from = queues.of(kept);
    kept.place_ = place;
    Queue& to = queues.of(kept);
    if (&from == &to && std::next(kept.position_) == to.objects.end()) {
        return;  // it is there, and a walk still has to see it
    }
    walk_past(queues, kept);
    to.objects.splice(to.objects.end(), from.objects, kept.position_);
    from.bytes -= kept.bytes;
    to.bytes += kept.bytes;
}

KeptPtr Eviction::take_out(Queues& queues, Kept& kept) {
    Queue& queue = queues.of(kept);
    KeptPtr taken = *kept.position_;
    walk_past(queues, kept);
    queue.objects.erase(kept.position_);
    queue.bytes -= kept.bytes;
    if (kept.expires) {
        queues.expiring.erase(kept.expiring_);
    }
    kept.place_ = Kept::Place::gone;
    return taken;
}

// As many ghosts as objects, like in the paper.
void Eviction::remember(Queues& queues, const ObjectKey& key) {
    const auto hash = hash_of(key);
    if (queues.ghosts_by_hash.insert(hash).second) {
        queues.ghosts.push_back(hash);
    }
    while (queues.ghosts.size() > std::min<std::uint64_t>(ghosts_max, queues.objects())) {
        queues.ghosts_by_hash.erase(queues.ghosts.front());
        queues.ghosts.pop_front();
    }
}

}  // namespace copper
