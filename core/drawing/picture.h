// An SVG picture: part of a page, or a file of its own. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace rullama::drawing {

inline constexpr double kPictureWidth = 960;  // of charts and maps

struct Picture {
  double width = 0;  // of the user's units, which are pixels at full size
  double height = 0;
  std::string label;  // what it shows, for those who do not see it; any text
  std::string body;   // markup
};

// `upper` above `lower`, with the label of `upper`.
Picture Stacked(const Picture& upper, const Picture& lower);

// A <text> element; `text` is escaped, `css` is a list of classes of PictureStyle().
std::string SvgText(double x, double y, std::string_view css, std::string_view text);

// For a page, whose style has the colours. Without `sized`, the picture takes the width it is
// given.
std::string InlineSvg(const Picture& picture, bool sized = false);
// A file of its own.
std::string SvgFile(const Picture& picture);

}  // namespace rullama::drawing
