// Finds an inode's record.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuse/inode_records.hpp"

namespace copper {

// A hash table of the Positions of records, which contain their own keys. It takes 4 bytes per place, and at
// most three quarters of the places are in use. Open addressing with linear probing. Records after an erased
// one move up (Knuth, TAOCP 3, 6.4, algorithm R), so there are no tombstones.
//
// `Key` returns the hash of the record at a position: std::uint64_t operator()(Position) const.
template <typename Key>
class RecordIndex {
  public:
    using Position = InodeRecords::Position;

    explicit RecordIndex(Key key) : key_(key) {}

    // 0 if no record has that hash and is_meant(position).
    template <typename IsMeant>
    Position find(std::uint64_t hash, IsMeant is_meant) const {
        std::size_t place = home(hash);
        while (places_[place] != 0 && !is_meant(places_[place])) {
            place = after(place);
        }
        return places_[place];
    }

    void insert(Position position) {
        if ((size_ + 1) * 4 > places_.size() * 3) {
            grow();
        }
        put(position);
        ++size_;
    }

    // REQUIRES: it is in the table, and its record still has the same hash.
    void erase(Position position) {
        std::size_t hole = home(key_(position));
        while (places_[hole] != position) {
            hole = after(hole);
        }
        for (std::size_t next = after(hole); places_[next] != 0; next = after(next)) {
            // It may move up to the hole unless its home lies behind the hole.
            if (distance(home(key_(places_[next])), next) >= distance(hole, next)) {
                places_[hole] = places_[next];
                hole = next;
            }
        }
        places_[hole] = 0;
        --size_;
    }

    void clear() {
        places_ = std::vector<Position>(places_min);
        size_ = 0;
    }

    std::size_t size() const { return size_; }

  private:
    static constexpr std::size_t places_min = 1024;

    std::size_t home(std::uint64_t hash) const {
        constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15U;  // spreads into the upper bits
        return static_cast<std::size_t>((hash * golden_ratio) >> (64 - std::bit_width(places_.size() - 1)));
    }
    std::size_t after(std::size_t place) const { return (place + 1) & (places_.size() - 1); }
    std::size_t distance(std::size_t from, std::size_t to) const {
        return (to - from) & (places_.size() - 1);
    }

    void put(Position position) {
        std::size_t place = home(key_(position));
        while (places_[place] != 0) {
            place = after(place);
        }
        places_[place] = position;
    }

    void grow() {
        std::vector<Position> old(2 * places_.size());
        old.swap(places_);
        for (const Position position : old) {
            if (position != 0) {
                put(position);
            }
        }
    }

    Key key_;
    std::vector<Position> places_ = std::vector<Position>(places_min);  // a power of two
    std::size_t size_ = 0;
};

}  // namespace copper
