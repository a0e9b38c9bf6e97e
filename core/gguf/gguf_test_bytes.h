// Builds GGUF files byte by byte for tests, including files that no writer would produce.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/gguf/gguf_value.h"

namespace rullama {

class GgufBytes {
 public:
  // Appends a number in the byte order of the file.
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> GgufBytes& Put(T value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof(T));
    return *this;
  }
  GgufBytes& PutText(std::string_view text) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), first, first + text.size());
    return *this;
  }
  GgufBytes& PutString(std::string_view text) { return Put(uint64_t{text.size()}).PutText(text); }
  GgufBytes& Header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    return PutText("GGUF").Put(version).Put(tensors).Put(entries);
  }
  // A key and the type of the value that follows.
  GgufBytes& Key(std::string_view key, GgufType type) { return PutString(key).Put(type); }
  template <GgufScalar T>
  GgufBytes& Entry(std::string_view key, T value) {
    return Key(key, *kGgufTypeOf<T>).Put(value);
  }
  GgufBytes& Entry(std::string_view key, std::string_view value) {
    return Key(key, GgufType::kString).PutString(value);
  }
  template <GgufScalar T>
  GgufBytes& ArrayEntry(std::string_view key, std::initializer_list<T> values) {
    Key(key, GgufType::kArray).Put(*kGgufTypeOf<T>).Put(uint64_t{values.size()});
    for (const T value : values) Put(value);
    return *this;
  }
  GgufBytes& StringsEntry(std::string_view key, std::initializer_list<std::string_view> values) {
    Key(key, GgufType::kArray).Put(GgufType::kString).Put(uint64_t{values.size()});
    for (const std::string_view value : values) PutString(value);
    return *this;
  }
  GgufBytes& Tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                    uint64_t offset) {
    PutString(name).Put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) Put(dim);
    return Put(type).Put(offset);
  }
  GgufBytes& PadTo(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  // `count` bytes of tensor data with a pattern that differs from padding.
  GgufBytes& Data(size_t count) {
    for (size_t i = 0; i < count; ++i) bytes_.push_back(static_cast<std::byte>(i % 251 + 1));
    return *this;
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

// A valid file with every value type, two string arrays and two tensors (f32 [4,2], q8_0 [32]).
// The header ends before *data_offset; the data is 32 + 34 bytes.
inline GgufBytes SmallValidGguf(uint32_t version = 3, size_t* data_offset = nullptr) {
  GgufBytes file;
  file.Header(2, 17, version)
      .Entry("general.architecture", std::string_view("gemma4"))
      .Entry("general.alignment", uint32_t{32})
      .Entry("t.u8", uint8_t{200})
      .Entry("t.i8", int8_t{-5})
      .Entry("t.u16", uint16_t{60000})
      .Entry("t.i16", int16_t{-300})
      .Entry("t.i32", int32_t{-70000})
      .Entry("t.u64", uint64_t{1} << 63)
      .Entry("t.i64", int64_t{-1} << 40)
      .Entry("t.f32", 1.5f)
      .Entry("t.f64", 0.25)
      .Entry("t.bool", true)
      .ArrayEntry<bool>("a.bool", {true, false, true})
      .ArrayEntry<int32_t>("a.i32", {1, 2, 3})
      .ArrayEntry<float>("a.f32", {0.5f, -1.0f})
      .StringsEntry("a.strings", {"<pad>", "", "\xe2\x96\x81the"})
      .StringsEntry("a.empty", {})
      .Tensor("token_embd.weight", {4, 2}, 0, 0)
      .Tensor("blk.0.attn_q.weight", {32}, 8, 32)
      .PadTo(32);
  if (data_offset != nullptr) *data_offset = file.size();
  return file.Data(32 + 34);
}

}  // namespace rullama
