// What readers found that could not read an object. It may be the fault of their own mounts, so another
// reader is asked for a second opinion.
//
// A reader that has read the object, or finds that it is slow:
//
//   what it found               what others found  then
//   -------------------------   -----------------  --------------------------------------------------------
//   the object, beyond doubt    anything           believe it; who could not read it resigns its office
//   nothing, or an error        the same           believe it twice as long: it is so for all
//                               something else     ask the next reader; without one, it is for the programs
//                                                  of this node alone, for a while
//   that the read takes long    the same           go on reading: the filesystem is slow for all
//                               something else     ask the next reader, and go on reading
//
// Values, part of the Mover.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cache/object.hpp"
#include "wire/message.hpp"

namespace copper {

// Of one object. At most one for each reader.
class Opinions {
  public:
    Opinions() = default;
    explicit Opinions(std::vector<Finding> findings) : findings_(std::move(findings)) {}

    const std::vector<Finding>& findings() const { return findings_; }
    bool empty() const { return findings_.empty(); }
    std::vector<Rank> readers() const;
    // Nothing if it has not tried.
    const Finding* of(Rank reader) const;
    // Not beyond findings_max readers.
    void set(Finding finding);
    void forget(Rank reader);

    enum class Verdict : std::uint8_t { believe, believe_longer, ask_another };
    // When `reader` has found `object`.
    Verdict on(const Object& object, Rank reader) const;
    // The others that found that the read takes long. They may still read.
    std::vector<Rank> slow_besides(Rank reader) const;

  private:
    std::vector<Finding> findings_;
};

// What a reader found. Nothing if it is beyond doubt.
std::optional<int> doubt_of(const Object& object);

// A finding as the answer, which nobody has confirmed.
ObjectPtr object_of(const Finding& finding, ObjectKind kind);
// Nobody has confirmed what this node found, and other nodes may find something better.
ObjectPtr for_this_node(const ObjectPtr& object);
// Two nodes have met the same error. It has taken two reads, so it is kept twice as long as one that takes
// one read: many programs may ask for what nobody may read.
ObjectPtr confirmed(const ObjectPtr& object);

}  // namespace copper
