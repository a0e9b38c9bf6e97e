// Compares whole sampler chains on the reference interpreter with distributions computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/philox.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "samplers/sampler_test_fixture.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;
using ::testing::ElementsAre;

constexpr int64_t kMaxRows = 4096;

struct Step {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pos;
  std::vector<int32_t> slot;
  std::vector<int32_t> past = {0, 0};
};

// The same logits and settings for every row of every step; all rows are wanted.
class Chain {
 public:
  Chain(std::vector<double> logits, const SamplerSettings& settings)
      : logits_(std::move(logits)),
        biases_(BiasesOf(settings)),
        row_(RowSamplingOf(settings)),
        inputs_(Vocabulary()) {
    row_.bias = biases_;
    SamplerFixture bench(Vocabulary(), kMaxRows);
    AppendRowChain(bench.builder, bench.logits, bench.inputs, {.kind = Kind()});
    interpreter_.emplace(InterpreterOf(std::move(bench)));
  }

  std::vector<int64_t> Run(const Step& step) {
    const auto rows = static_cast<int64_t>(step.tokens.size());
    std::vector<double> logits;
    for (int64_t i = 0; i < rows; ++i) logits.insert(logits.end(), logits_.begin(), logits_.end());
    BindRows(input_names::kTokens, step.tokens);
    BindRows(input_names::kPos, step.pos);
    BindRows(input_names::kSlot, step.slot);
    BindRows(input_names::kPast, step.past);
    std::vector<int32_t> all(step.tokens.size());
    std::iota(all.begin(), all.end(), 0);
    BindRows(input_names::kRows, all);
    const std::vector<RowSampling> settings(step.tokens.size(), row_);
    const Status set = inputs_.Set(Kind(), settings);
    EXPECT_TRUE(set) << set.error().ToString();
    BindRowInputs(inputs_, rows, *interpreter_);
    EXPECT_TRUE(interpreter_->Bind("logits", Tensor::F32({rows, Vocabulary()}, std::move(logits))));
    const Status status = interpreter_->Run({.t = rows, .r = rows});
    EXPECT_TRUE(status) << status.error().ToString();
    return status ? interpreter_->GetOutput(kTokenOutput)->i : std::vector<int64_t>();
  }

  // One token of slot 0.
  int64_t Next(int32_t token, int32_t pos) { return Run({{token}, {pos}, {0}, {pos, 0}})[0]; }

 private:
  void BindRows(std::string_view name, const std::vector<int32_t>& values) {
    EXPECT_TRUE(
        interpreter_->Bind(name, Tensor::I32({static_cast<int64_t>(values.size())}, values)));
  }
  [[nodiscard]] int64_t Vocabulary() const { return std::ssize(logits_); }
  [[nodiscard]] RowChainKind Kind() const { return KindFor(row_, Vocabulary()); }

  std::vector<double> logits_;
  std::vector<TokenBias> biases_;
  RowSampling row_;
  RowInputs inputs_;
  std::optional<Interpreter> interpreter_;
};

std::vector<double> Log(const std::vector<double>& probabilities) {
  std::vector<double> logits;
  for (const double p : probabilities) logits.push_back(std::log(p));
  return logits;
}

// Draws `kMaxRows` tokens at different positions and compares each with the inverse of the
// cumulative distribution of `expected`, pairs of token and probability in the order of the draw.
void ExpectDraws(const std::vector<double>& probabilities, SamplerSettings settings,
                 const std::vector<std::pair<int64_t, double>>& expected) {
  settings.seed = 0x0123456789ABCDEF;
  constexpr double kBoundary = 1e-5;  // a draw this near to a step of the CDF may go either way
  Chain chain(Log(probabilities), settings);
  Step step;
  for (int32_t i = 0; i < kMaxRows; ++i) {
    step.tokens.push_back(0);
    step.pos.push_back(i);
    step.slot.push_back(1);
  }
  const std::vector<int64_t> drawn = chain.Run(step);
  ASSERT_EQ(drawn.size(), static_cast<size_t>(kMaxRows));
  int judged = 0;
  for (uint32_t i = 0; i < kMaxRows; ++i) {
    const double u = PhiloxUniform(settings.seed, i, 0, 0);
    double sum = 0;
    int64_t token = -1;
    bool near_boundary = false;
    for (const auto& [id, p] : expected) {
      sum += p;
      near_boundary |= std::abs(u - sum) < kBoundary;
      if (token < 0 && u < sum) token = id;
    }
    if (near_boundary || token < 0) continue;
    ++judged;
    ASSERT_EQ(drawn[i], token) << "row " << i << " u " << u;
  }
  EXPECT_GT(judged, kMaxRows - 10);
}

//                                        token:   0     1     2     3     4     5     6     7
const std::vector<double> kProbabilities = {0.02, 0.30, 0.05, 0.25, 0.13, 0.15, 0.04, 0.06};

TEST(SamplerNumbersTest, PlainDrawFollowsTheModel) {
  ExpectDraws(
      kProbabilities, {.top_k = 0, .top_p = 1},
      {{0, 0.02}, {1, 0.30}, {2, 0.05}, {3, 0.25}, {4, 0.13}, {5, 0.15}, {6, 0.04}, {7, 0.06}});
}

TEST(SamplerNumbersTest, TopKKeepsTheBest) {
  ExpectDraws(kProbabilities, {.top_k = 3, .top_p = 1},
              {{1, 0.30 / 0.70}, {3, 0.25 / 0.70}, {5, 0.15 / 0.70}});
}

TEST(SamplerNumbersTest, TopPKeepsTheNucleus) {
  // Mass before each: 0, 0.30, 0.55, 0.70, 0.83: the fourth is the first to reach 0.75.
  ExpectDraws(kProbabilities, {.top_k = 0, .top_p = 0.75},
              {{1, 0.30 / 0.83}, {3, 0.25 / 0.83}, {5, 0.15 / 0.83}, {4, 0.13 / 0.83}});
}

TEST(SamplerNumbersTest, MinPIsRelativeToTheBest) {
  // 0.3 * 0.30 = 0.09.
  ExpectDraws(kProbabilities, {.top_k = 0, .top_p = 1, .min_p = 0.3},
              {{1, 0.30 / 0.83}, {3, 0.25 / 0.83}, {4, 0.13 / 0.83}, {5, 0.15 / 0.83}});
}

TEST(SamplerNumbersTest, TypicalPKeepsTheExpectedSurprise) {
  // Entropy 1.213; distances of -ln p from it: 0.520, 0.173, 0.866, 0.866. Token 1 comes first
  // (mass 0.25), then token 0.
  ExpectDraws({0.5, 0.25, 0.125, 0.125}, {.top_k = 0, .top_p = 1, .typical_p = 0.3},
              {{0, 2.0 / 3}, {1, 1.0 / 3}});
}

TEST(SamplerNumbersTest, WholeChain) {
  // top_k 5 leaves 1,3,5,4,7 with mass 0.89; of that 0.337, 0.618, 0.787 lie before the second to
  // fourth, so top_p 0.8 drops token 7; min_p 0.45 asks for 0.135 and drops token 4; temperature
  // 0.5 squares the rest: 0.09, 0.0625, 0.0225.
  ExpectDraws(kProbabilities, {.temperature = 0.5, .top_k = 5, .top_p = 0.8, .min_p = 0.45},
              {{1, 0.09 / 0.175}, {3, 0.0625 / 0.175}, {5, 0.0225 / 0.175}});
}

TEST(SamplerNumbersTest, BiasMovesAndBans) {
  // Token 1 banned, token 0 multiplied by e^ln(10) = 10 from 0.02 to 0.2.
  ExpectDraws(kProbabilities,
              {.top_k = 3, .top_p = 1, .logit_bias = {{1, -kInf}, {0, std::log(10.0)}}},
              {{3, 0.25 / 0.60}, {0, 0.20 / 0.60}, {5, 0.15 / 0.60}});
}

TEST(SamplerNumbersTest, RowsDrawTheSameAloneAndTogether) {
  Chain together(Log(kProbabilities), {.top_k = 8, .top_p = 1, .seed = 7});
  Chain alone(Log(kProbabilities), {.top_k = 8, .top_p = 1, .seed = 7});
  const auto tokens = together.Run({{0, 0, 0, 0}, {0, 1, 5, 6}, {0, 0, 1, 1}});
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(alone.Run({{0}, {0}, {0}})[0], tokens[0]);
  EXPECT_EQ(alone.Run({{0}, {1}, {0}})[0], tokens[1]);
  EXPECT_EQ(alone.Run({{0}, {5}, {1}})[0], tokens[2]);
  EXPECT_EQ(alone.Run({{0}, {6}, {1}})[0], tokens[3]);
}

TEST(SamplerNumbersTest, GreedyTakesTheBestAfterBias) {
  Chain chain({1, 3, 2}, {.greedy = true, .top_k = 0, .logit_bias = {{1, -1.5}}});
  EXPECT_EQ(chain.Next(0, 0), 2);
}

TEST(SamplerNumbersTest, NothingLeftIsMinusOne) {
  Chain chain({-kInf, -kInf, -kInf}, {.top_k = 2});
  EXPECT_EQ(chain.Next(0, 0), -1);
}

TEST(SamplerNumbersTest, RepeatPenaltyDividesOrMultiplies) {
  // 2 / 1.5 = 1.33 falls below 1.4; -1 * 1.5 falls below -1.2.
  Chain positive({2, 1.4, 0}, {.greedy = true, .top_k = 0, .repeat_penalty = 1.5});
  EXPECT_EQ(positive.Next(0, 0), 1);
  Chain negative({-1, -1.2, -9}, {.greedy = true, .top_k = 0, .repeat_penalty = 1.5});
  EXPECT_EQ(negative.Next(0, 0), 1);
}

TEST(SamplerNumbersTest, PenaltiesLookBackAcrossSteps) {
  // Each seen token loses 0.5. With two tokens of look-back both 0 and 1 have been seen at
  // position 1: 1.5 and 1.4 against 1.45.
  Chain two({2, 1.9, 1.45},
            {.greedy = true, .top_k = 0, .repeat_last_n = 2, .presence_penalty = 0.5});
  EXPECT_EQ(two.Next(0, 0), 1);
  EXPECT_EQ(two.Next(1, 1), 0);
  // Position 2: the 0 of position 0 is out of sight, 1 is seen once more.
  EXPECT_EQ(two.Next(1, 2), 0);
  Chain one({2, 1.9, 1.95},
            {.greedy = true, .top_k = 0, .repeat_last_n = 1, .presence_penalty = 0.5});
  EXPECT_EQ(one.Next(0, 0), 2);
  EXPECT_EQ(one.Next(1, 1), 0);
}

TEST(SamplerNumbersTest, FrequencyCountsEveryUse) {
  // Token 0 after one use 1.8, after two 1.6, after three 1.4 against 1.5.
  Chain chain({2, 1.5}, {.greedy = true, .top_k = 0, .frequency_penalty = 0.2});
  EXPECT_EQ(chain.Next(0, 0), 0);
  EXPECT_EQ(chain.Next(0, 1), 0);
  EXPECT_EQ(chain.Next(0, 2), 1);
}

TEST(SamplerNumbersTest, SlotsAndLaterRowsDoNotCount) {
  // One step: slot 0 writes 0 then 1, slot 1 writes 1. Row 0 must not see the 1 that follows it,
  // and slot 1 must not see slot 0.
  Chain chain({2, 1.9}, {.greedy = true, .top_k = 0, .presence_penalty = 0.5});
  EXPECT_THAT(chain.Run({{0, 1, 1}, {0, 1, 0}, {0, 0, 1}}), ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace rullama
