// Rows with settings of their own, on the reference interpreter: alone and among others, and on
// every kind of chain.
#include "samplers/row_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/philox.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/ir/verify.h"
#include "core/reference/interpreter.h"
#include "samplers/sampler_test_fixture.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kMaxTestRows = 64;

struct TestRow {
  int32_t token = 0;
  int32_t pos = 0;
  int32_t slot = 0;
  RowSampling settings = {};
};

// Logits of a row that only its token and position decide.
std::vector<double> TestLogits(int32_t token, int32_t pos) {
  std::vector<double> logits;
  for (uint32_t i = 0; i < kVocabulary; ++i) {
    const auto row = static_cast<uint32_t>(1000 * token + pos);
    logits.push_back(static_cast<float>(9 * PhiloxUniform(99, row, i, 7)));
  }
  return logits;
}

// A chain after logits that are an input. Steps continue the slots.
class RowChain {
 public:
  explicit RowChain(RowChainOptions options) : kind_(options.kind) {
    SamplerFixture bench(kVocabulary, kMaxTestRows);
    AppendRowChain(bench.builder, bench.logits, bench.inputs, options);
    interpreter_.emplace(InterpreterOf(std::move(bench)));
  }

  // The tokens of all rows.
  std::vector<int64_t> Draw(const std::vector<TestRow>& rows) {
    std::vector<int32_t> tokens, pos, slot, wanted(rows.size());
    std::vector<double> logits;
    std::vector<RowSampling> settings;
    for (const TestRow& row : rows) {
      tokens.push_back(row.token);
      pos.push_back(row.pos);
      slot.push_back(row.slot);
      settings.push_back(row.settings);
      const std::vector<double> own = TestLogits(row.token, row.pos);
      logits.insert(logits.end(), own.begin(), own.end());
    }
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto count = static_cast<int64_t>(rows.size());
    Bind(input_names::kTokens, Tensor::I32({count}, tokens));
    Bind(input_names::kPos, Tensor::I32({count}, pos));
    Bind(input_names::kSlot, Tensor::I32({count}, slot));
    Bind(input_names::kPast, Tensor::I32({SamplerFixture::kSlots}, past_));
    Bind(input_names::kRows, Tensor::I32({count}, wanted));
    Bind("logits", Tensor::F32({count, kVocabulary}, std::move(logits)));
    const Status set = inputs_.Set(kind_, settings);
    EXPECT_TRUE(set) << set.error().ToString();
    BindRowInputs(inputs_, count, *interpreter_);
    const Status status = interpreter_->Run({.t = count, .r = count});
    EXPECT_TRUE(status) << status.error().ToString();
    if (!status) return {};
    for (const TestRow& row : rows) past_[static_cast<size_t>(row.slot)] = row.pos + 1;
    return Output(kTokenOutput).i;
  }
  [[nodiscard]] Tensor Output(std::string_view name) const {
    return *interpreter_->GetOutput(name);
  }

 private:
  void Bind(std::string_view name, Tensor tensor) {
    const Status bound = interpreter_->Bind(name, std::move(tensor));
    EXPECT_TRUE(bound) << bound.error().ToString();
  }

  RowChainKind kind_;
  RowInputs inputs_{kVocabulary};
  std::optional<Interpreter> interpreter_;
  std::vector<int32_t> past_ = std::vector<int32_t>(SamplerFixture::kSlots);
};

std::vector<RowChainKind> KindsFrom(RowChainKind first) {
  std::vector<RowChainKind> kinds;
  for (auto kind = static_cast<size_t>(first); kind < kRowChainKinds; ++kind) {
    kinds.push_back(static_cast<RowChainKind>(kind));
  }
  return kinds;
}

// Settings alone and together, with names for messages.
const std::vector<std::pair<std::string, SamplerSettings>>& AllSettings() {
  static const std::vector<std::pair<std::string, SamplerSettings>> kSettings = {
      {"defaults", {.seed = 1}},
      {"greedy", {.greedy = true}},
      {"cold", {.temperature = 0}},
      {"warm", {.temperature = 1.7, .top_p = 1, .seed = 2}},
      {"k 1", {.top_k = 1, .seed = 3}},
      {"k 5", {.temperature = 0.7, .top_k = 5, .top_p = 1, .seed = 3}},
      {"k 64", {.top_k = 64, .top_p = 1, .seed = 0x123456789ABCDEF0}},
      {"k 80", {.top_k = 80, .top_p = 1, .seed = 4}},
      {"all", {.top_k = 0, .top_p = 1, .seed = 5}},
      {"k of the vocabulary", {.top_k = kVocabulary, .top_p = 1, .seed = 5}},
      {"p 0.5", {.top_k = 0, .top_p = 0.5, .seed = 6}},
      {"k 40, p 0.3", {.top_k = 40, .top_p = 0.3, .seed = 6}},
      {"min p", {.top_k = 0, .top_p = 1, .min_p = 0.3, .seed = 7}},
      {"typical", {.top_k = 0, .top_p = 1, .typical_p = 0.4, .seed = 8}},
      {"everything",
       {.temperature = 0.8,
        .top_k = 30,
        .top_p = 0.9,
        .min_p = 0.02,
        .typical_p = 0.9,
        .repeat_penalty = 1.3,
        .repeat_last_n = 3,
        .frequency_penalty = 0.5,
        .presence_penalty = -0.25,
        .seed = 9}},
      {"repeat", {.greedy = true, .repeat_penalty = 2, .repeat_last_n = -1}},
      {"frequency", {.repeat_last_n = 2, .frequency_penalty = 2, .seed = 10}},
      {"presence", {.top_k = 0, .top_p = 1, .presence_penalty = 2, .seed = 11}},
      {"penalties without look-back", {.repeat_penalty = 2, .repeat_last_n = 0, .seed = 12}},
  };
  return kSettings;
}

// A sequence that repeats itself in both slots.
std::vector<TestRow> Sequence(const RowSampling& settings) {
  std::vector<TestRow> rows;
  for (int32_t pos = 0; pos < 24; ++pos) {
    for (const int32_t slot : {0, 1}) rows.push_back({pos % 5 + slot, pos, slot, settings});
  }
  return rows;
}

// row_chain_numeric_test.cc compares the draws of the first kind with numbers.
TEST(RowChainTest, EveryKindThatHasTheSettingsDrawsTheSame) {
  for (const auto& [name, settings] : AllSettings()) {
    const RowSampling row = RowSamplingOf(settings);
    std::vector<int64_t> first;
    for (const RowChainKind kind : KindsFrom(KindFor(row, kVocabulary))) {
      const std::vector<int64_t> drawn = RowChain({.kind = kind}).Draw(Sequence(row));
      ASSERT_EQ(drawn.size(), 48U);
      if (first.empty()) first = drawn;
      EXPECT_EQ(drawn, first) << name << ", kind " << static_cast<int>(kind);
    }
  }
}

// Without those that gather the wanted rows.
std::vector<OpKind> OpsOf(RowChainKind kind) {
  SamplerFixture bench(kVocabulary);
  AppendRowChain(bench.builder, bench.logits, bench.inputs, {.kind = kind});
  auto graph = std::move(bench.builder).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  const Status verified = Verify(*graph);
  EXPECT_TRUE(verified) << verified.error().ToString();
  std::vector<OpKind> kinds;
  for (const Op& op : graph->ops) {
    if (op.kind != OpKind::kGatherRows) kinds.push_back(op.kind);
  }
  return kinds;
}

TEST(RowChainTest, EachKindHasTheOpsOfItsSettings) {
  EXPECT_THAT(OpsOf(RowChainKind::kGreedy), ElementsAre(OpKind::kStateAppend, OpKind::kArgMax));
  const std::vector<OpKind> plain = OpsOf(RowChainKind::kPlain);
  EXPECT_THAT(plain, ElementsAre(OpKind::kStateAppend, OpKind::kRowUniform, OpKind::kTopK,
                                 OpKind::kRowSample, OpKind::kGatherLast));
  // The ops of the steps come first. Some steps are known by an op of their own.
  std::vector<OpKind> edited = OpsOf(RowChainKind::kEdited);
  ASSERT_GT(edited.size(), plain.size());
  const auto drawing = edited.end() - std::ssize(plain);
  EXPECT_THAT(std::vector(drawing, edited.end()), ElementsAreArray(plain));
  edited.erase(drawing, edited.end());
  std::erase_if(edited, [](OpKind kind) {
    return kind != OpKind::kTokenMask && kind != OpKind::kRowBias && kind != OpKind::kRowPenalties;
  });
  EXPECT_THAT(edited, ElementsAre(OpKind::kTokenMask, OpKind::kRowBias, OpKind::kRowPenalties));
}

TEST(RowChainTest, ARowDrawsTheSameAloneAndAmongOthers) {
  const std::vector<uint32_t> odd(static_cast<size_t>(MaskWords(kVocabulary)), 0xAAAAAAAAU);
  const std::vector<TokenBias> bias = {{3, 4.5F}, {90, -INFINITY}};
  std::vector<TestRow> rows;
  for (const auto& [name, settings] : AllSettings()) {
    const auto pos = static_cast<int32_t>(rows.size());
    rows.push_back({7, pos, 0, RowSamplingOf(settings)});
  }
  rows.push_back({8, static_cast<int32_t>(rows.size()), 0, {.top_k = 8}});
  rows.back().settings.mask = odd;
  rows.push_back({8, static_cast<int32_t>(rows.size()), 0, {.top_k = 8, .seed = 5}});
  rows.back().settings.bias = bias;

  RowChain full({.kind = RowChainKind::kFull, .logprobs = true});
  const std::vector<int64_t> together = full.Draw(rows);
  ASSERT_EQ(together.size(), rows.size());
  for (const bool logprobs : {false, true}) {
    // Steps of one row, each on the first kind that has its settings.
    for (size_t i = 0; i < rows.size(); ++i) {
      // Penalties look back, so that the rows in front are read again, unmasked and greedily.
      const RowChainKind kind = KindFor(rows[i].settings, kVocabulary);
      RowChain alone({.kind = kind, .logprobs = logprobs});
      for (size_t before = 0; before < i; ++before) {
        alone.Draw({{rows[before].token, rows[before].pos, 0, {.temperature = 0}}});
      }
      EXPECT_THAT(alone.Draw({rows[i]}), ElementsAre(together[i])) << "row " << i;
    }
  }
}

TEST(RowChainTest, AMaskBansInFrontOfEverything) {
  std::vector<uint32_t> mask(static_cast<size_t>(MaskWords(kVocabulary)));
  for (const uint32_t allowed : {0U, 31U, 32U, 99U}) mask[allowed / 32] |= 1U << (allowed % 32);
  RowSampling settings{.temperature = 3, .top_k = 64};
  settings.mask = mask;
  std::vector<TestRow> rows;
  for (int32_t pos = 0; pos < kMaxTestRows; ++pos) rows.push_back({1, pos, 0, settings});
  for (const RowChainKind kind : KindsFrom(RowChainKind::kEdited)) {
    const std::vector<int64_t> tokens = RowChain({.kind = kind}).Draw(rows);
    EXPECT_EQ(std::set<int64_t>(tokens.begin(), tokens.end()), (std::set<int64_t>{0, 31, 32, 99}));
    mask.assign(mask.size(), 0);
    const std::vector<TestRow> none = {{1, 0, 0, settings}, {1, 0, 1, {.top_k = 1}}};
    RowChain chain({.kind = kind});
    EXPECT_THAT(chain.Draw(none), ElementsAre(-1, testing::Ge(0)));
    for (const uint32_t allowed : {0U, 31U, 32U, 99U}) mask[allowed / 32] |= 1U << (allowed % 32);
  }
}

TEST(RowChainTest, SeedAndStreamOfARowDecideItsDraw) {
  std::vector<TestRow> rows;
  for (int32_t i = 0; i < 40; ++i) rows.push_back({2, i, 0, {.temperature = 5, .top_k = 64}});
  const auto draw = [&](uint64_t seed, uint32_t stream, int32_t slot) {
    for (TestRow& row : rows) {
      row.settings.seed = seed;
      row.settings.stream = stream;
      row.slot = slot;
    }
    return RowChain({}).Draw(rows);
  };
  const std::vector<int64_t> first = draw(1, 0, 0);
  EXPECT_EQ(draw(1, 0, 1), first) << "the slot does not matter for the draw";
  EXPECT_NE(draw(1, 1, 0), first);
  EXPECT_NE(draw(2, 0, 0), first);
  EXPECT_NE(draw(uint64_t{1} << 32 | 1, 0, 0), first);
}

TEST(RowChainTest, LogprobsAreThoseOfTheModel) {
  RowSampling settings{.temperature = 2, .top_k = 3, .repeat_penalty = 3, .repeat_last_n = 8};
  const std::vector<TokenBias> bias = {{5, 50}};
  settings.bias = bias;
  const std::vector<TestRow> rows = {{1, 0, 0, settings}, {4, 0, 1, {.temperature = 0}}};
  RowChain chain({.kind = RowChainKind::kEdited, .logprobs = true});
  const std::vector<int64_t> tokens = chain.Draw(rows);
  const Tensor logprob = chain.Output(kLogprobOutput);
  const Tensor top = chain.Output(kTopLogprobsOutput);
  const Tensor ids = chain.Output(kTopTokensOutput);
  EXPECT_EQ(tokens[0], 5) << "the bias wins";
  ASSERT_EQ(logprob.dims, (std::vector<int64_t>{2, 1}));
  ASSERT_EQ(top.dims, (std::vector<int64_t>{2, kTopLogprobs}));
  ASSERT_EQ(ids.dims, top.dims);
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::vector<double> logits = TestLogits(rows[row].token, rows[row].pos);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    const auto expected = [&](int64_t token) {
      return logits[static_cast<size_t>(token)] - std::log(sum);
    };
    EXPECT_NEAR(logprob.f[row], expected(tokens[row]), 1e-9);
    for (size_t i = 0; i < kTopLogprobs; ++i) {
      const size_t at = row * kTopLogprobs + i;
      EXPECT_NEAR(top.f[at], expected(ids.i[at]), 1e-9);
      EXPECT_TRUE(i == 0 || top.f[at] <= top.f[at - 1]);
    }
    // A better token than the last of these is among them.
    const double last = top.f[(row + 1) * kTopLogprobs - 1];
    int64_t better = 0;
    for (int64_t token = 0; token < kVocabulary; ++token)
      better += expected(token) > last + 1e-12 ? 1 : 0;
    EXPECT_LT(better, kTopLogprobs);
  }
  EXPECT_EQ(ids.i[kTopLogprobs], tokens[1]) << "greedily, the best is drawn";
}

TEST(RowChainTest, TheKindIsTheFirstThatHasTheSettings) {
  const std::vector<uint32_t> mask(static_cast<size_t>(MaskWords(kVocabulary)), ~0U);
  const std::vector<TokenBias> bias = {{1, 1}};
  const auto kind = [](const RowSampling& row) { return KindFor(row, kVocabulary); };
  EXPECT_EQ(kind({.top_k = 64, .top_p = 0.1, .min_p = 0.5, .typical_p = 0.5}),
            RowChainKind::kPlain);
  EXPECT_EQ(kind({.temperature = 0}), RowChainKind::kGreedy);
  EXPECT_EQ(kind({.temperature = 0, .bias = bias}), RowChainKind::kEdited);
  EXPECT_EQ(kind({.top_k = 65}), RowChainKind::kFull);
  EXPECT_EQ(kind({}), RowChainKind::kFull);
  EXPECT_EQ(kind({.top_k = 1, .repeat_penalty = 2}), RowChainKind::kPlain) << "looks at no token";
  EXPECT_EQ(kind({.top_k = 1, .repeat_penalty = 2, .repeat_last_n = 1}), RowChainKind::kEdited);
  EXPECT_EQ(kind({.top_k = 1, .mask = mask}), RowChainKind::kEdited);
  EXPECT_EQ(kind({.top_k = 1, .bias = bias}), RowChainKind::kEdited);
  const std::vector<RowSampling> rows = {{.top_k = 1}, {.top_k = 1, .bias = bias}, {.top_k = 2}};
  EXPECT_EQ(KindFor(rows, kVocabulary), RowChainKind::kEdited);
  EXPECT_EQ(KindFor(std::vector<RowSampling>{{.temperature = 0}, {.top_k = 1}}, kVocabulary),
            RowChainKind::kPlain);
}

TEST(RowChainTest, RefusesWhatTheGraphDoesNotHave) {
  RowInputs inputs(kVocabulary);
  const auto error = [&inputs](RowChainKind kind, const RowSampling& row) {
    const Status set = inputs.Set(kind, std::span(&row, 1));
    return set ? std::string("no error") : set.error().ToString();
  };
  const std::vector<uint32_t> words(3);
  const std::vector<TokenBias> outside = {{kVocabulary, 1}};
  const std::vector<TokenBias> many(kMaxRowBiases + 1);
  EXPECT_THAT(error(RowChainKind::kPlain, {.top_k = 65}), HasSubstr("sampler.kind"));
  EXPECT_THAT(error(RowChainKind::kEdited, {.top_k = 1, .mask = words}),
              HasSubstr("a mask has 3 words, expected 4"));
  EXPECT_THAT(error(RowChainKind::kEdited, {.top_k = 1, .bias = outside}),
              HasSubstr("logit_bias names token 100, expected 0 to 99"));
  EXPECT_THAT(error(RowChainKind::kEdited, {.top_k = 1, .bias = many}), HasSubstr("1057 biases"));
  EXPECT_EQ(error(RowChainKind::kPlain, {.top_k = 1}), "no error");
  EXPECT_EQ(inputs.inputs().size(), 2U);
  EXPECT_THAT(error(RowChainKind::kGreedy, {.top_k = 1}), HasSubstr("sampler.kind"));
  EXPECT_EQ(error(RowChainKind::kGreedy, {.temperature = 0}), "no error");
  EXPECT_EQ(inputs.inputs().size(), 0U);
}

}  // namespace
}  // namespace rullama
