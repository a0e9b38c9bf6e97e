#include "engine/drafts/draft_length.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rullama {
namespace {

// Measures a step of each number of rows, `seconds(rows)`, and tokens of drafts. The first of each
// is not counted.
template <typename Seconds>
DraftCosts Costs(const Seconds& seconds, double token) {
  DraftCosts costs;
  for (int i = 0; i < 2; ++i) {
    for (int64_t rows = 1; rows <= kMaxDraftLength + 1; ++rows) {
      costs.CountStep(rows, seconds(rows));
    }
    costs.CountDraft(2, 2 * token);
  }
  return costs;
}

DraftAcceptance After(int rounds, int64_t drafted, int64_t accepted) {
  DraftAcceptance acceptance;
  for (int i = 0; i < rounds; ++i) acceptance.Count(drafted, accepted);
  return acceptance;
}

TEST(DraftCosts, LeaveOutTheFirstStepOfASize) {
  DraftCosts costs;
  costs.CountStep(1, 5);
  EXPECT_EQ(costs.StepSeconds(1), 0);
  costs.CountStep(1, 1);
  EXPECT_EQ(costs.StepSeconds(1), 1);
  costs.CountStep(1, 2);
  EXPECT_GT(costs.StepSeconds(1), 1);
  EXPECT_LT(costs.StepSeconds(1), 1.5);
}

TEST(DraftCosts, AreEstimatedBetweenAndBeyondMeasurements) {
  DraftCosts costs;
  for (int i = 0; i < 2; ++i) {
    costs.CountStep(1, 1);
    costs.CountStep(5, 3);
  }
  EXPECT_DOUBLE_EQ(costs.StepSeconds(3), 2);
  EXPECT_GT(costs.StepSeconds(6), 3);
}

TEST(DraftAcceptance, FollowsWhatWasRight) {
  EXPECT_GT(After(30, 3, 3).Expected(3), 2.7);
  EXPECT_LT(After(30, 3, 0).Expected(3), 0.1);
  // The third token was never put to the test.
  const DraftAcceptance fresh;
  const DraftAcceptance one = After(30, 3, 1);
  EXPECT_GT(one.Expected(1), fresh.Expected(1));
  EXPECT_LT(one.Expected(2) - one.Expected(1), fresh.Expected(2) - fresh.Expected(1));
}

TEST(DraftAcceptance, OfTheNextAnswerIsBetweenTheUsualAndTheLast) {
  const double usual = DraftAcceptance().Expected(2);
  const DraftAcceptance wrong = After(30, 4, 0);
  const double next = wrong.OfNextAnswer().Expected(2);
  EXPECT_LT(next, usual);
  EXPECT_GT(next, wrong.Expected(2));
  EXPECT_GT(After(30, 4, 4).OfNextAnswer().Expected(2), usual);
}

TEST(DraftAcceptance, LearnsFastFromTheFirstDrafts) {
  EXPECT_LT(After(3, 1, 0).Expected(1), 0.4);
  // Later ones are one tenth each.
  DraftAcceptance acceptance = After(30, 1, 1);
  const double before = acceptance.Expected(1);
  acceptance.Count(1, 0);
  EXPECT_NEAR(acceptance.Expected(1), 0.9 * before, 1e-9);
}

TEST(BestDraftLength, MeasuresAStepAloneFirstAndThenAShortDraft) {
  DraftCosts costs;
  EXPECT_EQ(BestDraftLength(costs, {}, 0, 7), 0);
  for (int i = 0; i < 2; ++i) costs.CountStep(1, 1);
  EXPECT_EQ(BestDraftLength(costs, {}, 0, 7), kFirstDraftLength);
  EXPECT_EQ(BestDraftLength(costs, {}, 0, 2), 2);
}

TEST(BestDraftLength, GrowsWithAcceptance) {
  const DraftCosts cheap = Costs([](int64_t rows) { return 1 + 0.03 * double(rows); }, 0.05);
  const int64_t usual = BestDraftLength(cheap, {}, 0, 16);
  EXPECT_GT(usual, 1);
  EXPECT_GT(BestDraftLength(cheap, After(50, 16, 16), 0, 16), usual);
  EXPECT_EQ(BestDraftLength(cheap, After(50, 4, 0), 0, 16), 0);
  EXPECT_EQ(BestDraftLength(cheap, After(50, 16, 16), 0, 3), 3);
}

TEST(BestDraftLength, IsZeroWhereRowsCostAsMuchAsSteps) {
  const DraftCosts dear = Costs([](int64_t rows) { return double(rows); }, 0.01);
  EXPECT_EQ(BestDraftLength(dear, After(50, 16, 16), 0, 16), 0);
  // Next to other slots one more row is not better.
  EXPECT_EQ(BestDraftLength(dear, After(50, 16, 16), 3, 16), 0);
}

// The lengths of drafts that are all wrong, until there is none.
std::vector<int64_t> LengthsOfWrongDrafts(const DraftCosts& costs) {
  DraftAcceptance acceptance;
  std::vector<int64_t> lengths;
  while (const int64_t length = BestDraftLength(costs, acceptance, 0, 7)) {
    lengths.push_back(length);
    acceptance.Count(length, 0);
  }
  return lengths;
}

constexpr std::array<std::string_view, 2> kBackends = {"cuda", "vulkan"};

TEST(UsualCosts, ARowMoreTakesLessOnCuda) {
  EXPECT_DOUBLE_EQ(UsualCosts("cuda").StepSeconds(1), 1);
  EXPECT_DOUBLE_EQ(UsualCosts("cuda").StepSeconds(2), 1.35);
  EXPECT_DOUBLE_EQ(UsualCosts("cuda").StepSeconds(8), 1 + 7 * 0.35);
  for (const std::string_view backend : {"vulkan", "opencl", "webgpu", "reference"}) {
    EXPECT_DOUBLE_EQ(UsualCosts(backend).StepSeconds(1), 1) << backend;
    EXPECT_DOUBLE_EQ(UsualCosts(backend).StepSeconds(2), 1.5) << backend;
    EXPECT_DOUBLE_EQ(UsualCosts(backend).StepSeconds(8), 4.5) << backend;
  }
  const DraftAcceptance right = After(20, 16, 16);
  EXPECT_GT(BestDraftLength(UsualCosts("cuda"), right, 0, 16),
            BestDraftLength(UsualCosts("vulkan"), right, 0, 16));
}

// They cost an answer of 128 tokens less than a fiftieth, with the three tokens that are tried
// later.
TEST(UsualCosts, WrongDraftsAreSoonGivenUp) {
  for (const std::string_view backend : kBackends) {
    const DraftCosts costs = UsualCosts(backend);
    const auto seconds = [&costs](int64_t length) {
      return costs.StepSeconds(1 + length) - costs.StepSeconds(1) +
             static_cast<double>(length) * costs.TokenSeconds();
    };
    double sum = 3 * seconds(1);
    const std::vector<int64_t> lengths = LengthsOfWrongDrafts(costs);
    for (const int64_t length : lengths) sum += seconds(length);
    EXPECT_FALSE(lengths.empty()) << backend;
    EXPECT_LT(sum, 0.02 * 128) << backend;
  }
}

TEST(UsualCosts, RightDraftsGetLonger) {
  for (const std::string_view backend : kBackends) {
    const DraftCosts costs = UsualCosts(backend);
    const int64_t first = BestDraftLength(costs, {}, 0, 16);
    EXPECT_GT(first, 0) << backend;
    EXPECT_GT(BestDraftLength(costs, After(20, 16, 16), 0, 16), first) << backend;
  }
}

}  // namespace
}  // namespace rullama
