#include "cache/eviction.hpp"

#include <algorithm>
#include <utility>

namespace copper {
namespace {

constexpr std::uint64_t small_share = 10;  // one tenth of the budget
constexpr unsigned uses_to_stay = 2;
constexpr std::size_t ghosts_max = std::size_t{1} << 17;
// For one admission; then objects leave even if they were used. The progress loop waits meanwhile, and a
// cache that was never full may hold a million objects that are due for the main queue.
constexpr int moves_max = 4096;

}  // namespace

Eviction::Eviction(std::uint64_t budget_bytes)
    : budget_bytes_(budget_bytes), small_bytes_max_(budget_bytes / small_share) {}

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
    std::vector<KeptPtr> leaving;
    for (int moves = 0; queues->bytes() + kept->bytes > budget_bytes_;) {
        if (moves >= moves_max) {
            queue_to_shrink(*queues).objects.front()->uses_ = 0;
        }
        if (KeptPtr left = next_to_leave(*queues, now)) {
            leaving.push_back(std::move(left));
        } else {
            ++moves;
        }
    }
    const bool was_here = queues->ghosts_by_hash.contains(hash_of(kept->key));
    kept->place_ = was_here ? Kept::Place::main_queue : Kept::Place::small_queue;
    Queue& queue = queues->of(*kept);
    kept->position_ = queue.objects.insert(queue.objects.end(), kept);
    queue.bytes += kept->bytes;
    if (kept->expires) {
        kept->expiring_ = queues->expiring.emplace(*kept->expires, kept);
    }
    return leaving;
}

void Eviction::remove(const KeptPtr& taken_out) {
    auto queues = queues_.lock();
    if (taken_out->place_ != Kept::Place::arriving && taken_out->place_ != Kept::Place::gone) {
        take_out(*queues, *taken_out);
    }
    taken_out->place_ = Kept::Place::gone;
}

Eviction::Usage Eviction::usage() const {
    auto queues = queues_.lock();
    return {.objects = queues->objects(), .bytes = queues->bytes(), .evictions = queues->evictions};
}

// Takes out the next object; or nothing: it was used, and has moved to the end of a queue. REQUIRES: a queue
// is not empty.
KeptPtr Eviction::next_to_leave(Queues& queues, TimePoint now) const {
    if (!queues.expiring.empty() && queues.expiring.begin()->first <= now) {
        return take_out(queues, *queues.expiring.begin()->second);
    }
    Kept& kept = *queue_to_shrink(queues).objects.front();
    const bool from_small = kept.place_ == Kept::Place::small_queue;
    const auto uses = kept.uses_.load(std::memory_order_relaxed);
    if (uses >= (from_small ? uses_to_stay : 1)) {
        kept.uses_.store(from_small ? 0 : uses - 1, std::memory_order_relaxed);
        move_to_end(queues, kept, from_small ? Kept::Place::main_queue : kept.place_);
        return nullptr;
    }
    if (from_small) {
        remember(queues, kept.key);
    }
    ++queues.evictions;
    return take_out(queues, kept);
}

Eviction::Queue& Eviction::queue_to_shrink(Queues& queues) const {
    const bool is_small_full = queues.small_queue.bytes > small_bytes_max_;
    return is_small_full || queues.main_queue.objects.empty() ? queues.small_queue : queues.main_queue;
}

void Eviction::move_to_end(Queues& queues, Kept& kept, Kept::Place place) {
    Queue& from = queues.of(kept);
    kept.place_ = place;
    Queue& to = queues.of(kept);
    to.objects.splice(to.objects.end(), from.objects, kept.position_);
    from.bytes -= kept.bytes;
    to.bytes += kept.bytes;
}

KeptPtr Eviction::take_out(Queues& queues, Kept& kept) {
    Queue& queue = queues.of(kept);
    KeptPtr taken = *kept.position_;
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
