#include "cache/guesses/guesses.hpp"

#include "base/path.hpp"
#include "cache/guesses/imports.hpp"
#include "cache/guesses/libraries.hpp"
#include "cache/guesses/siblings.hpp"

namespace copper {

Guesses::Guesses(Cache& cache, const Trees& trees, Counters& counters, std::uint64_t file_bytes_max)
    : ahead_(std::make_shared<Ahead>(cache, trees, file_bytes_max)),
      siblings_(std::make_unique<Siblings>(ahead_, counters.siblings)),
      libraries_(std::make_shared<Libraries>(ahead_, counters.libraries)),
      imports_(std::make_shared<Imports>(
          ahead_, counters.imports,
          [libraries = libraries_](const FirstBytes& file) { libraries->read(file); })) {}

Guesses::~Guesses() = default;

void Guesses::looked_up(const std::string& path, Foresight foresight) {
    siblings_->used(path, Siblings::Use::looked_up, foresight);
}

void Guesses::read(const std::string& path, const ObjectPtr& first_extent, Foresight foresight) {
    const Extent* extent = first_extent->extent();
    if (extent == nullptr || first_extent->lifetime ||
        ahead_->known_names(std::string(parent_path(path))) == nullptr) {
        return;
    }
    if (ahead_->used(path)) {
        foresight = Foresight::unforeseen;  // our own guess: keep guessing from it
    }
    const bool is_sibling = siblings_->used(path, Siblings::Use::read, foresight);
    if (foresight == Foresight::foreseen && !is_sibling) {
        return;
    }
    const FirstBytes file{.path = path, .attributes = extent->attributes, .extent = first_extent};
    libraries_->read(file);
    imports_->read(file);
}

}  // namespace copper
