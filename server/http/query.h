// The query of a request target. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rullama::server {

// A text without its escapes: "%41" -> "A". Nothing if two hexadecimal digits are missing after a
// '%'.
std::optional<std::string> WithoutEscapes(std::string_view text);

// The query of a target, without the question mark.
std::string_view QueryOf(std::string_view target);

// The value of a member of a query such as "limit=20&after_id=a"; nothing if it is not there, or
// has wrong escapes.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

}  // namespace rullama::server
