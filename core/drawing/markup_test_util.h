// Checks of markup for tests of reports.
#pragma once

#include <string>
#include <string_view>

namespace rullama::drawing {

// Empty if every element of HTML or SVG is closed in order, and every attribute is quoted and
// occurs once; else the fault and its place.
std::string MarkupFault(std::string_view markup);

// The first part of the markup that makes a reader ask for another file or run a script, or empty.
std::string ForeignPart(std::string_view markup);

}  // namespace rullama::drawing
