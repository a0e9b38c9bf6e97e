// Tests how the tokens of a sequence are fed, on a graph that counts.
#include "core/runtime/sequence_feeder.h"

#include <gmock/gmock.h>

#include <atomic>
#include <utility>
#include <vector>

#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr StepLimits kFourRows{.max_t = 4, .max_r = 1};

Status FeedPrompt(SequenceFeeder& feeder, const std::vector<int32_t>& tokens,
                  const SequenceFeeder::OnStep& on_step) {
  return feeder.Feed(tokens, DemandMode::kStateOnly, DemandMode::kPerOutput, on_step);
}

TEST(SequenceFeederTest, FeedsAPromptInSteps) {
  const CountingSession counting(kFourRows);
  SequenceFeeder feeder(counting.get(), {});
  std::vector<std::pair<int64_t, int64_t>> progress;
  const Status fed = FeedPrompt(feeder, {1, 2, 3, 4, 5, 4}, [&](int64_t done, int64_t total) {
    progress.emplace_back(done, total);
    return OkStatus();
  });
  ASSERT_TRUE(fed) << fed.error().ToString();
  EXPECT_THAT(progress, ElementsAre(Pair(4, 6), Pair(6, 6)));
  EXPECT_EQ(feeder.position(), 6);
  EXPECT_THAT(counting.Tokens(1), ElementsAre(5));
}

TEST(SequenceFeederTest, ReadsTheTokenThatFollows) {
  const CountingSession counting(kFourRows);
  SequenceFeeder feeder(counting.get(), {});
  const auto next = feeder.NextToken(std::vector<int32_t>{1, 2, 3, 4, 5, 4});
  ASSERT_TRUE(next) << next.error().ToString();
  EXPECT_EQ(*next, 5);
  EXPECT_EQ(feeder.position(), 6);
}

TEST(SequenceFeederTest, ACancelledFeedSaysHowFarItCame) {
  const CountingSession counting(kFourRows);
  std::atomic<bool> cancelled = false;
  SequenceFeeder feeder(counting.get(), {.cancelled = &cancelled});
  const Status fed =
      FeedPrompt(feeder, std::vector<int32_t>(9, 1), [&](int64_t done, int64_t /*total*/) {
        cancelled = done >= 4;
        return OkStatus();
      });
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "run.cancelled");
  EXPECT_THAT(fed.error().message, HasSubstr("4 of 9"));
  EXPECT_EQ(feeder.position(), 4);
  cancelled = false;
  EXPECT_TRUE(FeedPrompt(feeder, {1}, {}));
}

}  // namespace
}  // namespace rullama
