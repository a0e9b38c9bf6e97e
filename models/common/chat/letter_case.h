// The case of letters as templates change it. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace rullama::chat {

// ASCII letters only; others stay.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);

}  // namespace rullama::chat
