// The values of GGUF metadata, as views into the file: nothing is copied or decoded until asked
// for.
//
// Ownership: every view here borrows the bytes of the file it was parsed from.
// Thread safety: immutable after parsing.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rullama {

static_assert(std::endian::native == std::endian::little,
              "GGUF is little-endian and is read in place");

// The numbers are those of the file format.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

[[nodiscard]] bool IsGgufType(uint32_t id);
// "u32", "string", "array"...
[[nodiscard]] std::string_view NameOf(GgufType type);
// Bytes of one value; 0 for strings and arrays, whose size depends on their content.
[[nodiscard]] size_t ScalarBytes(GgufType type);

// The GGUF type that stores a C++ scalar, e.g. kGgufTypeOf<float> == GgufType::kF32.
template <typename T>
inline constexpr std::optional<GgufType> kGgufTypeOf = std::nullopt;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<uint8_t> = GgufType::kU8;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<int8_t> = GgufType::kI8;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<uint16_t> = GgufType::kU16;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<int16_t> = GgufType::kI16;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<uint32_t> = GgufType::kU32;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<int32_t> = GgufType::kI32;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<float> = GgufType::kF32;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<bool> = GgufType::kBool;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<uint64_t> = GgufType::kU64;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<int64_t> = GgufType::kI64;
template <>
inline constexpr std::optional<GgufType> kGgufTypeOf<double> = GgufType::kF64;

template <typename T>
concept GgufScalar = kGgufTypeOf<T>
.has_value();

// A value of type T at any address: fields of a GGUF file are not aligned.
template <typename T>
[[nodiscard]] T LoadUnaligned(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

// A packed array of scalars in the file. T is exactly the element type of the file.
template <GgufScalar T>
class GgufNumbers {
 public:
  GgufNumbers() = default;
  explicit GgufNumbers(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] size_t size() const { return bytes_.size() / sizeof(T); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  // Precondition: index < size().
  [[nodiscard]] T operator[](size_t index) const {
    return LoadUnaligned<T>(bytes_.data() + index * sizeof(T));
  }

 private:
  std::span<const std::byte> bytes_;
};

// An array of strings in the file, for iteration from front to back; each element is a view into
// the file. There is no random access because strings follow each other without an index.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator() = default;
    Iterator(const std::byte* position, size_t left) : position_(position), left_(left) {}

    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(position_ + sizeof(uint64_t)),
              static_cast<size_t>(LoadUnaligned<uint64_t>(position_))};
    }
    Iterator& operator++() {
      position_ += sizeof(uint64_t) + LoadUnaligned<uint64_t>(position_);
      --left_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    // Both iterators must belong to the same array.
    bool operator==(const Iterator& other) const { return left_ == other.left_; }

   private:
    const std::byte* position_ = nullptr;
    size_t left_ = 0;
  };

  GgufStrings() = default;
  // `bytes` must hold `count` strings, each preceded by its u64 length, as validated by the parser.
  GgufStrings(std::span<const std::byte> bytes, size_t count) : data_(bytes.data()), size_(count) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] Iterator begin() const { return {data_, size_}; }
  [[nodiscard]] Iterator end() const { return {nullptr, 0}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// One metadata value. `bytes` holds the scalar, the characters of a string, or the packed elements
// of an array (strings of an array each with their u64 length in front).
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  // of an array; never kArray
  uint64_t count = 1;                     // elements of an array; 1 otherwise
  std::span<const std::byte> bytes;

  [[nodiscard]] bool IsArrayOf(GgufType element) const {
    return type == GgufType::kArray && element_type == element;
  }
  // The type of the value, or of its elements.
  [[nodiscard]] GgufType scalar_type() const {
    return type == GgufType::kArray ? element_type : type;
  }
  // Precondition: type is kString.
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Precondition: IsArrayOf(kString).
  [[nodiscard]] GgufStrings strings() const { return {bytes, static_cast<size_t>(count)}; }
};

// The element `index` (0 for a scalar) as `To`; nothing if it is not an integer or does not fit.
template <std::integral To>
[[nodiscard]] std::optional<To> IntegerAt(const GgufValue& value, size_t index);
extern template std::optional<uint32_t> IntegerAt<uint32_t>(const GgufValue&, size_t);
extern template std::optional<int32_t> IntegerAt<int32_t>(const GgufValue&, size_t);
extern template std::optional<uint64_t> IntegerAt<uint64_t>(const GgufValue&, size_t);
extern template std::optional<int64_t> IntegerAt<int64_t>(const GgufValue&, size_t);

// Describes a value for messages: "f32", "i32 with value -1", "array of 35 i32".
[[nodiscard]] std::string Describe(const GgufValue& value);

}  // namespace rullama
