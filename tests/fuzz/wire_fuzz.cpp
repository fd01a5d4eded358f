// Frames from other nodes: what decodes can be used, and encodes to the same message.
#include <variant>
#include <vector>

#include "base/checksum.hpp"
#include "cache/codec.hpp"
#include "tests/fuzz/wire_input.hpp"
#include "tests/support/messages.hpp"
#include "wire/wire.hpp"

namespace copper::fuzz {
namespace {

Frame sealed(Bytes table, Bytes body) {
    std::vector<std::byte> header(wire_checksum_bytes + table.size());
    const auto copy = std::span(header).subspan(wire_checksum_bytes);
    std::copy(table.begin(), table.end(), copy.begin());
    replace_each(copy, body_checksum_mark, checksum_of(body));
    const std::uint64_t sum = checksum_of(copy);
    std::memcpy(header.data(), &sum, sizeof sum);
    return {.header = copy_to_blob(header), .body = copy_to_blob(body)};
}

void use(const Listing& listing) {
    for (std::size_t i = 0; i < listing.size(); ++i) {
        must(listing.find(listing.at(i).name) == i, "a listing finds its names");
    }
    must(!listing.find("."), "a listing has valid names only");
}

void use(const Extent& extent) {
    static const auto memory = ExtentMemory::make();
    must(extent.plain_bytes <= extent_bytes, "an extent holds no more than extent_bytes");
    const std::size_t offset = extent.plain_bytes / 3;
    const auto all = read_plain(extent, 0, extent.plain_bytes, *memory);
    const auto part = read_plain(extent, offset, extent.plain_bytes, *memory);
    must(!all || all->bytes.size() == extent.plain_bytes, "an extent has the bytes that it claims");
    must(!all || (part && std::ranges::equal(part->bytes, all->bytes.subspan(offset))),
         "a part of an extent is that part of it");
}

void use(const Directory& directory) {
    use(directory.names);
    must(!directory.names.has_attributes(), "a directory has names alone");
    must(directory.names.size() == 0 || directory.has_all_names(), "a directory has all names or none");
    for (std::uint32_t piece = 0; piece < directory.first_names.size(); ++piece) {
        must(directory.piece_of(directory.first_names[piece]) == piece,
             "a piece's first name is in that piece");
    }
    for (std::size_t i = 0; i < directory.names.size(); ++i) {
        must(directory.piece_of(directory.names.at(i).name) == 0U, "the only piece holds all names");
    }
}

// Of what has no other limit.
std::size_t text_bytes(const Message& message) {
    std::size_t bytes = 0;
    if (const auto* answer = std::get_if<Answer>(&message)) {
        for (const auto& part : answer->parts) {
            bytes += part.text.size();
        }
    }
    const auto* publication = std::get_if<Publication>(&message);
    if (publication != nullptr && publication->object->xattrs() != nullptr) {
        for (const auto& [name, value] : *publication->object->xattrs()) {
            bytes += name.size() + value.size();
        }
    }
    if (publication != nullptr && publication->object->xattr_batch() != nullptr) {
        for (const auto& entry : publication->object->xattr_batch()->entries) {
            bytes += entry.name.size();
            for (const auto& [name, value] : entry.xattrs.value_or(Xattrs())) {
                bytes += name.size() + value.size();
            }
        }
    }
    return bytes;
}

void use(const Message& message) {
    const auto* publication = std::get_if<Publication>(&message);
    if (publication == nullptr) {
        return;
    }
    must(!to_string(publication->key).empty(), "a key has a name");
    must(file_tree_of(publication->key).starts_with('/'), "an object belongs to a file tree");
    if (const auto* listing = publication->object->listing()) {
        use(*listing);
    } else if (const auto* extent = publication->object->extent()) {
        use(*extent);
    } else if (const auto* directory = publication->object->directory()) {
        use(*directory);
    }
}

}  // namespace
}  // namespace copper::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace copper;
    fuzz::Input input(data, size);
    const auto table = input.take(input.take_number<std::uint16_t>());
    const auto message = decode(fuzz::sealed(table, input.rest()));
    if (!message) {
        fuzz::must(!message.error().reason.empty(), "a refusal has a reason");
        return 0;
    }
    fuzz::use(*message);
    fuzz::must(fuzz::text_bytes(*message) <= input.rest().size(), "a message is no larger than its frame");
    const Frame again = encode(*message);
    if (const auto* publication = std::get_if<Publication>(&*message)) {
        fuzz::must(again.body.size <= publication->object->bytes(),
                   "an object never takes more bytes on the wire than in memory");
    }
    const auto back = decode(again);
    fuzz::must(back.has_value(), "what was decoded can be encoded and decoded again");
    fuzz::must(test::equal(*message, *back), "and is the same then");
    return 0;
}
