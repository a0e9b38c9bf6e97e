#include "core/gguf/gguf_value.h"

#include <fmt/format.h>

#include <concepts>

#include "core/base/checked_math.h"

namespace rullama {
namespace {

// Calls f with the scalar stored at `source`, in its own C++ type.
template <typename F>
auto VisitInteger(GgufType type, const std::byte* source, F&& f) -> decltype(f(uint32_t{})) {
  switch (type) {
    case GgufType::kU8:
      return f(LoadUnaligned<uint8_t>(source));
    case GgufType::kI8:
      return f(LoadUnaligned<int8_t>(source));
    case GgufType::kU16:
      return f(LoadUnaligned<uint16_t>(source));
    case GgufType::kI16:
      return f(LoadUnaligned<int16_t>(source));
    case GgufType::kU32:
      return f(LoadUnaligned<uint32_t>(source));
    case GgufType::kI32:
      return f(LoadUnaligned<int32_t>(source));
    case GgufType::kU64:
      return f(LoadUnaligned<uint64_t>(source));
    case GgufType::kI64:
      return f(LoadUnaligned<int64_t>(source));
    default:
      return {};
  }
}

}  // namespace

bool IsGgufType(uint32_t id) { return id <= static_cast<uint32_t>(GgufType::kF64); }

std::string_view NameOf(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown type";
}

size_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

template <std::integral To>
std::optional<To> IntegerAt(const GgufValue& value, size_t index) {
  const GgufType type = value.scalar_type();
  const size_t width = ScalarBytes(type);
  if (width == 0 || index >= value.count) return std::nullopt;
  return VisitInteger(type, value.bytes.data() + index * width,
                      [](auto number) -> std::optional<To> { return CheckedCast<To>(number); });
}
template std::optional<uint32_t> IntegerAt<uint32_t>(const GgufValue&, size_t);
template std::optional<int32_t> IntegerAt<int32_t>(const GgufValue&, size_t);
template std::optional<uint64_t> IntegerAt<uint64_t>(const GgufValue&, size_t);
template std::optional<int64_t> IntegerAt<int64_t>(const GgufValue&, size_t);

std::string Describe(const GgufValue& value) {
  if (value.type == GgufType::kArray) {
    return fmt::format("array of {} {}", value.count, NameOf(value.element_type));
  }
  if (const auto number = IntegerAt<int64_t>(value, 0)) {
    return fmt::format("{} with value {}", NameOf(value.type), *number);
  }
  if (const auto number = IntegerAt<uint64_t>(value, 0)) {
    return fmt::format("{} with value {}", NameOf(value.type), *number);
  }
  return std::string(NameOf(value.type));
}

}  // namespace rullama
