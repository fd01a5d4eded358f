#include "daemon/backing_reads.hpp"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <utility>

#include "base/error_text.hpp"

namespace copper {

// The pool has a thread for each read, so none waits there.
void BackingReads::begin(const ObjectKey& key, const Link& link) {
    const auto progress = std::make_shared<ReadProgress>();
    progress_[key] = progress;
    if (!pool_.submit([this, key, progress, link] { done_(key, read(key, link, *progress)); })) {
        done_(key, make_error(EAGAIN));
    }
}

// Runs in a thread of the pool.
ObjectPtr BackingReads::read(const ObjectKey& key, const Link& link, ReadProgress& progress) {
    ObjectPtr object = backing_.read(key, progress);
    if (object->extent() == nullptr && object->bytes() > object_bytes_max) {
        if (!warned_of_large_object_.exchange(true)) {
            spdlog::warn(
                "{} takes {} bytes, too many for an object; requests for such objects fail with \"{}\"",
                to_string(key), object->bytes(), error_text(E2BIG));
        }
        return make_error(E2BIG);
    }
    const bool is_shared = key.kind == ObjectKind::extent && trees_.contains(key.path);
    return is_shared ? compressor_.compress(key, std::move(object), link) : object;
}

}  // namespace copper
