#include "cli/terminal/pull_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kMiB = 1 << 20;
constexpr PullFigures Half(double rate) {
  return {.name = {}, .completed = 50 * kMiB, .total = 100 * kMiB, .rate = rate};
}

std::string LineOf(PullFigures figures, const std::string& name, int columns) {
  figures.name = name;
  return PullLine(figures, columns);
}

TEST(PullLine, HasNamePercentRateTimeAndSize) {
  EXPECT_EQ(LineOf(Half(5.0 * kMiB), "m-Q4_K_M.gguf", 80),
            "m-Q4_K_M.gguf   50 %  5.0 MiB/s  10 s left  50.0 MiB of 100.0 MiB");
  EXPECT_THAT(LineOf(Half(kMiB / 100.0), "m", 80), HasSubstr("1 h 23 min left"));
  EXPECT_THAT(LineOf(Half(0), "m", 80), HasSubstr("50 %  50.0 MiB of"));
}

TEST(PullLine, FitsAnyWidth) {
  const std::string name = "a-model-with-a-rather-long-name-Q4_K_M.gguf";
  for (int columns = 1; columns < 120; ++columns) {
    const std::string line = LineOf(Half(5.0 * kMiB), name, columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
    if (columns >= 8) {
      EXPECT_THAT(line, HasSubstr("50 %"));
    }
  }
  EXPECT_EQ(LineOf(Half(5.0 * kMiB), name, 39), "a-mode...-Q4_K_M.gguf   50 %  5.0 MiB/s");
}

TEST(PullLine, IsOneHundredPercentOnlyAtTheEnd) {
  PullFigures figures{.name = "m", .completed = 1'000'000 - 1, .total = 1'000'000, .rate = 1};
  EXPECT_THAT(PullLine(figures, 80), StartsWith("m   99 %"));
  figures.completed = figures.total;
  EXPECT_THAT(PullLine(figures, 80), StartsWith("m  100 %"));
  figures = {.name = "empty", .completed = 0, .total = 0, .rate = 0};
  EXPECT_THAT(PullLine(figures, 80), StartsWith("empty  100 %"));
}

}  // namespace
}  // namespace rullama::cli
