// Fetching ahead what a program will probably read next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/guesses/ahead.hpp"

namespace copper {

class Imports;
class Libraries;
class Siblings;

// An import reads thousands of files, one after the other, and each waits for a slow filesystem alone. But
// what has been read tells what will be. Guessers look at it and fetch that, behind what programs wait for. A
// filesystem that answers at once gains nothing by that, and is left alone.
//
// Only what nobody foresaw leads to guesses, and what was guessed itself. Where a profile or other nodes
// foresaw an object, they foresee what follows, too, and guesses would take processor time from the programs.
//
// Thread-safe.
class Guesses {
  public:
    struct Counters {
        GuessCounters siblings;
        GuessCounters imports;
        GuessCounters libraries;
    };

    // `cache` must outlive what this asks of it, and `counters` that too.
    Guesses(Cache& cache, const Trees& trees, Counters& counters, std::uint64_t file_bytes_max);
    ~Guesses();

    // A program looks a name up that is there.
    void looked_up(const std::string& path, Foresight foresight);
    // A program has read the beginning of a file.
    void read(const std::string& path, const ObjectPtr& first_extent, Foresight foresight);

  private:
    const std::shared_ptr<Ahead> ahead_;
    const std::unique_ptr<Siblings> siblings_;
    const std::shared_ptr<Libraries> libraries_;
    const std::shared_ptr<Imports> imports_;
};

}  // namespace copper
