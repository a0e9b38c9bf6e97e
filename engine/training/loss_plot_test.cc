// The picture of the losses of a run.
#include "engine/training/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/drawing/markup_test_util.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

// The marks of the axis, whatever else is drawn.
bool HasMark(const drawing::Picture& picture, const std::string& mark) {
  return picture.body.find(">" + mark + "<") != std::string::npos;
}

TEST(LossPlotTest, LongRunsAreMeansOfSteps) {
  LossHistory history{.steps = {4, 2}, .validations = {{0, 5}, {2, 3}}};
  const std::string small = drawing::SvgFile(LossPlot(history));
  EXPECT_EQ(drawing::MarkupFault(small), "");
  EXPECT_THAT(small, HasSubstr("step 2: 2<"));
  EXPECT_THAT(small, HasSubstr("validation"));
  history.steps.assign(1000, 1);
  history.steps[998] = 4;
  const std::string large = drawing::SvgFile(LossPlot(history));
  EXPECT_THAT(large, HasSubstr("training, mean of 3 steps"));
  EXPECT_EQ(drawing::MarkupFault(large), "");
}

TEST(LossPlotTest, LossesThatFallFarAreOnALogarithmicAxis) {
  const drawing::Picture near = LossPlot({.steps = {4, 2, 1}, .validations = {}});
  EXPECT_TRUE(HasMark(near, "2.5"));
  const drawing::Picture far = LossPlot({.steps = {4, 0.5, 0.001}, .validations = {{3, 0.02}}});
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

}  // namespace
}  // namespace rullama
