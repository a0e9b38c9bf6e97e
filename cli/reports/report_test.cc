// The parts of reports: escaping, axes, and pictures that are well-formed whatever their numbers
// and names are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cli/reports/bench_plot.h"
#include "cli/reports/chart.h"
#include "cli/reports/heat_map.h"
#include "cli/reports/loss_plot.h"
#include "cli/reports/markup.h"
#include "cli/reports/markup_test_util.h"
#include "cli/reports/page.h"
#include "cli/reports/scale.h"

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kHostile = "</title><script>alert('1')</script>\"onload=\"x\x01\xff\u202e&";

TEST(MarkupTest, MarkupAndControlCharactersAreEscaped) {
  EXPECT_EQ(Escaped("a<b>&\"'\n\x1b"), "a&lt;b&gt;&amp;&quot;&#39; \\x1b");
  EXPECT_EQ(Escaped("\xff"), "\\xff");
  EXPECT_EQ(Escaped("größer → 4"), "größer → 4");
}

TEST(MarkupTest, FittedTextKeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(Fitted("blk.12.attn.q", 20), "blk.12.attn.q");
  EXPECT_EQ(Fitted("abcdefghij", 5), "ab…ij");
  EXPECT_EQ(Fitted("äöüäöüäöü", 4), "ä…öü");
}

TEST(MarkupTest, CheckOfTheTestsFindsFaults) {
  EXPECT_EQ(MarkupFault("<p class=\"a\">x<br></p>"), "");
  EXPECT_NE(MarkupFault("<p>x"), "");
  EXPECT_NE(MarkupFault("<p><b></p></b>"), "");
  EXPECT_NE(MarkupFault("<p a=\"1\"b=\"2\"></p>"), "");
  EXPECT_NE(MarkupFault("<p a=\"1\" a=\"2\"></p>"), "");
  EXPECT_NE(MarkupFault("a < b"), "");
  EXPECT_NE(ForeignPart("<p style=\"background:url(x)\"></p>"), "");
  EXPECT_NE(ForeignPart("<svg onload=\"x\"/>"), "");
}

TEST(ScaleTest, LinearScaleHasRoundEnds) {
  const Scale scale = Scale::Linear(0, 97);
  EXPECT_DOUBLE_EQ(scale.At(0), 0);
  EXPECT_DOUBLE_EQ(scale.At(100), 1);
  const auto ticks = scale.Ticks(5);
  ASSERT_EQ(ticks.size(), 6u);
  EXPECT_EQ(ticks[1].label, "20");
  EXPECT_DOUBLE_EQ(ticks[5].value, 100);
}

TEST(ScaleTest, LogarithmicScaleCoversWholeDecades) {
  const Scale scale = Scale::Logarithmic(3e-9, 2e-5);
  EXPECT_NEAR(scale.At(1e-9), 0, 1e-12);
  EXPECT_NEAR(scale.At(1e-4), 1, 1e-12);
  const auto ticks = scale.Ticks();
  ASSERT_EQ(ticks.size(), 6u);
  EXPECT_EQ(ticks[0].label, "1e-9");
  EXPECT_LE(Scale::Logarithmic(1e-40, 1e30).Ticks().size(), 9u);
}

TEST(ScaleTest, OneNumberIsAScale) {
  EXPECT_NEAR(Scale::Logarithmic(1e-3, 1e-3).At(1e-3), 0, 1e-12);
  EXPECT_NEAR(Scale::Linear(5, 5).At(5), 0, 1e-12);
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

TEST(ChartTest, PlotOfBenchStaysText) {
  const Picture plot = BenchPlot(kHostile, {{kHostile, 8, 0, 2.5, 0.1}, {"tg", 4, 16, 1, 0}});
  EXPECT_EQ(MarkupFault(SvgFile(plot)), "");
  EXPECT_EQ(ForeignPart(SvgFile(plot)), "");
}

TEST(LossPlotTest, LongRunsAreMeansOfSteps) {
  LossHistory history{.steps = {4, 2}, .validations = {{0, 5}, {2, 3}}};
  const std::string small = SvgFile(LossPlot(history));
  EXPECT_EQ(MarkupFault(small), "");
  EXPECT_THAT(small, HasSubstr("step 2: 2<"));
  EXPECT_THAT(small, HasSubstr("validation"));
  history.steps.assign(1000, 1);
  history.steps[998] = 4;
  const std::string large = SvgFile(LossPlot(history));
  EXPECT_THAT(large, HasSubstr("training, mean of 3 steps"));
  EXPECT_EQ(MarkupFault(large), "");
}

// The marks of the axis, whatever else is drawn.
bool HasMark(const Picture& picture, const std::string& mark) {
  return picture.body.find(">" + mark + "<") != std::string::npos;
}

TEST(LossPlotTest, LossesThatFallFarAreOnALogarithmicAxis) {
  const Picture near = LossPlot({.steps = {4, 2, 1}, .validations = {}});
  EXPECT_TRUE(HasMark(near, "2.5"));
  const Picture far = LossPlot({.steps = {4, 0.5, 0.001}, .validations = {{3, 0.02}}});
  EXPECT_TRUE(HasMark(far, "0.01"));
  EXPECT_FALSE(HasMark(far, "2.5"));
  EXPECT_TRUE(HasMark(LossPlot({.steps = {4, 0}, .validations = {}}), "2.5"))
      << "0 is not a small loss";
}

// Two validations of a long run say nothing about the steps between them.
TEST(LossPlotTest, ValidationsAreNotJoined) {
  const auto lines = [](const LossHistory& history) {
    const std::string body = LossPlot(history).body;
    size_t count = 0;
    for (size_t at = 0; (at = body.find("class=\"curve\"", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(lines({.steps = {4, 2}, .validations = {{0, 5}, {2, 3}}}),
            lines({.steps = {4, 2}, .validations = {}}));
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

TEST(HeatMapTest, ColoursFollowTheLogarithm) {
  const double cells[] = {0, 1, 1e-3, 1e-9, kInfinity, 1};
  const Picture picture =
      DrawHeatMap({.title = kHostile, .row_label = "row", .rows = 2, .columns = 3, .cells = cells});
  EXPECT_EQ(MarkupFault(InlineSvg(picture)), "");
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h8\" d=\"M1 0h1v1H1zM2 1h1v1H2z\"/>"));
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h2\" d=\"M2 0h1v1H2z\"/>"));
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h0\" d=\"M0 0h1v1H0zM0 1h1v1H0z\"/>"));
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"not-finite\" d=\"M1 1h1v1H1z\"/>"));
}

TEST(HeatMapTest, SharedCellShowsTheLargest) {
  std::vector<double> cells(1000, 1e-9);
  cells[777] = 1;
  const Picture picture = DrawHeatMap({.rows = 1, .columns = 1000, .cells = cells});
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h8\" d=\"M149 0h1v1H149z\"/>"));
}

TEST(PageTest, HostileTextStaysText) {
  Page page(kHostile);
  page.Section(kHostile);
  page.Subsection(kHostile);
  page.Paragraph(kHostile);
  page.Verdict(kHostile, false);
  page.Figure("<svg></svg>", kHostile);
  page.FoldedTable(kHostile, {{kHostile}}, {{{kHostile, "name"}}});
  EXPECT_EQ(MarkupFault(page.ToHtml()), "");
  EXPECT_EQ(ForeignPart(page.ToHtml()), "");
}

}  // namespace
}  // namespace rullama::cli
