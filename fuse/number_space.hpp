// The inode numbers that programs see.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "cache/object.hpp"

namespace copper {

// The part of the number space that one backing filesystem has. All of a mirror has one st_dev, and two
// filesystems often have equal inode numbers. Programs take two files of equal (st_dev, st_ino) for one.
// Overlayfs' xino is the model (Documentation/filesystems/overlayfs.rst, "Inode properties"), but clients of
// parallel filesystems use all 64 bits, so a shift has no room. XOR keeps the numbers of one filesystem
// distinct, and equal for hard links. The hash of the filesystem's root path is the same on all nodes. It has
// 53 bits, so numbers that are exact in a double (JavaScript) stay so.
class NumberSpace {
  public:
    // The numbers as the backing filesystem has them: for the filesystem that the first tree is on, so that a
    // mirror of one filesystem tells its numbers.
    static NumberSpace unchanged() { return NumberSpace(0); }
    static NumberSpace of(std::string root_path) {
        constexpr std::uint64_t bits = (std::uint64_t{1} << 53) - 1;
        return NumberSpace(hash_of({.kind = ObjectKind::entry, .path = std::move(root_path)}) & bits);
    }

    auto operator<=>(const NumberSpace&) const = default;

    // Never 0, which means "deleted" in a directory. (No file has the number 0, so `mask_` is free.)
    std::uint64_t number(std::uint64_t backing_inode) const {
        return backing_inode != mask_ ? backing_inode ^ mask_ : mask_;
    }

  private:
    explicit NumberSpace(std::uint64_t mask) : mask_(mask) {}
    std::uint64_t mask_;
};

}  // namespace copper
