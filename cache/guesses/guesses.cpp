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

void Guesses::looked_up(const std::string& path) {
    siblings_->used(path, Siblings::Use::looked_up);
}

// Where somebody else fetches the same ahead (a profile, or nodes that are further on), looking into files
// leads to nothing new, and takes a quarter of the daemon's processor time in an import.
bool Guesses::is_worth_a_look() {
    const std::uint32_t files = in_vain_++;
    return files < in_vain_max || files % sampled_every == sampled_every - 1;
}

void Guesses::read(const std::string& path, const ObjectPtr& first_extent) {
    siblings_->used(path, Siblings::Use::read);
    const Extent* extent = first_extent->extent();
    if (extent == nullptr || first_extent->lifetime ||
        ahead_->known_names(std::string(parent_path(path))) == nullptr) {
        return;
    }
    ahead_->used(path);
    if (!is_worth_a_look()) {
        return;
    }
    const std::uint64_t missed = ahead_->missed();
    const FirstBytes file{.path = path, .attributes = extent->attributes, .extent = first_extent};
    libraries_->read(file);
    imports_->read(file);
    if (ahead_->missed() != missed) {
        in_vain_ = 0;
    }
}

}  // namespace copper
