#include <rullama/sdk/philox.h>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> Logs(std::initializer_list<double> probabilities) {
  std::vector<double> logs;
  for (const double p : probabilities) logs.push_back(std::log(p));
  return logs;
}

// Applies a mask to one row of logits and returns the kept columns.
std::vector<int> Kept(OpKind kind, const OpAttrs& attrs, const std::vector<double>& row) {
  const Tensor y = Eval(kind, attrs, {F32({1, static_cast<int64_t>(row.size())}, row)});
  std::vector<int> kept;
  for (size_t j = 0; j < y.f.size(); ++j) {
    if (y.f[j] == -kInf) continue;
    EXPECT_EQ(y.f[j], row[j]);
    kept.push_back(static_cast<int>(j));
  }
  return kept;
}

TEST(SamplingTest, TopPKeepsTheNucleus) {
  const auto top_p = [](float p, const std::vector<double>& row) {
    return Kept(OpKind::kTopPMask, OpAttrs(rl_top_p_mask_attrs{0, p}), row);
  };
  const std::vector<double> row = Logs({0.5, 0.3, 0.15, 0.05});
  EXPECT_THAT(top_p(0.4F, row), ElementsAre(0));
  EXPECT_THAT(top_p(0.6F, row), ElementsAre(0, 1));
  EXPECT_THAT(top_p(0.85F, row), ElementsAre(0, 1, 2));
  EXPECT_THAT(top_p(1e-30F, row), ElementsAre(0));
  EXPECT_THAT(top_p(1.0F, row), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(top_p(0.5F, {-kInf, -kInf}), ElementsAre());
  EXPECT_THAT(top_p(1.0F, {2, kNaN}), ElementsAre(0));  // NaN reads as -infinity
}

TEST(SamplingTest, EntropyAcceptCountsStrictlyEarlierEntropies) {
  const auto accept = [](float bound, const std::vector<double>& entropy) {
    return Eval(OpKind::kEntropyAccept, OpAttrs(rl_entropy_accept_attrs{0, bound}),
                {F32({static_cast<int64_t>(entropy.size())}, entropy)})
        .f;
  };
  EXPECT_THAT(accept(0.5F, {0.5, 0.25, 0.25}), ElementsAre(1, 1, 1));
  EXPECT_THAT(accept(0.4F, {0.5, 0.25, 0.25}), ElementsAre(0, 1, 1));
  EXPECT_THAT(accept(0.2F, {0.25, 0.25, 0.25}), ElementsAre(1, 0, 0));
  EXPECT_THAT(accept(0, {0, 0, 1, 1}), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(accept(9, {kNaN, 1}), ElementsAre(0, 1));
}

TEST(SamplingTest, MinPKeepsWhatIsCloseToTheBest) {
  const auto min_p = [](float p, const std::vector<double>& row) {
    return Kept(OpKind::kMinPMask, OpAttrs(rl_min_p_mask_attrs{0, p}), row);
  };
  const std::vector<double> row = {std::log(0.05), 0, std::log(0.5), -kInf};
  EXPECT_THAT(min_p(0.1F, row), ElementsAre(1, 2));
  EXPECT_THAT(min_p(0.04F, row), ElementsAre(0, 1, 2));
  EXPECT_THAT(min_p(1.0F, {3, 1, 3}), ElementsAre(0, 2));
  EXPECT_THAT(min_p(0.5F, {-kInf, kNaN}), ElementsAre());
}

TEST(SamplingTest, TypicalPOrdersBySurprise) {
  // Entropy 1.75 bits; the columns are 0.75, 0.25, 1.25 and 1.25 bits from it.
  const std::vector<double> row = Logs({0.5, 0.25, 0.125, 0.125});
  const auto typical = [&](float p) {
    return Kept(OpKind::kTypicalPMask, OpAttrs(rl_typical_p_mask_attrs{0, p}), row);
  };
  EXPECT_THAT(typical(0.2F), ElementsAre(1));
  EXPECT_THAT(typical(0.5F), ElementsAre(0, 1));
  EXPECT_THAT(typical(0.8F), ElementsAre(0, 1, 2));
  EXPECT_THAT(typical(1.0F), ElementsAre(0, 1, 2, 3));
}

TEST(SamplingTest, BiasAdd) {
  const Tensor x = F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const OpAttrs none(OpKind::kBiasAdd);
  ExpectValues(Eval(OpKind::kBiasAdd, none, {x, I32({2}, {2, 0}), F32({2}, {0.5, -kInf})}),
               {-kInf, 2, 3.5, -kInf, 5, 6.5});
  EXPECT_THAT(EvalError(OpKind::kBiasAdd, none, {x, I32({1}, {3}), F32({1}, {1})}),
              HasSubstr("id 3 is outside the 3 columns"));
  EXPECT_THAT(EvalError(OpKind::kBiasAdd, none, {x, I32({1}, {-1}), F32({1}, {1})}),
              HasSubstr("id -1"));
}

TEST(SamplingTest, RandomUniformIsPhilox) {
  // The generator's published answer for a zero key and counter begins 6627e8d5.
  const Tensor zero = I32({1}, {0});
  const Tensor u = Eval(OpKind::kRandomUniform, OpAttrs(rl_random_uniform_attrs{0, 0}),
                        {I32({2}, {0, 0}), zero, zero});
  ExpectValues(u, {0x6627e8 * 0x1p-24});
  // Key: low word of the seed first; counter: position, slot, stream, 0.
  const Tensor v = Eval(OpKind::kRandomUniform, OpAttrs(rl_random_uniform_attrs{0, 3}),
                        {I32({2}, {-2, 5}), I32({2}, {7, 1 << 20}), I32({2}, {1, 0})});
  const auto word = [](uint32_t pos, uint32_t slot) {
    return Philox4x32({pos, slot, 3, 0}, {0xFFFFFFFEU, 5}).word[0] >> 8;
  };
  ExpectValues(v, {word(7, 1) * 0x1p-24, word(1 << 20, 0) * 0x1p-24});
}

int64_t Draw(const std::vector<double>& row, double u) {
  return Eval(OpKind::kCategorical, OpAttrs(OpKind::kCategorical),
              {F32({1, static_cast<int64_t>(row.size())}, row), F32({1}, {u})})
      .i[0];
}

TEST(SamplingTest, CategoricalInvertsTheDistribution) {
  const std::vector<double> row = {0, std::log(2.0), 0};  // 1/4, 1/2, 1/4
  EXPECT_EQ(Draw(row, 0), 0);
  EXPECT_EQ(Draw(row, 0.24), 0);
  EXPECT_EQ(Draw(row, 0.26), 1);
  EXPECT_EQ(Draw(row, 0.74), 1);
  EXPECT_EQ(Draw(row, 0.76), 2);
  EXPECT_EQ(Draw(row, 0.99999994), 2);
  EXPECT_EQ(Draw({0, 0}, 0.5), 1);    // at a tie the higher column is drawn: the sum must exceed u
  EXPECT_EQ(Draw({-kInf, 3}, 0), 1);  // a column without mass is never drawn
  EXPECT_EQ(Draw({3, -kInf}, 1.0), 0);  // nor as the last one
  EXPECT_EQ(Draw({kNaN, 3}, 0), 1);     // NaN reads as -infinity
  EXPECT_EQ(Draw({-kInf, -kInf}, 0.5), -1);
  EXPECT_EQ(Draw({kNaN, kNaN}, 0.5), -1);
}

// Logits of one row over five tokens, with the history of two slots in rings of four.
struct PenaltyCase {
  int64_t last_n = 4;
  float repeat = 1;
  float frequency = 0;
  float presence = 0;
  int32_t q_pos = 6;
  int32_t slot = 0;

  [[nodiscard]] Operands Inputs() const {
    // Slot 0 has 6 rows, positions 4, 5, 2, 3; slot 1 has one.
    return {F32({1, 5}, {2, -2, 0, 1, -kInf}),
            I32({2, 4}, {1, 3, 0, 1, 2, 9, 9, 9}),
            I32({3}, {0, 2, 4}),
            I32({1}, {q_pos}),
            I32({1}, {slot}),
            I32({3}, {6, 1, 7}),
            I32({3}, {0, 1, 0}),
            I32({2}, {6, 1})};
  }
  [[nodiscard]] Tensor Run() const {
    return Eval(OpKind::kPenalties,
                OpAttrs(rl_penalties_attrs{0, last_n, repeat, frequency, presence}), Inputs());
  }
};

TEST(SamplingTest, PenaltiesCountTheLastPositions) {
  // Positions 3 to 6 of slot 0: tokens 1 (3), 1 (4), 3 (5), 0 (6, fresh). Position 7 is later.
  ExpectValues(PenaltyCase{.repeat = 2}.Run(), {1, -4, 0, 0.5, -kInf});
  ExpectValues(PenaltyCase{.frequency = 0.5}.Run(), {1.5, -3, 0, 0.5, -kInf});
  ExpectValues(PenaltyCase{.presence = 0.25}.Run(), {1.75, -2.25, 0, 0.75, -kInf});
  ExpectValues(PenaltyCase{.repeat = 2, .frequency = 0.5, .presence = 0.25}.Run(),
               {1 - 0.75, -4 - 1.25, 0, 0.5 - 0.75, -kInf});
  ExpectValues(PenaltyCase{.last_n = 1, .presence = 1}.Run(), {1, -2, 0, 1, -kInf});
  ExpectValues(PenaltyCase{.last_n = 0, .presence = 1}.Run(), {2, -2, 0, 1, -kInf});
  // Slot 1: token 2 at positions 0 (old) and 1 (fresh); unwritten history (9) does not count.
  ExpectValues(PenaltyCase{.frequency = 1, .q_pos = 1, .slot = 1}.Run(), {2, -2, -2, 1, -kInf});
}

TEST(SamplingTest, PenaltiesIgnoreTokensOutsideTheVocabularyAndRefuseSlots) {
  Operands operands = PenaltyCase{}.Inputs();
  operands[2] = I32({3}, {-1, 2, 1000});
  operands[5] = I32({3}, {6, 1, 6});
  const OpAttrs attrs(rl_penalties_attrs{0, 1, 1, 1, 1});
  ExpectValues(Eval(OpKind::kPenalties, attrs, operands), {2, -2, 0, 1, -kInf});
  operands[4] = I32({1}, {2});
  EXPECT_THAT(EvalError(OpKind::kPenalties, attrs, operands),
              HasSubstr("row 0 has slot 2, the history 2 slots"));
}

}  // namespace
}  // namespace rullama::reference
