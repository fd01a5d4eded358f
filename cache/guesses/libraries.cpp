#include "cache/guesses/libraries.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

using Header = ElfW(Ehdr);
using ProgramHeader = ElfW(Phdr);
using DynamicEntry = ElfW(Dyn);

constexpr unsigned char this_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr unsigned char this_order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

}  // namespace

std::optional<std::uint64_t> ElfFile::offset_of(std::uint64_t address) const {
    for (const Segment& segment : segments) {
        if (address >= segment.address && address - segment.address < segment.in_file.bytes) {
            return segment.in_file.offset + (address - segment.address);
        }
    }
    return std::nullopt;
}

std::optional<ElfFile> elf_file_of(std::span<const std::byte> bytes) {
    Header header;
    if (bytes.size() < sizeof header) {
        return std::nullopt;
    }
    std::memcpy(&header, bytes.data(), sizeof header);
    const bool is_library = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                            header.e_ident[EI_CLASS] == this_class && header.e_ident[EI_DATA] == this_order &&
                            header.e_type == ET_DYN && header.e_phentsize == sizeof(ProgramHeader);
    const std::uint64_t table_bytes = std::uint64_t{header.e_phnum} * sizeof(ProgramHeader);
    if (!is_library || header.e_phoff > bytes.size() || table_bytes > bytes.size() - header.e_phoff) {
        return std::nullopt;
    }
    ElfFile file;
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        ProgramHeader program;
        std::memcpy(&program, bytes.data() + header.e_phoff + i * sizeof program, sizeof program);
        const FileSpan in_file{.offset = program.p_offset, .bytes = program.p_filesz};
        if (program.p_type == PT_DYNAMIC) {
            file.dynamic = in_file;
        } else if (program.p_type == PT_LOAD) {
            const bool is_first = file.segments.empty();
            file.segments.push_back({.address = program.p_vaddr,
                                     .in_file = in_file,
                                     .is_read_first = is_first || (program.p_flags & PF_W) != 0});
        }
    }
    return file;
}

ElfDynamic elf_dynamic_of(std::string_view section) {
    ElfDynamic dynamic;
    for (; section.size() >= sizeof(DynamicEntry); section.remove_prefix(sizeof(DynamicEntry))) {
        DynamicEntry entry;
        std::memcpy(&entry, section.data(), sizeof entry);
        if (entry.d_tag == DT_STRTAB) {
            dynamic.text_address = entry.d_un.d_ptr;
        } else if (entry.d_tag == DT_NEEDED) {
            dynamic.needed.push_back(entry.d_un.d_val);
        } else if (entry.d_tag == DT_RUNPATH || (entry.d_tag == DT_RPATH && !dynamic.search_path)) {
            dynamic.search_path = entry.d_un.d_val;  // ld.so ignores DT_RPATH if there is DT_RUNPATH
        } else if (entry.d_tag == DT_NULL) {
            break;
        }
    }
    return dynamic;
}

std::vector<std::string> places_of(std::string_view search_path, std::string_view origin) {
    std::vector<std::string> places;
    while (!search_path.empty()) {
        const std::string_view entry = search_path.substr(0, search_path.find(':'));
        search_path.remove_prefix(std::min(entry.size() + 1, search_path.size()));
        for (const std::string_view token : {"$ORIGIN", "${ORIGIN}"}) {
            const std::string_view rest = entry.substr(std::min(token.size(), entry.size()));
            if (entry.starts_with(token) && (rest.empty() || rest.starts_with('/'))) {
                const auto path = std::filesystem::path(origin).concat(rest).lexically_normal();
                if (auto place = normalise_path(path.native())) {
                    places.push_back(*std::move(place));
                }
            }
        }
    }
    return places;
}

void Libraries::read(const FirstBytes& file) {
    if (!is_library(base_name(file.path)) || !ahead_->remember(file.path)) {
        return;
    }
    const auto plain = ahead_->first_bytes(file);
    const auto elf = plain ? elf_file_of(plain->bytes) : std::nullopt;
    if (!elf) {
        return;
    }
    ahead_->bytes(file, elf->dynamic.offset,
                  static_cast<std::size_t>(std::min<std::uint64_t>(elf->dynamic.bytes, extent_bytes)),
                  [self = shared_from_this(), file, elf = *elf](std::string_view section) {
                      self->follow(file, elf, elf_dynamic_of(section));
                  });
    for (const auto& segment : elf->segments) {
        if (segment.is_read_first) {
            ahead_->extents(
                file, {.offset = segment.in_file.offset, .bytes = std::min(segment.in_file.bytes, bytes_max)},
                Ahead::Needed::soon);
        }
    }
    if (file.attributes.size <= bytes_max) {
        ahead_->extents(file, {.offset = 0, .bytes = file.attributes.size}, Ahead::Needed::later);
    }
}

void Libraries::follow(const FirstBytes& file, const ElfFile& elf, const ElfDynamic& dynamic) {
    const auto text = elf.offset_of(dynamic.text_address);
    if (!text) {
        return;
    }
    // If the search path cannot be read, nothing is fetched: the linker could not load such a library either.
    const std::vector<std::string> beside = {std::string(parent_path(file.path))};
    if (!dynamic.search_path) {
        look_for(file, *text, dynamic.needed, beside);
        return;
    }
    ahead_->bytes(file, *text + *dynamic.search_path, path_bytes_max,
                  [self = shared_from_this(), file, text = *text, needed = dynamic.needed,
                   places = beside](std::string_view path) mutable {
                      const auto more = places_of(path.substr(0, path.find('\0')), places.front());
                      std::copy_n(more.begin(), std::min(more.size(), places_max),
                                  std::back_inserter(places));
                      self->look_for(file, text, needed, places);
                  });
}

void Libraries::look_for(const FirstBytes& file, std::uint64_t text_offset,
                         const std::vector<std::uint64_t>& needed, const std::vector<std::string>& places) {
    for (std::size_t i = 0; i < std::min(needed.size(), needed_max); ++i) {
        ahead_->bytes(file, text_offset + needed[i], name_bytes_max,
                      [self = shared_from_this(), places](std::string_view text) {
                          const std::string name(text.substr(0, text.find('\0')));
                          for (const std::string& directory : places) {
                              self->need(directory, name);
                          }
                      });
    }
}

void Libraries::need(const std::string& directory, const std::string& name) {
    if (!is_valid_name(name)) {
        return;
    }
    ahead_->names(directory, [self = shared_from_this(), directory, name](const Directory& names) {
        const std::string path = join_path(directory, name);
        if (names.names.find(name) && self->ahead_->remember("needed " + path)) {
            self->ahead_->file(path, self->counters_, [self](const FirstBytes& file) { self->read(file); });
        }
    });
}

}  // namespace copper
