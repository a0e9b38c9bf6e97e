// Bars of memory and the plot of `rullama bench`.
#include "cli/reports/memory_bars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/reports/bench_plot.h"
#include "core/drawing/markup_test_util.h"

namespace rullama::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(MemoryBarsTest, LengthsFollowTheBytes) {
  EXPECT_THAT(MemoryBars({{"Q4_K", 1024, "4 tensors"}, {"KV cache", 512}, {"F32", 1}, {"none", 0}}),
              ElementsAre("Q4_K        1.0 KiB ████████████████████████████████ 4 tensors",
                          "KV cache    0.5 KiB ████████████████", "F32         0.0 KiB ▏",
                          "none        0.0 KiB"));
}

TEST(MemoryBarsTest, DevicesSayWhatIsFree) {
  const auto lines =
      DeviceMemoryBars({{"cpu", {.weights = 2048, .states = 1024, .work = 1024}, 0},
                        {"gpu\x1b[2J", {.weights = 4096, .states = 0, .work = 4096}, 16384}});
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_THAT(lines[2], HasSubstr("cpu arenas"));
  EXPECT_THAT(lines[3], MatchesRegex("cpu together +4\\.0 KiB"));
  EXPECT_THAT(lines[7], HasSubstr("together    8.0 KiB of 16.0 KiB free"));
  EXPECT_THAT(lines[4], Not(HasSubstr("\x1b")));
  EXPECT_THAT(lines[4], EndsWith("4.0 KiB ████████████████████████████████")) << "the largest";
}

TEST(BenchPlotTest, DepthsGetAChartOfTheirOwn) {
  const std::vector<BenchPoint> points = {
      {"pp", 8, 0, 100, 1}, {"pp", 16, 0, 12345, 1}, {"tg", 4, 0, 10, 0}, {"pp", 8, 32, 50, 2}};
  const std::string both = drawing::SvgFile(BenchPlot("<model>", points));
  EXPECT_EQ(drawing::MarkupFault(both), "");
  EXPECT_THAT(both, HasSubstr(">pp @ d32<"));
  EXPECT_THAT(both, HasSubstr("pp8 @ d32: 50 ± 2 tokens/s"));
  EXPECT_THAT(both, HasSubstr("pp16: 12345 ± 1 tokens/s"));
  for (const char* tick : {">4<", ">8<", ">16<"}) EXPECT_THAT(both, HasSubstr(tick));
  EXPECT_THAT(both, HasSubstr("tokens in the cache before"));
  const std::string one = drawing::SvgFile(BenchPlot("m", {points.begin(), points.begin() + 3}));
  EXPECT_THAT(one, Not(HasSubstr("tokens in the cache before")));
}

}  // namespace
}  // namespace rullama::cli
