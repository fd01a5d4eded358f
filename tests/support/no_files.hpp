#pragma once

#include <cerrno>
#include <string>

#include "cache/backing_store.hpp"

namespace copper::test {

// An empty filesystem.
class NoFiles final : public BackingStore {
  public:
    ObjectPtr read(const ObjectKey&, ReadProgress&) override { return make_error(ENOENT); }
    std::string filesystem_of(const std::string&) override { return "/"; }
};

}  // namespace copper::test
