// Colours and typography of reports. SVG files and HTML pages share them; both follow
// prefers-color-scheme.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rullama::cli {

inline constexpr size_t kSeriesColours = 6;  // classes s0 ... s5
inline constexpr size_t kHeatColours = 9;    // classes h0 ... h8, from small to large

// Custom properties for the colours and the classes of SVG elements.
std::string_view PictureStyle();
// The layout of a page; needs PictureStyle().
std::string_view PageStyle();

}  // namespace rullama::cli
