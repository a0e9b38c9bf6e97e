// Pages and pictures of reports are well-formed whatever their numbers and names are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cli/reports/bench_plot.h"
#include "cli/reports/heat_map.h"
#include "cli/reports/page.h"
#include "core/drawing/markup_test_util.h"

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kHostile = "</title><script>alert('1')</script>\"onload=\"x\x01\xff\u202e&";

TEST(ChartTest, PlotOfBenchStaysText) {
  const drawing::Picture plot =
      BenchPlot(kHostile, {{kHostile, 8, 0, 2.5, 0.1}, {"tg", 4, 16, 1, 0}});
  EXPECT_EQ(drawing::MarkupFault(drawing::SvgFile(plot)), "");
  EXPECT_EQ(drawing::ForeignPart(drawing::SvgFile(plot)), "");
}

TEST(HeatMapTest, ColoursFollowTheLogarithm) {
  const double cells[] = {0, 1, 1e-3, 1e-9, kInfinity, 1};
  const drawing::Picture picture =
      DrawHeatMap({.title = kHostile, .row_label = "row", .rows = 2, .columns = 3, .cells = cells});
  EXPECT_EQ(drawing::MarkupFault(drawing::InlineSvg(picture)), "");
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h8\" d=\"M1 0h1v1H1zM2 1h1v1H2z\"/>"));
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h2\" d=\"M2 0h1v1H2z\"/>"));
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"h0\" d=\"M0 0h1v1H0zM0 1h1v1H0z\"/>"));
  EXPECT_THAT(picture.body, HasSubstr("<path class=\"not-finite\" d=\"M1 1h1v1H1z\"/>"));
}

TEST(HeatMapTest, SharedCellShowsTheLargest) {
  std::vector<double> cells(1000, 1e-9);
  cells[777] = 1;
  const drawing::Picture picture = DrawHeatMap({.rows = 1, .columns = 1000, .cells = cells});
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
  EXPECT_EQ(drawing::MarkupFault(page.ToHtml()), "");
  EXPECT_EQ(drawing::ForeignPart(page.ToHtml()), "");
}

}  // namespace
}  // namespace rullama::cli
