#include "fuse/passthrough.hpp"

#include <algorithm>
#include <utility>

namespace copper {

std::unique_ptr<Passthrough> Passthrough::start(Cache& cache, UniqueFd memory, Kernel kernel) {
    const auto probe = memory ? LocalFile::make(memory.get(), 1, {}) : nullptr;
    const BackingId id = probe != nullptr ? kernel.add(probe->descriptor()) : 0;
    if (id == 0) {
        return nullptr;
    }
    kernel.remove(id);
    return std::make_unique<Passthrough>(cache, std::move(memory), std::move(kernel));
}

Passthrough::Passthrough(Cache& cache, UniqueFd memory, Kernel kernel)
    : cache_(cache), memory_(std::move(memory)), kernel_(std::move(kernel)) {}

Passthrough::~Passthrough() {
    ends_ = true;
}

std::optional<BackingId> Passthrough::open(InodeId inode, const Version& version) {
    std::shared_ptr<const LocalFile> file;
    {
        auto inodes = inodes_.lock();
        const Inode& known = (*inodes)[inode];
        if (known.openings == 0) {
            file = known.kept.lock();
        }
    }
    BackingId id = file != nullptr && version == file->version() ? kernel_.add(file->descriptor()) : 0;
    std::optional<BackingId> answer;
    {
        auto inodes = inodes_.lock();
        Inode& known = (*inodes)[inode];
        if (known.openings == 0 && id != 0) {
            known.id = std::exchange(id, 0);
            known.open = std::move(file);
        }
        if (known.open == nullptr || version == known.open->version()) {
            ++known.openings;
            answer = known.id;
        }
    }
    if (id != 0) {
        kernel_.remove(id);  // another thread opened it first
    }
    return answer;
}

Passthrough::Next Passthrough::close(InodeId inode) {
    std::shared_ptr<const LocalFile> file;  // destroyed without the lock
    BackingId id = 0;
    Next next = Next::nothing;
    {
        auto inodes = inodes_.lock();
        const auto known = inodes->find(inode);
        if (known != inodes->end() && --known->second.openings == 0) {
            id = std::exchange(known->second.id, 0);
            file = std::move(known->second.open);
            next = known->second.kept.expired() ? Next::collect : Next::nothing;
        }
    }
    if (id != 0) {
        kernel_.remove(id);
    }
    return next;
}

void Passthrough::collect(InodeId inode, const ObjectKey& key, const Attributes& attributes) {
    if (attributes.size < file_bytes_min) {
        return;
    }
    // If too many are waiting, the next close tries again.
    static_cast<void>(collector_.submit([this, inode, key, attributes] {
        {
            // It may have been closed several times meanwhile.
            auto inodes = inodes_.lock();
            if (const auto known = inodes->find(inode);
                known == inodes->end() || !known->second.kept.expired()) {
                return;
            }
        }
        const auto file = collected(key, attributes);
        auto inodes = inodes_.lock();
        if (const auto known = inodes->find(inode); file != nullptr && known != inodes->end()) {
            known->second.kept = file;
        }
    }));
}

std::shared_ptr<const LocalFile> Passthrough::collected(ObjectKey key, const Attributes& attributes) {
    const Version version = version_of(attributes);
    const auto find = [&](std::uint64_t offset) -> ObjectPtr {
        key.index = static_cast<std::uint32_t>(offset / extent_bytes);
        auto object = cache_.find(cache_.current(key));
        const Extent* extent = object != nullptr ? object->extent() : nullptr;
        const bool is_right = extent != nullptr && version_of(extent->attributes) == version &&
                              extent->coding != Coding::lz4 &&
                              extent->plain_bytes == std::min(extent_bytes, attributes.size - offset);
        return is_right ? object : nullptr;
    };
    // Most incomplete files show it soon: check before starting.
    for (std::uint64_t offset = 0; offset < attributes.size; offset += extent_bytes) {
        if (find(offset) == nullptr) {
            return nullptr;
        }
    }
    const auto file = LocalFile::make(memory_.get(), attributes.size, version);
    for (std::uint64_t offset = 0; file != nullptr && offset < attributes.size; offset += extent_bytes) {
        const ObjectPtr object = find(offset);
        if (ends_ || object == nullptr || !file->write(object->extent()->blob.span(), offset)) {
            return nullptr;
        }
        if (object->extent()->coding == Coding::zeros) {
            continue;  // the local file has a hole there
        }
        Extent extent = *object->extent();
        extent.blob.data = {file, file->bytes().data() + offset};
        cache_.replace(key, object, make_object(std::move(extent), object->lifetime));
    }
    return file;
}

void Passthrough::forget(InodeId inode) {
    const auto known = inodes_.lock()->extract(inode);
    if (known && known.mapped().id != 0) {
        kernel_.remove(known.mapped().id);  // an interrupted open
    }
}

}  // namespace copper
