// Typed access to metadata: what a key must be, and the error when it is something else.
#include <cmath>
#include <limits>
#include <utility>

#include "core/gguf/gguf.h"

namespace rullama {
namespace {

tl::unexpected<Error> WrongType(std::string_view key, const GgufValue& value,
                                std::string_view expected) {
  return MakeError(ErrorKind::kModelFile, "gguf.key_type",
                   "key '{}': found {}, expected {}; the model was converted wrongly, convert it "
                   "again",
                   key, Describe(value), expected);
}

tl::unexpected<Error> Missing(std::string_view key) {
  return MakeError(ErrorKind::kModelFile, "gguf.key_missing",
                   "key '{}' is missing, but this model needs it; convert the model again", key);
}

// GetX in terms of FindX.
template <typename T>
Result<T> Require(std::string_view key, Result<std::optional<T>> found) {
  if (!found) return tl::unexpected(std::move(found).error());
  if (!found->has_value()) return Missing(key);
  return **std::move(found);
}

template <typename T>
Result<std::optional<T>> FindInteger(const GgufFile& file, std::string_view key,
                                     std::string_view expected) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->type == GgufType::kArray ? std::nullopt : IntegerAt<T>(*value, 0);
  if (!number) return WrongType(key, *value, expected);
  return number;
}

tl::unexpected<Error> WrongLength(std::string_view key, uint64_t found, size_t expected) {
  return MakeError(ErrorKind::kModelFile, "model.array_length",
                   "key '{}': found an array of {} values, expected {} (one per layer); convert "
                   "the model again",
                   key, found, expected);
}

}  // namespace

Result<std::optional<uint32_t>> GgufFile::FindU32(std::string_view key) const {
  return FindInteger<uint32_t>(*this, key, "an integer from 0 to 2^32-1");
}

Result<uint32_t> GgufFile::GetU32(std::string_view key) const { return Require(key, FindU32(key)); }

Result<uint64_t> GgufFile::GetU64(std::string_view key) const {
  return Require(key, FindInteger<uint64_t>(*this, key, "an integer from 0 to 2^64-1"));
}

Result<std::optional<float>> GgufFile::FindF32(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kF32) return LoadUnaligned<float>(value->bytes.data());
  if (value->type == GgufType::kF64) {
    const auto wide = LoadUnaligned<double>(value->bytes.data());
    if (std::isfinite(wide) && std::abs(wide) > std::numeric_limits<float>::max()) {
      return WrongType(key, *value, "a number in the range of f32");
    }
    return static_cast<float>(wide);
  }
  return WrongType(key, *value, "f32");
}

Result<float> GgufFile::GetF32(std::string_view key) const { return Require(key, FindF32(key)); }

Result<std::optional<bool>> GgufFile::FindBool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) return WrongType(key, *value, "bool");
  return value->bytes[0] != std::byte{0};
}

Result<bool> GgufFile::GetBool(std::string_view key) const { return Require(key, FindBool(key)); }

Result<std::optional<std::string_view>> GgufFile::FindString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) return WrongType(key, *value, "string");
  return value->text();
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  return Require(key, FindString(key));
}

Result<std::optional<GgufStrings>> GgufFile::FindStrings(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->IsArrayOf(GgufType::kString)) return WrongType(key, *value, "array of string");
  return value->strings();
}

Result<GgufStrings> GgufFile::GetStrings(std::string_view key) const {
  return Require(key, FindStrings(key));
}

Result<std::optional<GgufNumbers<float>>> GgufFile::FindF32Array(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->IsArrayOf(GgufType::kF32)) return WrongType(key, *value, "array of f32");
  return GgufNumbers<float>(value->bytes);
}

Result<GgufNumbers<float>> GgufFile::GetF32Array(std::string_view key) const {
  return Require(key, FindF32Array(key));
}

Result<std::optional<std::vector<int32_t>>> GgufFile::FindI32Array(std::string_view key) const {
  constexpr std::string_view kExpected = "array of integers that fit i32";
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray) return WrongType(key, *value, kExpected);
  std::vector<int32_t> numbers;
  // The payload bounds the count except for strings, which are refused at the first element.
  if (value->element_type != GgufType::kString) numbers.reserve(static_cast<size_t>(value->count));
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = IntegerAt<int32_t>(*value, static_cast<size_t>(i));
    if (!number) return WrongType(key, *value, kExpected);
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<int32_t>> GgufFile::GetI32Array(std::string_view key) const {
  return Require(key, FindI32Array(key));
}

Result<std::vector<uint32_t>> GgufFile::GetU32PerLayer(std::string_view key, size_t count) const {
  constexpr std::string_view kExpected =
      "an integer from 0 to 2^32-1, or an array of one such integer per layer";
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const bool array = value->type == GgufType::kArray;
  // Type before length: an array of strings is wrong whatever its length.
  if (!IntegerAt<uint32_t>(*value, 0) && value->count > 0) return WrongType(key, *value, kExpected);
  if (array && value->count != count) return WrongLength(key, value->count, count);
  std::vector<uint32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    const auto number = IntegerAt<uint32_t>(*value, array ? i : 0);
    if (!number) return WrongType(key, *value, kExpected);
    numbers[i] = *number;
  }
  return numbers;
}

Result<std::vector<bool>> GgufFile::GetBoolPerLayer(std::string_view key, size_t count) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (value->scalar_type() != GgufType::kBool) {
    return WrongType(key, *value, "a bool or an array of one bool per layer");
  }
  const bool array = value->type == GgufType::kArray;
  if (array && value->count != count) return WrongLength(key, value->count, count);
  std::vector<bool> flags(count);
  for (size_t i = 0; i < count; ++i) flags[i] = value->bytes[array ? i : 0] != std::byte{0};
  return flags;
}

}  // namespace rullama
