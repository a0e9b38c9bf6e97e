#include "core/drawing/picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/drawing/markup.h"
#include "core/drawing/style.h"

namespace rullama::drawing {
namespace {

std::string Svg(const Picture& picture, std::string_view size, std::string_view head) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\"{} role=\"img\" "
      "aria-label=\"{}\">{}{}</svg>\n",
      picture.width, picture.height, size, Escaped(picture.label), head, picture.body);
}

std::string SizeOf(const Picture& picture) {
  return fmt::format(" width=\"{:g}\" height=\"{:g}\"", picture.width, picture.height);
}

}  // namespace

Picture Stacked(const Picture& upper, const Picture& lower) {
  return {std::max(upper.width, lower.width), upper.height + lower.height, upper.label,
          upper.body +
              fmt::format("<g transform=\"translate(0 {:g})\">{}</g>", upper.height, lower.body)};
}

std::string SvgText(double x, double y, std::string_view css, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>", x, y, css,
                     Escaped(text));
}

std::string InlineSvg(const Picture& picture, bool sized) {
  return Svg(picture, sized ? SizeOf(picture) : "", "");
}

std::string SvgFile(const Picture& picture) {
  const std::string head = fmt::format(
      "<title>{}</title><style>{}</style><rect class=\"paper\" width=\"100%\" height=\"100%\"/>",
      Escaped(picture.label), PictureStyle());
  return Svg(picture, SizeOf(picture), head);
}

}  // namespace rullama::drawing
