// JSON texts of schemas, read strictly and within limits, with members in the order of the text.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/status.h"

namespace rullama::constraint {

using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxSchemaBytes = size_t{512} << 10;
inline constexpr size_t kMaxJsonDepth = 128;  // lists and objects inside one another

// Errors (kUsage), whose messages begin with `what`: schema.invalid (no JSON, invalid UTF-8, a key
// twice in an object), schema.too_large.
Result<Json> ParseSchemaText(std::string_view text, std::string_view what);

}  // namespace rullama::constraint
