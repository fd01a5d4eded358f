#include "fabric/envelope.hpp"

#include <sodium.h>

#include <cstring>
#include <type_traits>

namespace copper {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t tag_bytes = 16;
static_assert(tag_bytes == crypto_shorthash_siphashx24_BYTES &&
              tag_bytes == crypto_shorthash_siphashx24_KEYBYTES);

// Without padding: all bytes of them are written and tagged.
struct Envelope {
    std::array<std::byte, tag_bytes> tag = {};
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint64_t number = 0;
    std::uint64_t heads_bytes = 0;  // of all Heads with their headers
};
static_assert(sizeof(Envelope) == envelope_bytes && std::has_unique_object_representations_v<Envelope>);

struct Head {
    std::uint32_t header_bytes = 0;
    std::uint32_t lane = 0;
    std::uint64_t body_bytes = 0;
};
static_assert(sizeof(Head) == frame_overhead_bytes && std::has_unique_object_representations_v<Head>);

template <typename Value>
Value read(Bytes bytes) {
    Value value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
}

}  // namespace

Sealer::Sealer(const std::optional<JobKey>& key) {
    if (key) {
        key->derive(JobKey::Use::messages, key_.emplace());
    }
}

Sealer::Tag Sealer::tag_of(Bytes bytes) const {
    Tag tag = {};
    if (key_) {
        crypto_shorthash_siphashx24(reinterpret_cast<unsigned char*>(tag.data()),
                                    reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                                    reinterpret_cast<const unsigned char*>(key_->data()));
    }
    return tag;
}

void Sealer::seal(const MessageName& name, std::span<const Frame> frames,
                  std::vector<std::byte>& message) const {
    Envelope envelope{.from = name.from.value, .to = name.to.value, .number = name.number};
    std::size_t body_bytes = 0;
    for (const Frame& frame : frames) {
        envelope.heads_bytes += sizeof(Head) + frame.header.size;
        body_bytes += frame.lane == Lane::eager ? frame.body.size : 0;
    }
    message.clear();
    message.reserve(sizeof(envelope) + envelope.heads_bytes + body_bytes);
    const auto append = [&message](Bytes part) { message.insert(message.end(), part.begin(), part.end()); };
    append(std::as_bytes(std::span(&envelope, 1)));
    for (const Frame& frame : frames) {
        const Head head{static_cast<std::uint32_t>(frame.header.size), static_cast<std::uint32_t>(frame.lane),
                        frame.body.size};
        append(std::as_bytes(std::span(&head, 1)));
        append(frame.header.span());
    }
    const Tag tag = tag_of(Bytes(message).subspan(tag_bytes));
    std::memcpy(message.data(), tag.data(), tag.size());
    for (const Frame& frame : frames) {
        if (frame.lane == Lane::eager) {
            append(frame.body.span());
        }
    }
}

bool Sealer::is_sealed(const MessageName& name, Bytes message) const {
    if (message.size() < sizeof(Envelope)) {
        return false;
    }
    const auto envelope = read<Envelope>(message);
    if (envelope.from != name.from.value || envelope.to != name.to.value || envelope.number != name.number ||
        envelope.heads_bytes > message.size() - sizeof(Envelope)) {
        return false;
    }
    const Tag tag = tag_of(message.subspan(tag_bytes, sizeof(Envelope) - tag_bytes + envelope.heads_bytes));
    return sodium_memcmp(tag.data(), envelope.tag.data(), tag.size()) == 0;  // in constant time
}

MessageReader::MessageReader(Bytes message) {
    const auto heads_bytes = read<Envelope>(message).heads_bytes;
    heads_ = message.subspan(sizeof(Envelope), heads_bytes);
    bodies_ = message.subspan(sizeof(Envelope) + heads_bytes);
}

std::optional<MessageReader::Part> MessageReader::next() {
    if (heads_.size() < sizeof(Head)) {
        return std::nullopt;
    }
    const auto head = read<Head>(heads_);
    const auto rest = heads_.subspan(sizeof(Head));
    const bool is_eager = head.lane == static_cast<std::uint32_t>(Lane::eager);
    if (head.lane >= lane_count || head.header_bytes > rest.size() || head.body_bytes > body_bytes_max ||
        (is_eager && head.body_bytes > bodies_.size())) {
        return std::nullopt;
    }
    const std::size_t body_bytes = is_eager ? head.body_bytes : 0;
    const Part part{.lane = static_cast<Lane>(head.lane),
                    .header = rest.first(head.header_bytes),
                    .body = bodies_.first(body_bytes),
                    .body_bytes = head.body_bytes};
    heads_ = rest.subspan(head.header_bytes);
    bodies_ = bodies_.subspan(body_bytes);
    return part;
}

}  // namespace copper
