#include "cache/guesses/imports.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

constexpr std::string_view cache_directory = "__pycache__";

bool is_part_of_identifier(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

bool has_type(const Directory& directory, std::string_view name, std::uint32_t type) {
    const auto at = directory.names.find(name);
    return at && (directory.names.at(*at).attributes.mode & S_IFMT) == type;
}

bool has_prefix_at(const Listing& names, std::size_t index, std::string_view prefix) {
    return index < names.size() && names.name(index).starts_with(prefix);
}

// What is remembered of a module.
std::string module_key(std::string_view directory, std::string_view module, std::string_view suffix) {
    return join_path(directory, module).append(suffix);
}

// Where the package lies: the directories from that of the module to the one that is in sys.path.
std::vector<std::pair<std::string, ObjectPtr>> places_of(Ahead& ahead, std::string directory) {
    std::vector<std::pair<std::string, ObjectPtr>> places;
    while (ObjectPtr names = ahead.known_names(directory)) {
        const bool is_package = names->directory()->names.find("__init__.py").has_value();
        places.emplace_back(directory, std::move(names));
        if (!is_package || directory == "/") {
            break;
        }
        directory = std::string(parent_path(directory));
    }
    return places;
}

}  // namespace

// marshal.c: w_short_pstring. A type, a length of one byte, and the text.
std::vector<std::string_view> identifiers_of(std::span<const std::byte> compiled) {
    constexpr unsigned char short_interned = 'Z', reference_flag = 0x80;
    const std::string_view text(reinterpret_cast<const char*>(compiled.data()), compiled.size());
    std::vector<std::string_view> found;
    for (std::size_t i = 0; i + 2 < text.size(); ++i) {
        const auto type = static_cast<unsigned char>(text[i]);
        const auto length = static_cast<unsigned char>(text[i + 1]);
        if ((type & ~reference_flag) != short_interned || length == 0 || i + 2 + length > text.size()) {
            continue;
        }
        const std::string_view name = text.substr(i + 2, length);
        if (std::all_of(name.begin(), name.end(), is_part_of_identifier)) {
            found.push_back(name);
        }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

void Imports::read(const FirstBytes& file) {
    const std::string_view name = base_name(file.path);
    const std::string_view holder = parent_path(file.path);
    const auto dot = name.find('.');
    if (!name.ends_with(".pyc") || base_name(holder) != cache_directory || !ahead_->remember(file.path)) {
        return;
    }
    const std::string suffix(name.substr(dot));  // .cpython-311.pyc
    ahead_->remember(module_key(parent_path(holder), name.substr(0, dot), suffix));
    const auto plain = ahead_->first_bytes(file);
    const auto places = places_of(*ahead_, std::string(parent_path(holder)));
    if (!plain || places.empty()) {
        return;
    }
    for (const std::string_view identifier : identifiers_of(plain->bytes)) {
        const bool has_dot = identifier.find('.') != std::string_view::npos;
        for (std::size_t i = 0; i < places.size(); ++i) {
            if (has_dot || i == 0 || i + 1 == places.size()) {
                module(places[i].first, *places[i].second->directory(), identifier, suffix);
            }
        }
    }
}

void Imports::module(const std::string& directory, const Directory& names, std::string_view module,
                     const std::string& suffix) {
    const std::string_view front = module.substr(0, module.find('.'));
    // Most identifiers name no module.
    if (!has_prefix_at(names.names, names.names.first_from(front), front)) {
        return;
    }
    const std::string first(front);
    const std::string_view rest = module.substr(std::min(first.size() + 1, module.size()));
    if (!has_type(names, first, S_IFDIR)) {
        if (rest.empty()) {
            files_of(directory, names, first, suffix);
        }
        return;
    }
    const std::string path = join_path(directory, first);
    package(path, suffix);
    if (!rest.empty()) {
        ahead_->names(path, [self = shared_from_this(), path, rest = std::string(rest),
                             suffix](const Directory& below) { self->module(path, below, rest, suffix); });
    }
}

void Imports::package(const std::string& directory, const std::string& suffix) {
    if (!ahead_->remember(directory + suffix)) {
        return;
    }
    ahead_->names(directory, [self = shared_from_this(), directory, suffix](const Directory& names) {
        if (names.names.find("__init__.py")) {
            self->ahead_->entry(directory, [](const Listing::Entry&) {});
            self->files_of(directory, names, "__init__", suffix);
        }
    });
}

void Imports::files_of(const std::string& directory, const Directory& names, const std::string& module,
                       const std::string& suffix) {
    const std::string prefix = module + '.';
    const Listing& listing = names.names;
    std::size_t at = listing.first_from(prefix);
    if (!has_prefix_at(listing, at, prefix) || !ahead_->remember(module_key(directory, module, suffix))) {
        return;
    }
    for (; has_prefix_at(listing, at, prefix); ++at) {
        const std::string path = join_path(directory, listing.name(at));
        if (is_library(path)) {
            ahead_->file(path, counters_, extension_arrived_);
        } else if (path.ends_with(".py")) {
            ahead_->entry(path, [](const Listing::Entry&) {});
            if (has_type(names, cache_directory, S_IFDIR)) {
                compiled_code(directory, module + suffix);
            }
        }
    }
}

void Imports::compiled_code(const std::string& directory, const std::string& name) {
    const std::string holder = join_path(directory, cache_directory);
    ahead_->entry(holder, [](const Listing::Entry&) {});
    ahead_->names(holder,
                  [self = shared_from_this(), path = join_path(holder, name), name](const Directory& names) {
                      if (names.names.find(name)) {
                          self->ahead_->file(path, self->counters_, [](const FirstBytes&) {});
                      }
                  });
}

}  // namespace copper
