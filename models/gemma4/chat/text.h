// Text functions with the exact behaviour of the template language the reference template is
// written in.
#pragma once

#include <string>
#include <string_view>

namespace rullama::gemma4 {

// Removes every <|channel>...<channel|> span and trims the rest.
std::string StripThinking(std::string_view text);

// Shortest digits that read back as `value`, as Python prints them: "1.5", "1.0", "1e+16".
std::string FormatFloat(double value);

}  // namespace rullama::gemma4
