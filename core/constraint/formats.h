// The shapes of `format` as patterns.
#pragma once

#include <optional>
#include <string_view>

namespace rullama::constraint {

// The pattern of a format that is kept to; nothing for other formats.
std::optional<std::string_view> FormatPattern(std::string_view format);

}  // namespace rullama::constraint
