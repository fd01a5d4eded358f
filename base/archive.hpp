// Values as bytes, and back. One description of a type serves both directions:
//
//     void describe(auto& archive, MaybeConst<News> auto& news) {
//         archive(news.rank, news.incarnation, at_most(news.state, NodeState::dead));
//     }
//
// Numbers take their size, little endian. A text or a vector begins with its length (LEB128), an optional
// value with whether it is there, a variant with its index. Nothing is aligned.
//
// A Reader trusts nothing: after the first value that is not there or cannot be, is_sound() is false, and
// what was read is of no use. Enumerators and whatever else has a limit need at_most().
//
// Values, without threads or I/O.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace copper {

static_assert(std::endian::native == std::endian::little);

template <typename T, typename Value>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Value>;

// Of which any bytes are one.
template <typename T>
inline constexpr bool is_plain_number =
    std::is_arithmetic_v<std::remove_reference_t<T>> && !std::same_as<std::remove_reference_t<T>, bool>;

template <typename T, template <typename...> typename Template>
inline constexpr bool is_some = false;
template <template <typename...> typename Template, typename... Parts>
inline constexpr bool is_some<Template<Parts...>, Template> = true;
template <typename T>
concept AnyVector = is_some<std::remove_const_t<T>, std::vector>;
template <typename T>
concept AnyPair = is_some<std::remove_const_t<T>, std::pair>;
template <typename T>
concept AnyOptional = is_some<std::remove_const_t<T>, std::optional>;
template <typename T>
concept AnyVariant = is_some<std::remove_const_t<T>, std::variant>;
template <typename T>
concept AnyDuration = is_some<std::remove_const_t<T>, std::chrono::duration>;

inline constexpr std::chrono::hours duration_max{366 * 24};

// A number or an enumerator that is at most `max`; a vector of at most so many elements.
template <typename T, typename Max>
struct AtMost {
    T& value;
    Max max;
};
template <typename T, typename Max>
AtMost<T, Max> at_most(T& value, Max max) {
    return {value, max};
}

template <typename Archive, typename T>
void archive_value(Archive& archive, T& value) {
    using Value = std::remove_const_t<T>;
    if constexpr (std::is_arithmetic_v<Value>) {
        archive.number(value);
    } else if constexpr (std::same_as<Value, std::string> || std::same_as<Value, std::string_view>) {
        archive.text(value);
    } else {
        describe(archive, value);
    }
}

class Writer {
  public:
    static constexpr bool is_reading = false;

    // Takes memory for so many bytes at once, and more when they do not suffice.
    explicit Writer(std::size_t bytes_expected)
        : bytes_(std::make_unique_for_overwrite<std::byte[]>(bytes_expected)), capacity_(bytes_expected) {}

    template <typename... Values>
    void operator()(const Values&... values) {
        if constexpr ((std::is_arithmetic_v<Values> && ...)) {
            std::byte* next = room((sizeof values + ...));
            ((std::memcpy(next, &values, sizeof values), next += sizeof values), ...);
        } else {
            (archive_value(*this, values), ...);
        }
    }
    template <typename Number>
    void number(Number number) {
        std::memcpy(room(sizeof number), &number, sizeof number);
    }
    void length(std::size_t length, std::size_t = 0) {
        for (; length >= 0x80; length >>= 7U) {
            number(static_cast<std::uint8_t>(length | 0x80U));
        }
        number(static_cast<std::uint8_t>(length));
    }
    void text(std::string_view text) {
        length(text.size());
        std::ranges::copy(std::as_bytes(std::span(text)), room(text.size()));
    }
    static bool is_sound() { return true; }
    static void require(const auto&) {}

    std::span<std::byte> written() { return {bytes_.get(), size_}; }
    // All of written(). Nothing may be written after that.
    std::unique_ptr<std::byte[]> take() { return std::move(bytes_); }

  private:
    // Where to write so many more.
    std::byte* room(std::size_t bytes) {
        if (capacity_ - size_ < bytes) {
            grow(bytes);
        }
        return bytes_.get() + std::exchange(size_, size_ + bytes);
    }
    void grow(std::size_t by) {
        capacity_ = std::max(2 * capacity_, size_ + by);
        auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity_);
        std::memcpy(larger.get(), bytes_.get(), size_);
        bytes_ = std::move(larger);
    }

    std::unique_ptr<std::byte[]> bytes_;
    std::size_t size_ = 0;
    std::size_t capacity_;
};

class Reader {
  public:
    static constexpr bool is_reading = true;

    // The bytes must outlive the Reader.
    explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

    template <typename... Values>
    void operator()(Values&&... values) {
        if constexpr ((is_plain_number<Values> && ...)) {
            if (const auto bytes = next((sizeof values + ...)); !bytes.empty()) {
                const std::byte* from = bytes.data();
                ((std::memcpy(&values, from, sizeof values), from += sizeof values), ...);
            }
        } else {
            (archive_value(*this, values), ...);
        }
    }
    template <typename Number>
    void number(Number& number) {
        if constexpr (std::same_as<Number, bool>) {
            std::uint8_t byte = 0;
            (*this)(byte);
            require([byte] { return byte <= 1; });
            number = byte == 1;
        } else {
            (*this)(number);
        }
    }
    // Of something that takes at least a byte for each: there are no more than bytes.
    void length(std::size_t& length, std::size_t max = std::numeric_limits<std::size_t>::max()) {
        length = 0;
        std::uint8_t byte = 0x80;
        for (unsigned shift = 0; (byte & 0x80U) != 0 && is_sound_; shift += 7) {
            number(byte);
            require([shift] { return shift < 63; });
            length |= is_sound_ ? std::size_t{byte & 0x7fU} << shift : 0;
        }
        require([&] { return length <= std::min(max, rest_.size()); });
    }
    void text(std::string& text) {
        std::size_t size = 0;
        length(size);
        const auto bytes = next(size);
        text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    template <typename Condition>
    void require(const Condition& condition) {
        if (is_sound_ && !condition()) {
            is_sound_ = false;
            rest_ = {};
        }
    }
    bool is_sound() const { return is_sound_; }
    // All is read, and all was sound.
    bool is_done() const { return is_sound_ && rest_.empty(); }

  private:
    // Nothing if there are fewer.
    std::span<const std::byte> next(std::size_t bytes) {
        require([&] { return bytes <= rest_.size(); });
        const auto front = rest_.first(std::min(bytes, rest_.size()));
        rest_ = rest_.subspan(front.size());
        return front;
    }

    std::span<const std::byte> rest_;  // nothing once it is unsound
    bool is_sound_ = true;
};

template <typename Archive, typename T, typename Max>
void describe(Archive& archive, const AtMost<T, Max>& limited) {
    using Value = std::remove_const_t<T>;
    if constexpr (std::is_arithmetic_v<Value>) {
        archive.number(limited.value);
        archive.require([&] { return limited.value <= limited.max; });
    } else if constexpr (std::is_enum_v<Value>) {
        auto number = static_cast<std::underlying_type_t<Value>>(limited.value);
        archive(at_most(number, static_cast<std::underlying_type_t<Value>>(limited.max)));
        if constexpr (Archive::is_reading) {
            limited.value = static_cast<Value>(archive.is_sound() ? number : 0);
        }
    } else {
        std::size_t count = limited.value.size();
        archive.length(count, limited.max);
        for (std::size_t i = 0; i < count && archive.is_sound(); ++i) {
            if constexpr (Archive::is_reading) {
                limited.value.emplace_back();
            }
            archive(limited.value[i]);
        }
    }
}

void describe(auto& archive, AnyVector auto& values) {
    archive(at_most(values, values.max_size()));
}

void describe(auto& archive, AnyPair auto& pair) {
    archive(pair.first, pair.second);
}

template <typename Archive>
void describe(Archive& archive, AnyOptional auto& value) {
    bool is_there = value.has_value();
    archive(is_there);
    if constexpr (Archive::is_reading) {
        if (is_there) {
            value.emplace();
        }
    }
    if (is_there) {
        archive(*value);
    }
}

// Can be added to a clock.
template <typename Archive, AnyDuration Duration>
void describe(Archive& archive, Duration& duration) {
    auto count = duration.count();
    archive(count);
    if constexpr (Archive::is_reading) {
        duration = Duration(count);
    }
    archive.require([&] { return duration >= Duration::zero() && duration <= duration_max; });
}

template <typename... Values>
void emplace_alternative(std::variant<Values...>& variant, std::size_t index) {
    std::size_t i = 0;
    ((i++ == index ? void(variant.template emplace<Values>()) : void()), ...);
}

// Which of the alternatives. A Reader makes it anew.
template <typename Archive>
void describe_alternative(Archive& archive, AnyVariant auto& variant) {
    auto index = static_cast<std::uint8_t>(variant.index());
    archive(at_most(index, std::variant_size_v<std::remove_cvref_t<decltype(variant)>> - 1));
    if constexpr (Archive::is_reading) {
        emplace_alternative(variant, archive.is_sound() ? index : 0);
    }
}

void describe(auto& archive, AnyVariant auto& variant) {
    describe_alternative(archive, variant);
    std::visit([&archive](auto& value) { archive(value); }, variant);
}

}  // namespace copper
