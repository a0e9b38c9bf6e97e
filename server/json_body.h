// The body of a request as JSON, read strictly.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace rullama::server {

inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = 200'000;

// An object, checked before any of it is built. Errors (400): json.utf8, json.syntax (also what
// follows the object, and numbers that binary64 cannot hold), json.depth, json.size,
// json.duplicate_key; invalid_type for a body that is not an object.
ApiResult<nlohmann::json> ParseBody(std::string_view body);

// The same for any value. `expected`: what the body should be, for the error about one that is
// empty: "a list".
ApiResult<nlohmann::json> ParseValue(std::string_view body, std::string_view expected);

// The value that member names lead to in a text that ParseBody() has taken, as JSON text with the
// members of objects in their order. There is such a value.
std::string OrderedText(std::string_view body, const std::vector<std::string>& path);

}  // namespace rullama::server
