// Guesses what the dynamic linker reads next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/guesses/ahead.hpp"

namespace copper {

// What the program headers of an ELF file say (elf(5)).
struct ElfFile {
    struct Segment {
        std::uint64_t address = 0;
        FileSpan in_file;
        bool is_read_first = false;  // symbols, or what is relocated
    };
    std::vector<Segment> segments;  // that are mapped
    FileSpan dynamic;

    std::optional<std::uint64_t> offset_of(std::uint64_t address) const;
};
// Nothing if these are not the first bytes of a shared library for this machine.
std::optional<ElfFile> elf_file_of(std::span<const std::byte> first_bytes);

// Of the dynamic section.
struct ElfDynamic {
    std::uint64_t text_address = 0;            // where the names are
    std::vector<std::uint64_t> needed;         // of libraries, as offsets of names
    std::optional<std::uint64_t> search_path;  // its offset among the names
};
ElfDynamic elf_dynamic_of(std::string_view section);

// The directories of a library's search path that are given relative to the library ($ORIGIN, ld.so(8)).
// Absolute ones lead around the mirror.
std::vector<std::string> places_of(std::string_view search_path, std::string_view origin);

// A shared library says where its symbols and its relocated data are, and which libraries it needs. All of
// that is read as it is loaded, so it is fetched at the same time; the same for the libraries that it needs,
// if they lie beside it or in its search path.
//
// Thread-safe.
class Libraries : public std::enable_shared_from_this<Libraries> {
  public:
    static constexpr std::uint64_t bytes_max = 8 * extent_bytes;
    static constexpr std::size_t needed_max = 256;  // of one library
    static constexpr std::size_t places_max = 16;

    Libraries(std::shared_ptr<Ahead> ahead, GuessCounters& counters)
        : ahead_(std::move(ahead)), counters_(counters) {}

    // A program has read the file, or will probably.
    void read(const FirstBytes& file);

  private:
    void follow(const FirstBytes& file, const ElfFile& elf, const ElfDynamic& dynamic);
    void look_for(const FirstBytes& file, std::uint64_t text_offset, const std::vector<std::uint64_t>& needed,
                  const std::vector<std::string>& places);
    void need(const std::string& directory, const std::string& name);

    const std::shared_ptr<Ahead> ahead_;
    GuessCounters& counters_;
};

}  // namespace copper
