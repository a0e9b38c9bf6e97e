// Text for HTML and SVG. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace rullama::drawing {

// `text` fit for the content of an element and for a quoted attribute of HTML and XML: markup is
// escaped, and control characters and bytes that are not UTF-8 appear as \x1b, as on a terminal.
std::string Escaped(std::string_view text);

// A number with three significant digits, for people: "0.00123", "1.2e-07", "∞".
std::string NumberText(double value);

// `text` with at most `columns` characters: the middle of a longer one is replaced by "…".
std::string Fitted(std::string_view text, size_t columns);

}  // namespace rullama::drawing
