// White space as the template languages of the families see it. Pure functions.
#pragma once

#include <string_view>

namespace rullama::chat {

// Removes white space (Unicode's, as Python's str.strip) at both ends. Returns a view into `text`.
std::string_view Trim(std::string_view text);

}  // namespace rullama::chat
