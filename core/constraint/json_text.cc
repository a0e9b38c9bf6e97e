#include "core/constraint/json_text.h"

#include "core/base/json_reader.h"

namespace rullama::constraint {

Result<Json> ParseSchemaText(std::string_view text, std::string_view what) {
  if (text.size() > kMaxSchemaBytes) {
    return MakeError(ErrorKind::kUsage, "schema.too_large", "{}: {} bytes, expected at most {}",
                     what, text.size(), kMaxSchemaBytes);
  }
  auto value = ReadOrderedJson(text, {.depth = kMaxJsonDepth});
  if (value) return *std::move(value);
  const bool deep = value.error().kind == JsonFault::Kind::kDepth;
  return MakeError(ErrorKind::kUsage, deep ? "schema.too_large" : "schema.invalid",
                   "{}: the schema {}{}", what, value.error().ToString(),
                   deep ? "; write it flatter" : "");
}

}  // namespace rullama::constraint
