#include "cache/cache.hpp"

#include <algorithm>
#include <utility>

namespace copper {
namespace {

bool is_extent(const ObjectKey& key) {
    return key.kind == ObjectKind::extent || key.kind == ObjectKind::own_extent;
}

}  // namespace

Cache::Cache(Options options, Fetch fetch)
    : options_(std::move(options)), fetch_(std::move(fetch)), eviction_(options_.budget_bytes) {}

std::uint64_t Cache::footprint(const ObjectKey& key, const Object& object) {
    constexpr std::size_t pointer = sizeof(void*);
    constexpr std::size_t map_node = 2 * pointer + sizeof(Slots::value_type) + pointer;  // and its bucket
    constexpr std::size_t kept = 2 * pointer + sizeof(Kept);  // and the counts of the shared_ptr
    constexpr std::size_t queue_node = 2 * pointer + sizeof(KeptPtr);
    constexpr std::size_t expiry_node = 5 * pointer + sizeof(KeptPtr);
    return object.bytes() + 2 * allocated_bytes(key.path.size() + 1) + allocated_bytes(map_node) +
           allocated_bytes(kept) + allocated_bytes(queue_node) +
           (object.lifetime ? allocated_bytes(expiry_node) : 0);
}

bool Cache::is_current(const Slot& slot) const {
    return slot.kept != nullptr && (!slot.kept->expires || options_.clock() < *slot.kept->expires);
}

void Cache::get(const ObjectKey& any_generation, Waiter waiter, FetchFor why) {
    if (why == FetchFor::demand && options_.on_demand) {
        options_.on_demand(any_generation);
    }
    const ObjectKey key = current(any_generation);
    ObjectPtr hit;
    KeptPtr expired;
    bool first = false;
    bool urges = false;  // demand joins a guess
    {
        Slots::accessor found;
        slots_.insert(found, key);
        Slot& slot = found->second;
        if (is_current(slot)) {
            hit = slot.kept->object;
            // For an extent, a request does not predict another one: the kernel keeps file bytes itself, and
            // asks for an extent in several parts.
            if (!is_extent(key)) {
                slot.kept->use();
            }
        } else {
            expired = std::move(slot.kept);
            first = slot.waiters.empty();
            urges = !first && why == FetchFor::demand && slot.why != FetchFor::demand;
            if (first || urges) {
                slot.why = why;
            }
            slot.waiters.push_back(std::move(waiter));
            const std::uint32_t demands = why == FetchFor::demand ? 1 : 0;
            slot.demands += demands;
            waiting_ += demands;
        }
    }
    if (hit != nullptr) {
        ++hits_;
        waiter(hit);
        return;
    }
    ++misses_;
    if (expired != nullptr) {
        eviction_.remove(expired);
    }
    extents_in_flight_ += first && is_extent(key) ? 1 : 0;
    if (first || urges) {
        fetch_(key, why);
    }
}

ObjectPtr Cache::find(const ObjectKey& key) {
    KeptPtr kept;
    ObjectPtr object;
    {
        Slots::const_accessor slot;
        if (!slots_.find(slot, key) || !is_current(slot->second)) {
            return nullptr;
        }
        kept = slot->second.kept;
        kept->use();
        object = kept->object;
    }
    if (!kept->expires) {
        return object;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kept->expires - options_.clock());
    Object living = *object;
    living.lifetime = std::max(left, std::chrono::milliseconds(1));
    return std::make_shared<const Object>(std::move(living));
}

ObjectPtr Cache::use(const ObjectKey& key) {
    auto object = find(current(key));
    if (object == nullptr || object->lifetime) {
        return nullptr;
    }
    if (options_.on_demand) {
        options_.on_demand(key);
    }
    return object;
}

Foresight Cache::foresight(const ObjectKey& any_generation) {
    const ObjectKey key = current(any_generation);
    Slots::const_accessor slot;
    const bool is_foreseen =
        slots_.find(slot, key) && (is_current(slot->second) || !slot->second.waiters.empty());
    return is_foreseen ? Foresight::foreseen : Foresight::unforeseen;
}

// Bytes of another version than was asked for, or an error, of a path that somebody has refreshed, perhaps
// since they were read: by now, the file may be of the version asked for.
bool Cache::may_be_outdated(const ObjectKey& key, const Object& object) const {
    if (key.version == 0 || !is_extent(key) ||
        generations_.of({.kind = ObjectKind::entry, .path = key.path}) == 0) {
        return false;
    }
    const Extent* extent = object.extent();
    return extent == nullptr || hash_of(version_of(extent->attributes)) != key.version;
}

void Cache::drop_outdated() {
    eviction_.for_each([this](const KeptPtr& kept) {
        const ObjectKey& key = kept->key;
        Slots::accessor slot;
        if (slots_.find(slot, key) && slot->second.kept == kept &&
            (key.generation != generations_.of(key) || may_be_outdated(key, *kept->object))) {
            slots_.erase(slot);
            eviction_.remove(kept);
        }
    });
}

void Cache::deliver(const ObjectKey& key, const ObjectPtr& object, Copy copy) {
    const TimePoint now = options_.clock();
    auto lifetime = object->lifetime;
    const bool is_doubtful = may_be_outdated(key, *object);
    if (is_doubtful) {
        lifetime = std::min(lifetime.value_or(doubtful_lifetime), doubtful_lifetime);
    }
    const auto expires = lifetime ? std::optional(now + *lifetime) : std::nullopt;
    const auto kept = std::make_shared<Kept>(key, object, footprint(key, *object), expires, copy);
    std::vector<Waiter> waiters;
    std::uint32_t demands = 0;
    KeptPtr replaced;
    {
        Slots::accessor found;
        slots_.insert(found, key);
        Slot& slot = found->second;
        waiters.swap(slot.waiters);
        demands = std::exchange(slot.demands, 0);
        replaced = std::exchange(slot.kept, kept);
    }
    waiting_ -= demands;
    if (!waiters.empty() && is_extent(key)) {
        --extents_in_flight_;
    }
    if (replaced != nullptr) {
        eviction_.remove(replaced);
    }
    for (const auto& leaving : eviction_.admit(kept, now)) {
        forget(leaving);
    }
    // A drop_outdated() meanwhile did not see it: it was not admitted yet.
    if (!is_doubtful && may_be_outdated(key, *object) && forget(kept)) {
        eviction_.remove(kept);
    }
    for (const auto& waiter : waiters) {
        waiter(object);
    }
}

// Removes `kept`. False: something else has removed or replaced it.
bool Cache::forget(const KeptPtr& kept) {
    Slots::accessor slot;
    return slots_.find(slot, kept->key) && slot->second.kept == kept && slots_.erase(slot);
}

void Cache::replace(const ObjectKey& key, const ObjectPtr& object, ObjectPtr equal) {
    Slots::accessor slot;
    if (slots_.find(slot, key) && slot->second.kept != nullptr && slot->second.kept->object == object) {
        slot->second.kept->object.swap(equal);
    }
}

std::uint32_t Cache::read_ahead_extents(ObjectKind kind) const {
    constexpr std::uint64_t budget_share = 8;
    constexpr std::uint64_t of_all_min = 32;
    // What a node reads for itself is read in the order of its asking: what is ahead must not be long.
    const std::uint64_t readers = kind == ObjectKind::extent ? options_.readers : 1;
    const std::uint64_t of_readers = ahead_of_a_reader_extents * readers;
    // More would leave a full cache before it is read.
    const std::uint64_t of_budget =
        std::min(options_.budget_bytes / budget_share, eviction_.room_for_new() / 2) / extent_bytes;
    const std::uint64_t of_a_file = std::max<std::uint64_t>(std::min(of_readers, of_budget), 1);
    const std::uint64_t of_all = std::max(2 * of_a_file, of_all_min);
    return static_cast<std::uint32_t>(
        std::min(of_a_file, of_all - std::min(of_all, extents_in_flight_.load())));
}

Cache::Statistics Cache::statistics() const {
    const auto usage = eviction_.usage();
    return {.objects = usage.objects,
            .bytes = usage.bytes,
            .budget_bytes = options_.budget_bytes,
            .hits = hits_,
            .misses = misses_,
            .evictions = usage.evictions,
            .waiting = waiting_};
}

}  // namespace copper
