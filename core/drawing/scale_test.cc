// Axes end at round numbers.
#include "core/drawing/scale.h"

#include <gtest/gtest.h>

namespace rullama::drawing {
namespace {

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

}  // namespace
}  // namespace rullama::drawing
