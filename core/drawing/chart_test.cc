// Charts are well-formed whatever their numbers and names are.
#include "core/drawing/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/drawing/markup.h"
#include "core/drawing/markup_test_util.h"

namespace rullama::drawing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kHostile = "</title><script>alert('1')</script>\"onload=\"x\x01\xff\u202e&";

// The marks of the axis, whatever else is drawn.
bool HasMark(const Picture& picture, const std::string& mark) {
  return picture.body.find(">" + mark + "<") != std::string::npos;
}

TEST(ChartTest, AnyNumbersAndNamesAreWellFormed) {
  const Picture picture =
      DrawChart({.title = kHostile,
                 .x_label = kHostile,
                 .y_label = kHostile,
                 .log_y = true,
                 .series = {{kHostile, {{0, 0, kHostile}, {1, kInfinity, "", true}, {2, 1e-8}}},
                            {kHostile, {{0, std::numeric_limits<double>::quiet_NaN()}, {2, -1}}}},
                 .limits = {{1e-4, kHostile}, {0, ""}},
                 .x_ticks = {{0, kHostile}}});
  for (const std::string& svg : {InlineSvg(picture), SvgFile(picture)}) {
    EXPECT_EQ(MarkupFault(svg), "");
    EXPECT_EQ(ForeignPart(svg), "");
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
  EXPECT_THAT(SvgFile(picture), HasSubstr("prefers-color-scheme"));
}

TEST(ChartTest, MarksHaveLabelsAndLinesMayHaveNoMarks) {
  const Picture picture = DrawChart({.series = {{"roof", {{0, 1}, {1, 1}}, true, false},
                                                {"", {{0, 1, "", false, kHostile}}, false}}});
  EXPECT_EQ(MarkupFault(InlineSvg(picture)), "");
  EXPECT_THAT(picture.body, HasSubstr(">" + Escaped(kHostile) + "</text>"));
  const std::string roof = picture.body.substr(0, picture.body.find("<g class=\"s1\">"));
  EXPECT_THAT(roof, HasSubstr("class=\"curve\""));
  EXPECT_THAT(roof, Not(HasSubstr("class=\"dot\"")));
}

// Nothing is between two steps or two positions.
TEST(ChartTest, WholeNumbersHaveMarksAtWholeNumbers) {
  EXPECT_FALSE(HasMark(DrawChart({.series = {{"", {{1, 1}, {2, 1}, {3, 1}}}}}), "1.2"));
  EXPECT_TRUE(HasMark(DrawChart({.series = {{"", {{1, 1}, {2.25, 1}, {3, 1}}}}}), "1.2"));
}

TEST(ChartTest, LargerIsHigher) {
  const Picture picture = DrawChart({.log_y = true, .series = {{"", {{0, 1e-8}, {1, 1e-2}}}}});
  EXPECT_THAT(picture.body, HasSubstr("M70.0 308.0L936.0 40.0"));
}

TEST(ChartTest, NothingToDrawIsAnEmptyChart) {
  EXPECT_EQ(MarkupFault(InlineSvg(DrawChart({.log_x = true, .log_y = true}))), "");
}

}  // namespace
}  // namespace rullama::drawing
