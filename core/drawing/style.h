// Colours and typography of pictures. SVG files and HTML pages share them; both follow
// prefers-color-scheme. Pure function; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rullama::drawing {

inline constexpr size_t kSeriesColours = 6;  // classes s0 ... s5
inline constexpr size_t kHeatColours = 9;    // classes h0 ... h8, from small to large

// Custom properties for the colours and the classes of SVG elements.
std::string_view PictureStyle();

}  // namespace rullama::drawing
