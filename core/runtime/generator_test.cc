// Tests how a sequence is fed, where it stops and which ids are refused, on a graph that counts.
#include "core/runtime/generator.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/runtime/step_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr StepLimits kFourRows{.max_rows = 4, .max_wanted = 1};

class GeneratorTest : public ::testing::Test {
 protected:
  [[nodiscard]] GeneratorOptions Options() const {
    GeneratorOptions options;
    options.capacity = 12;
    options.vocabulary = kVocabulary;
    options.cancelled = &cancelled_;
    return options;
  }
  // The tokens after `first`, and why they end.
  std::vector<int32_t> Generate(Generator& generator, int32_t first, int64_t max_tokens,
                                StopReason expected) {
    std::vector<int32_t> tokens;
    const auto outcome = generator.Generate(first, max_tokens, [&](int32_t token) {
      tokens.push_back(token);
      return tokens.size() < stop_after_;
    });
    EXPECT_TRUE(outcome) << outcome.error().ToString();
    if (outcome) {
      EXPECT_EQ(NameOf(outcome->reason), NameOf(expected));
      EXPECT_EQ(outcome->tokens, std::ssize(tokens));
    }
    return tokens;
  }

  CountingSession counting_{kFourRows};
  std::atomic<bool> cancelled_ = false;
  size_t stop_after_ = 100;
};

TEST_F(GeneratorTest, FeedsAPromptInStepsAndCounts) {
  std::vector<std::pair<int64_t, int64_t>> progress;
  GeneratorOptions options = Options();
  options.on_prefill = [&](int64_t done, int64_t total) { progress.emplace_back(done, total); };
  Generator generator(counting_.get(), options);
  EXPECT_EQ(generator.Feed(std::vector<int32_t>{1, 2, 3, 4, 5, 4}), 5);
  EXPECT_THAT(progress, ElementsAre(Pair(4, 6), Pair(6, 6)));
  EXPECT_EQ(generator.position(), 6);
  EXPECT_THAT(Generate(generator, 5, 4, StopReason::kMaxTokens), ElementsAre(5, 6, 7, 0));
}

TEST_F(GeneratorTest, StopsForEachReason) {
  GeneratorOptions options = Options();
  options.end_tokens = {7};
  Generator generator(counting_.get(), options);
  EXPECT_EQ(generator.Feed(std::vector<int32_t>{4}), 5);
  EXPECT_THAT(Generate(generator, 5, -1, StopReason::kEndOfGeneration), ElementsAre(5, 6));
  EXPECT_THAT(Generate(generator, 0, 0, StopReason::kMaxTokens), ElementsAre());
  stop_after_ = 2;
  EXPECT_THAT(Generate(generator, 0, -1, StopReason::kStopped), ElementsAre(0, 1));
  stop_after_ = 100;
  // 4 positions are taken, 8 are free. The token that fills the context is still passed on.
  counting_.SetBias(0, 2);
  EXPECT_EQ(Generate(generator, 0, -1, StopReason::kContextFull).size(), 9U);
  EXPECT_EQ(generator.position(), 12);
  cancelled_ = true;
  EXPECT_EQ(Generate(generator, 0, -1, StopReason::kCancelled).size(), 1U);
}

TEST_F(GeneratorTest, RefusesWhatDoesNotFitTheContext) {
  Generator generator(counting_.get(), Options());
  ASSERT_TRUE(generator.Feed(std::vector<int32_t>(10, 1)));
  const auto fed = generator.Feed(std::vector<int32_t>(3, 1));
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "context.overflow");
  EXPECT_EQ(generator.position(), 10);
  EXPECT_TRUE(generator.Feed(std::vector<int32_t>(2, 1)));
}

TEST_F(GeneratorTest, ACancelledFeedSaysHowFarItCame) {
  GeneratorOptions options = Options();
  options.on_prefill = [&](int64_t done, int64_t /*total*/) { cancelled_ = done >= 4; };
  Generator generator(counting_.get(), options);
  const auto fed = generator.Feed(std::vector<int32_t>(9, 1));
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "run.cancelled");
  EXPECT_THAT(fed.error().message, HasSubstr("4 of 9"));
  EXPECT_EQ(generator.position(), 4);
  cancelled_ = false;
  EXPECT_TRUE(generator.Feed(std::vector<int32_t>{1}));
}

TEST_F(GeneratorTest, LogitsThatAreNoNumbersAndTokensThatAreNoneAreErrors) {
  Generator generator(counting_.get(), Options());
  counting_.SetBias(3, std::nanf(""));
  auto fed = generator.Feed(std::vector<int32_t>{1});
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "backend.nan");
  counting_.SetBias(3, 0);
  GeneratorOptions options = Options();
  options.vocabulary = 2;  // below what the graph gives
  Generator narrow(counting_.get(), options);
  fed = narrow.Feed(std::vector<int32_t>{1});
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "backend.token");
  EXPECT_THAT(fed.error().message, HasSubstr("'reference' chose token 2"));
}

}  // namespace
}  // namespace rullama
