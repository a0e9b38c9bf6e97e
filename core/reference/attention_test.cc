#include <rullama/sdk/half.h>

#include <algorithm>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::HasSubstr;

TEST(RopeTest, TurnsPairsFromTheFirstDimOn) {
  const Tensor x = F32({1, 1, 6}, {9, 1, 2, 3, 4, 8});
  const auto turned = Eval(OpKind::kRope, OpAttrs(rl_rope_attrs{0, 100.0F, 4, 0, 1}),
                           {x, I32({1}, {7}), std::nullopt});
  ExpectValues(turned, {9, std::cos(7) - 3 * std::sin(7), 2 * std::cos(0.7) - 4 * std::sin(0.7),
                        std::sin(7) + 3 * std::cos(7), 2 * std::sin(0.7) + 4 * std::cos(0.7), 8});
}

TEST(RopeTest, TurnsPairsOfHalves) {
  const Tensor x = F32({3, 1, 5}, {1, 2, 3, 4, 9, 1, 2, 3, 4, 9, 1, 2, 3, 4, 9});
  const double theta = 100;  // the second pair turns 100^(-2/4) = 0.1 as fast
  const auto turned = [&](double a, double b) -> std::vector<double> {
    return {std::cos(a) - 3 * std::sin(a), 2 * std::cos(b) - 4 * std::sin(b),
            std::sin(a) + 3 * std::cos(a), 2 * std::sin(b) + 4 * std::cos(b), 9};
  };
  std::vector<double> expected;
  for (const double pos : {0.0, 1.0, 50.0}) {
    const auto row = turned(pos, pos * 0.1);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  const Tensor pos = I32({3}, {0, 1, 50});
  ExpectValues(Eval(OpKind::kRope, OpAttrs(rl_rope_attrs{0, static_cast<float>(theta), 4, 0, 0}),
                    {x, pos, std::nullopt}),
               expected);
  // Factors divide the angle; a huge one stops a pair.
  std::vector<double> slower;
  for (const double p : {0.0, 1.0, 50.0}) {
    const auto row = turned(p / 2, 0);
    slower.insert(slower.end(), row.begin(), row.end());
  }
  ExpectValues(Eval(OpKind::kRope, OpAttrs(rl_rope_attrs{0, static_cast<float>(theta), 4, 0, 0}),
                    {x, pos, F32({2}, {2, 1e30})}),
               slower);
}

// A step of attention, by default with one kv head of one dimension. With queries of zero all
// weights are equal, so the result is the mean of the visible values.
struct Step {
  std::vector<int32_t> pos;
  std::vector<int32_t> slot;
  std::vector<double> values;  // of the fresh rows
  Tensor state;                // values: [slots, capacity, 1, 1]
  std::vector<int32_t> past;
  rl_mask mask = RL_MASK_CAUSAL;
  int64_t window = 0;
  std::vector<int32_t> end = {};  // the last visible positions, if they are not `pos`

  [[nodiscard]] std::optional<Tensor> LastVisible() const {
    if (end.empty()) return std::nullopt;
    return I32({static_cast<int64_t>(end.size())}, end);
  }
  [[nodiscard]] Tensor Run() const {
    const auto t = static_cast<int64_t>(pos.size());
    const auto n = pos.size();
    const Tensor zeros = F32({t, 1, 1}, std::vector<double>(n));
    Tensor keys = state;
    std::ranges::fill(keys.f, 0.0);
    return Eval(OpKind::kAttention, OpAttrs(rl_attention_attrs{0, mask, window, 1}),
                {zeros, zeros, F32({t, 1, 1}, values), keys, state, I32({t}, pos), I32({t}, slot),
                 I32({t}, pos), I32({t}, slot), I32({state.dims[0]}, past), LastVisible()});
  }
};

TEST(AttentionTest, CausalSeesOldRowsAndFreshRowsUpToItself) {
  ExpectValues(Step{.pos = {2, 3},
                    .slot = {0, 0},
                    .values = {30, 40},
                    .state = F32({1, 4, 1, 1}, {10, 20, kNaN, kNaN}),
                    .past = {2}}
                   .Run(),
               {(10 + 20 + 30) / 3.0, (10 + 20 + 30 + 40) / 4.0});
}

// Rows 2 to 4 are a block that sees itself whole; the window counts from each row's own position.
TEST(AttentionTest, RowsSeeUpToTheirLastVisiblePosition) {
  Step step{.pos = {1, 2, 3, 4, 5},
            .slot = {0, 0, 0, 0, 0},
            .values = {10, 20, 30, 40, 50},
            .state = F32({1, 4, 1, 1}, {0, kNaN, kNaN, kNaN}),
            .past = {1},
            .end = {1, 4, 4, 4, 5}};
  const double block = (0 + 10 + 20 + 30 + 40) / 5.0;
  ExpectValues(step.Run(), {5, block, block, block, 150 / 6.0});
  step.window = 2;
  ExpectValues(step.Run(), {5, (10 + 20 + 30 + 40) / 4.0, (20 + 30 + 40) / 3.0, (30 + 40) / 2.0,
                            (40 + 50) / 2.0});
}

TEST(AttentionTest, RowsOfOtherSlotsAreInvisible) {
  ExpectValues(Step{.pos = {1, 0, 2},
                    .slot = {0, 1, 0},
                    .values = {30, 70, 50},
                    .state = F32({2, 2, 1, 1}, {10, kNaN, kNaN, kNaN}),
                    .past = {1, 0}}
                   .Run(),
               {(10 + 30) / 2.0, 70, (10 + 30 + 50) / 3.0});
}

TEST(AttentionTest, WindowCountsTheQueryItself) {
  ExpectValues(Step{.pos = {3, 4, 5},
                    .slot = {0, 0, 0},
                    .values = {30, 40, 50},
                    .state = F32({1, 8, 1, 1}, {0, 10, 20, kNaN, kNaN, kNaN, kNaN, kNaN}),
                    .past = {3},
                    .window = 2}
                   .Run(),
               {(20 + 30) / 2.0, (30 + 40) / 2.0, (40 + 50) / 2.0});
}

TEST(AttentionTest, ARingKeepsTheLastRows) {
  // Five rows were stored in a ring of three: positions 3, 4, 2.
  ExpectValues(Step{.pos = {5},
                    .slot = {0},
                    .values = {50},
                    .state = F32({1, 3, 1, 1}, {30, 40, 20}),
                    .past = {5},
                    .window = 3}
                   .Run(),
               {(30 + 40 + 50) / 3.0});
  ExpectValues(Step{.pos = {5},
                    .slot = {0},
                    .values = {50},
                    .state = F32({1, 3, 1, 1}, {30, 40, 20}),
                    .past = {5}}
                   .Run(),
               {(20 + 30 + 40 + 50) / 4.0});
}

TEST(AttentionTest, CanvasSeesAllFreshRowsAndTheWindowCountsFromPast) {
  Step step{.pos = {5, 6, 7, 8},
            .slot = {0, 0, 0, 0},
            .values = {50, 60, 70, 80},
            .state = F32({1, 8, 1, 1}, {0, 10, 20, 30, 40, kNaN, kNaN, kNaN}),
            .past = {5},
            .mask = RL_MASK_CANVAS,
            .window = 3};
  const double windowed = (30 + 40 + 50 + 60 + 70 + 80) / 6.0;  // old positions >= 5 - 3 + 1
  ExpectValues(step.Run(), {windowed, windowed, windowed, windowed});
  step.window = 0;
  const double whole = (0 + 10 + 20 + 30 + 40 + 50 + 60 + 70 + 80) / 9.0;
  ExpectValues(step.Run(), {whole, whole, whole, whole});
}

TEST(AttentionTest, WithoutVisibleKeysTheResultIsZero) {
  const Tensor one = F32({1, 1, 1}, {1});
  const Tensor state = F32({1, 2, 1, 1}, {5, 5});
  ExpectValues(Eval(OpKind::kAttention, OpAttrs(rl_attention_attrs{0, RL_MASK_CAUSAL, 0, 1}),
                    {one, one, one, state, state, I32({1}, {0}), I32({1}, {0}), I32({1}, {3}),
                     I32({1}, {0}), I32({1}, {0}), std::nullopt}),
               {0});
}

TEST(AttentionTest, HeadsShareKeysInGroupsAndScoresWeigh) {
  // Four heads over two kv heads of two dims, one old row and one fresh row.
  const Tensor q = F32({1, 4, 2}, {1, 0, 0, 2, 1, 1, 0, 0});
  const Tensor k_new = F32({1, 2, 2}, {3, 1, -1, 4});
  const Tensor v_new = F32({1, 2, 2}, {1, 2, 3, 4});
  const Tensor k_state = F32({1, 1, 2, 2}, {2, 5, 0, 1});
  const Tensor v_state = F32({1, 1, 2, 2}, {-1, -2, -3, -4});
  const Tensor zero = I32({1}, {0});
  const Tensor one = I32({1}, {1});
  const double scale = 0.5;
  const Tensor y =
      Eval(OpKind::kAttention,
           OpAttrs(rl_attention_attrs{0, RL_MASK_CAUSAL, 0, static_cast<float>(scale)}),
           {q, k_new, v_new, k_state, v_state, one, zero, one, zero, one, std::nullopt});
  // (old score, fresh score) of each head, by hand.
  const double scores[4][2] = {{2, 3}, {10, 2}, {1, 3}, {0, 0}};
  std::vector<double> expected;
  for (size_t head = 0; head < 4; ++head) {
    const double old_weight = std::exp(scores[head][0] * scale);
    const double new_weight = std::exp(scores[head][1] * scale);
    for (size_t d = 0; d < 2; ++d) {
      const size_t at = head / 2 * 2 + d;
      expected.push_back((old_weight * v_state.f[at] + new_weight * v_new.f[at]) /
                         (old_weight + new_weight));
    }
  }
  ExpectValues(y, expected);
}

TEST(AttentionTest, ScoresAndMixAreItsParts) {
  const Tensor q = F32({1, 2, 1}, {2, -1});
  const Tensor k_new = F32({2, 1, 1}, {3, 5});
  const Tensor k_state = F32({1, 3, 1, 1}, {7, 11, kNaN});
  const Tensor pos = I32({2}, {2, 3});
  const Tensor slot = I32({2}, {0, 0});
  const Tensor scores = Eval(
      OpKind::kAttentionScores, OpAttrs(rl_attention_scores_attrs{0, RL_MASK_CAUSAL, 2, 10}),
      {q, k_new, k_state, I32({1}, {2}), I32({1}, {0}), pos, slot, I32({1}, {2}), std::nullopt});
  EXPECT_THAT(scores.dims, ::testing::ElementsAre(1, 2, 5));
  ExpectValues(scores, {-kInf, 220, -kInf, 60, -kInf, -kInf, -110, -kInf, -30, -kInf});
  const Tensor p = F32({1, 2, 5}, {0, 0.25, 0, 0.75, 0, 0, 1, 0, 0, 0});
  ExpectValues(
      Eval(OpKind::kAttentionMix, OpAttrs(OpKind::kAttentionMix),
           {p, F32({2, 1, 1}, {100, kNaN}), F32({1, 3, 1, 1}, {kNaN, 8, kNaN}), I32({1}, {0})}),
      {0.25 * 8 + 0.75 * 100, 8});
}

TEST(AttentionTest, SlotsOutOfRangeAreErrors) {
  const Tensor one = F32({1, 1, 1}, {1});
  const Tensor state = F32({1, 2, 1, 1}, {5, 5});
  const Tensor zero = I32({1}, {0});
  const auto error = [&](int32_t pos, int32_t slot, int32_t past) {
    return EvalError(OpKind::kAttention, OpAttrs(rl_attention_attrs{0, RL_MASK_CAUSAL, 0, 1}),
                     {one, one, one, state, state, I32({1}, {pos}), I32({1}, {slot}), zero, zero,
                      I32({1}, {past}), std::nullopt});
  };
  EXPECT_THAT(error(0, 1, 0), HasSubstr("row 0 has slot 1, the state 1 slots [ref.index]"));
  EXPECT_THAT(error(0, -1, 0), HasSubstr("slot -1"));
  EXPECT_THAT(error(-2, 0, 0), HasSubstr("position -2"));
  EXPECT_THAT(error(0, 0, -1), HasSubstr("past -1"));
  EXPECT_THAT(EvalError(OpKind::kAttentionMix, OpAttrs(OpKind::kAttentionMix),
                        {F32({1, 1, 3}, {0, 0, 0}), one, state, I32({1}, {9})}),
              HasSubstr("slot 9"));
}

// Compares a sequence fed in chunks through a ring with attention over the whole sequence.
class ChunkedAttention : public ::testing::TestWithParam<std::tuple<std::vector<int>, int>> {};

TEST_P(ChunkedAttention, EqualsOneShot) {
  const auto& [chunks, window] = GetParam();
  constexpr int64_t kCapacity = 5;
  constexpr int64_t kLength = 13;
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> v;
  for (int i = 0; i < kLength; ++i) {
    q.push_back(std::sin(1.3 * i));
    k.push_back(static_cast<float>(std::cos(2.1 * i)));  // the precision of an f32 state
    v.push_back(i * i);
  }
  Tensor k_state = F32({2, kCapacity, 1, 1}, std::vector<double>(2 * kCapacity));
  Tensor v_state = k_state;
  const auto part = [](const std::vector<double>& all, int64_t at, int64_t count) {
    return Tensor::F32({count, 1, 1}, {all.begin() + at, all.begin() + at + count});
  };
  std::vector<double> actual;
  int64_t at = 0;
  for (const int count : chunks) {
    std::vector<int32_t> positions(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      positions[static_cast<size_t>(i)] = static_cast<int32_t>(at + i);
    const Tensor pos = I32({count}, positions);
    const Tensor slot = I32({count}, std::vector<int32_t>(static_cast<size_t>(count), 1));
    const Tensor past = I32({2}, {0, static_cast<int32_t>(at)});
    const Tensor y =
        Eval(OpKind::kAttention, OpAttrs(rl_attention_attrs{0, RL_MASK_CAUSAL, window, 1}),
             {part(q, at, count), part(k, at, count), part(v, at, count), k_state, v_state, pos,
              slot, pos, slot, past, std::nullopt});
    actual.insert(actual.end(), y.f.begin(), y.f.end());
    const OpAttrs none(OpKind::kStateAppend);
    k_state = Eval(OpKind::kStateAppend, none, {k_state, part(k, at, count), pos, slot});
    v_state = Eval(OpKind::kStateAppend, none, {v_state, part(v, at, count), pos, slot});
    at += count;
  }
  ASSERT_EQ(at, kLength);
  for (int64_t i = 0; i < kLength; ++i) {
    double sum = 0;
    double mixed = 0;
    for (int64_t j = std::max<int64_t>(0, i - window + 1); j <= i; ++j) {
      const double weight = std::exp(q[static_cast<size_t>(i)] * k[static_cast<size_t>(j)]);
      sum += weight;
      mixed += weight * v[static_cast<size_t>(j)];
    }
    EXPECT_NEAR(actual[static_cast<size_t>(i)], mixed / sum, 1e-9) << "row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Chunks, ChunkedAttention,
    ::testing::Combine(::testing::Values(std::vector{13}, std::vector{1, 1, 1, 1, 1, 8},
                                         std::vector{4, 4, 4, 1}, std::vector{7, 6},
                                         std::vector(13, 1)),
                       ::testing::Values(1, 3, 5)));

}  // namespace
}  // namespace rullama::reference
