// Cases of the sampling ops. Draws and masks are exact: the seeds give no probability that lies on
// a threshold.
#include <cmath>
#include <limits>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr int64_t kSamplingColumns[] = {1, 7, 100, 1000};

// Logits from high to low, the first two equal.
ValueId Descending(CaseBuilder& b, int64_t n) {
  const TensorType type = F({kT, n});
  std::vector<double> values;
  for (int64_t row = 0; row < b.extents().t; ++row) {
    double logit = b.random().Uniform(3, 9);
    for (int64_t column = 0; column < n; ++column) {
      values.push_back(static_cast<float>(logit));
      if (column > 0) logit -= b.random().Uniform(0, 16.0 / static_cast<double>(n));
    }
  }
  return b.Floats("x", type, values);
}

template <typename Attrs>
void AddMask(std::vector<CaseSpec>& cases, OpKind kind, bool sorted) {
  for (const int64_t n : kSamplingColumns) {
    for (const float p : {0.05F, 0.3F, 0.9F, 1.0F}) {
      cases.push_back(
          {fmt::format("{}/n{}_p{}", NameOf(kind), n, p), kind, [=](uint64_t seed) {
             CaseBuilder b(seed, 5);
             const ValueId x = sorted ? Descending(b, n) : b.Floats("x", F({kT, n}), -6, 6);
             return OneOp(std::move(b), kind, {x}, OpAttrs(Attrs{0, p}), ToleranceClass::kExact);
           }});
    }
  }
  cases.push_back(
      {fmt::format("{}/banned", NameOf(kind)), kind, [=](uint64_t seed) {
         CaseBuilder b(seed, 2);
         const ValueId x = b.Floats(
             "x", F({kT, 4}),
             {-kInfinity, -kInfinity, -kInfinity, -kInfinity, 3, 1, -kInfinity, -kInfinity});
         return OneOp(std::move(b), kind, {x}, OpAttrs(Attrs{0, 0.8F}), ToleranceClass::kExact);
       }});
}

struct Look {
  const char* name;
  int64_t last_n;
  std::vector<int32_t> past, pos, slot;
};

// The operands of penalties but for the logits, and a place for the settings.
std::vector<ValueId> PenaltyOperands(CaseBuilder& b, const Look& look, int64_t vocabulary) {
  constexpr int64_t kCapacity = 16;
  const auto slots = static_cast<int64_t>(look.past.size());
  const ValueId logits = b.Floats("logits", F({kT, vocabulary}), -5, 5);
  // Few different tokens, so that they repeat; some outside the vocabulary.
  std::vector<int32_t> seen(static_cast<size_t>(slots * kCapacity));
  for (int32_t& token : seen) token = static_cast<int32_t>(b.random().Int(-1, 6)) * 7;
  const ValueId history = b.Ints("history", I({slots, kCapacity}), seen);
  const ValueId tokens = b.Ints("tokens", I({kT}), 0, 9);
  const ValueId pos = b.Ints("pos", I({kT}), look.pos);
  const ValueId slot = b.Ints("slot", I({kT}), look.slot);
  const ValueId past = b.Ints("past", I({slots}), look.past);
  return {logits, history, tokens, pos, slot, pos, slot, past};
}

void AddPenalties(std::vector<CaseSpec>& cases) {
  static const std::vector<Look> kLooks = {
      {"decode", 8, {20}, {20}, {0}},
      {"prompt", 16, {0}, {0, 1, 2, 3, 4}, {0, 0, 0, 0, 0}},
      {"mixed", 4, {30, 2}, {30, 2, 31, 3, 4}, {0, 1, 0, 1, 1}},
      {"one", 1, {9}, {9, 10}, {0, 0}},
      {"none", 0, {9}, {9, 10}, {0, 0}},
  };
  constexpr int64_t kVocabulary = 40;
  for (const Look& look : kLooks) {
    cases.push_back(
        {fmt::format("penalties/{}", look.name), OpKind::kPenalties, [&look](uint64_t seed) {
           CaseBuilder b(seed, static_cast<int64_t>(look.pos.size()));
           std::vector<ValueId> operands = PenaltyOperands(b, look, kVocabulary);
           return OneOp(std::move(b), OpKind::kPenalties, std::move(operands),
                        OpAttrs(rl_penalties_attrs{0, look.last_n, 1.3F, 0.25F, 0.5F}),
                        ToleranceClass::kRounding);
         }});
    // Every row has another look-back; that of the first is beyond the capacity.
    cases.push_back(
        {fmt::format("row_penalties/{}", look.name), OpKind::kRowPenalties, [&look](uint64_t seed) {
           CaseBuilder b(seed, static_cast<int64_t>(look.pos.size()));
           std::vector<ValueId> operands = PenaltyOperands(b, look, kVocabulary);
           std::vector<double> settings;
           for (size_t row = 0; row < look.pos.size(); ++row) {
             const double i = static_cast<double>(row);
             const double last_n = row == 0 ? 1000 : static_cast<double>(look.last_n) - i;
             settings.insert(settings.end(),
                             {1.3 - 0.2 * i, 0.25 * i, 0.5 - 0.25 * i, std::max(last_n, 0.0)});
           }
           operands.push_back(b.Floats("settings", F({kT, 4}), settings));
           return OneOp(std::move(b), OpKind::kRowPenalties, std::move(operands),
                        OpAttrs(OpKind::kRowPenalties), ToleranceClass::kRounding);
         }});
  }
}

void AddRowEdits(std::vector<CaseSpec>& cases) {
  for (const int64_t n : {1, 31, 32, 33, 1000}) {
    cases.push_back({fmt::format("token_mask/n{}", n), OpKind::kTokenMask, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId logits = b.Floats("logits", F({kT, n}));
                       const int64_t words = (n + 31) / 32;
                       std::vector<int32_t> bits(static_cast<size_t>(5 * words));
                       for (int32_t& word : bits) {
                         const int64_t kind = b.random().Int(0, 3);
                         const auto some = static_cast<int32_t>(b.random().Next());
                         word = kind == 0 ? 0 : kind == 1 ? -1 : some;
                       }
                       const ValueId mask = b.Ints("bits", I({kT, words}), bits);
                       return OneOp(std::move(b), OpKind::kTokenMask, {logits, mask},
                                    OpAttrs(OpKind::kTokenMask), ToleranceClass::kExact);
                     }});
  }
  cases.push_back(
      {"row_bias/some", OpKind::kRowBias, [](uint64_t seed) {
         CaseBuilder b(seed, 3);
         const ValueId logits = b.Floats("logits", F({kT, 50}));
         const ValueId ids = b.Ints("ids", I({kT, 3}), {49, 0, 17, -1, -1, -1, 0, -1, 48});
         const ValueId bias =
             b.Floats("bias", F({kT, 3}), {1.5, -kInfinity, -0.25, 7, 7, 7, -kInfinity, 7, 100});
         return OneOp(std::move(b), OpKind::kRowBias, {logits, ids, bias},
                      OpAttrs(OpKind::kRowBias), ToleranceClass::kRounding);
       }});
}

struct RowSettings {
  double scale = 1, top_k = 0, top_p = 1, min_p = 0, typical_p = 1;
};

// Each kind of setting alone, all together, none, and the best.
const std::vector<RowSettings>& SomeSettings() {
  static const std::vector<RowSettings> kSettings = {
      {},
      {.scale = 0},
      {.scale = 1 / 0.7},
      {.top_k = 3},
      {.top_p = 0.6},
      {.min_p = 0.2},
      {.typical_p = 0.5},
      {.scale = 1.25, .top_k = 40, .top_p = 0.9, .min_p = 0.05, .typical_p = 0.8},
      {.scale = 2, .top_k = 1},
      {.top_k = 1e6, .top_p = 0.3, .min_p = 1},
  };
  return kSettings;
}

ValueId RowSettingsOf(CaseBuilder& b) {
  std::vector<double> values;
  for (const RowSettings& s : SomeSettings()) {
    // As the device gets them.
    const double log_min_p = s.min_p > 0 ? std::log(static_cast<float>(s.min_p)) : -kInfinity;
    for (const double value : {s.scale, s.top_k, s.top_p, log_min_p, s.typical_p}) {
      values.push_back(static_cast<float>(value));
    }
  }
  return b.Floats("settings", F({kT, 5}), values);
}

void AddRowDraws(std::vector<CaseSpec>& cases) {
  const auto rows = static_cast<int64_t>(SomeSettings().size());
  // Lists of 64 are what a sampler has; those of 3000 do not fit into shared memory.
  for (const int64_t n : {1, 7, 64, 1000, 3000}) {
    cases.push_back({fmt::format("row_sample/n{}", n), OpKind::kRowSample, [=](uint64_t seed) {
                       CaseBuilder b(seed, rows);
                       const ValueId x = Descending(b, n);
                       const ValueId u = b.Floats("u", F({kT}), 0, 0.999);
                       const ValueId settings = RowSettingsOf(b);
                       return OneOp(std::move(b), OpKind::kRowSample, {x, u, settings},
                                    OpAttrs(OpKind::kRowSample), ToleranceClass::kExact);
                     }});
  }
  cases.push_back(
      {"row_sample/one", OpKind::kRowSample, [](uint64_t seed) {
         CaseBuilder b(seed, 1);
         const ValueId x = Descending(b, 64);
         const ValueId u = b.Floats("u", F({kT}), std::vector<double>{0.4});
         const ValueId settings = b.Floats("settings", F({kT, 5}), {1, 20, 0.5, -3, 0.75});
         return OneOp(std::move(b), OpKind::kRowSample, {x, u, settings},
                      OpAttrs(OpKind::kRowSample), ToleranceClass::kExact);
       }});
  // Not-a-number counts as -infinity; a row of -infinity gives -1, drawn or not.
  cases.push_back({"row_sample/edges", OpKind::kRowSample, [](uint64_t seed) {
                     CaseBuilder b(seed, 6);
                     const ValueId x = b.Floats(
                         "x", F({kT, 3}),
                         {-kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity,
                          kNaN, 2, 2, kNaN, -kInfinity, 2, -kInfinity, kNaN, kNaN, 0, 0, 0});
                     const ValueId u = b.Floats("u", F({kT}), {0.5, 0.5, 0.5, 0.5, 0.5, 0});
                     std::vector<double> settings;
                     for (const double scale : {0, 1, 0, 1, 1, 1}) {
                       settings.insert(settings.end(), {scale, 0, 0.9, -1, 0.9});
                     }
                     const ValueId values = b.Floats("settings", F({kT, 5}), settings);
                     return OneOp(std::move(b), OpKind::kRowSample, {x, u, values},
                                  OpAttrs(OpKind::kRowSample), ToleranceClass::kExact);
                   }});
  cases.push_back({"row_uniform/rows", OpKind::kRowUniform, [](uint64_t seed) {
                     CaseBuilder b(seed, 4);
                     const ValueId key = b.Ints(
                         "key", I({kT, 3}),
                         {-123456789, 987654321, 0, -123456789, 987654321, 3, 0, 0, 0, 1, -1, 7});
                     const ValueId pos = b.Ints("pos", I({kT}), {0, 1, 131071, 7});
                     return OneOp(std::move(b), OpKind::kRowUniform, {key, pos},
                                  OpAttrs(OpKind::kRowUniform), ToleranceClass::kExact);
                   }});
}

void AddDraws(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kSamplingColumns) {
    cases.push_back({fmt::format("categorical/n{}", n), OpKind::kCategorical, [=](uint64_t seed) {
                       CaseBuilder b(seed, 33);
                       const ValueId x = b.Floats("x", F({kT, n}), -4, 4);
                       const ValueId u = b.Floats("u", F({kT}), 0, 0.999);
                       return OneOp(std::move(b), OpKind::kCategorical, {x, u},
                                    OpAttrs(OpKind::kCategorical), ToleranceClass::kExact);
                     }});
  }
  // u = 0 skips columns without mass; u on an edge takes the next column; a row without mass gives
  // -1.
  cases.push_back({"categorical/edges", OpKind::kCategorical, [](uint64_t seed) {
                     CaseBuilder b(seed, 6);
                     const ValueId x = b.Floats(
                         "x", F({kT, 4}),
                         {-kInfinity, 1, 1,    1, 0,          0,          0,          0,
                          0,          0, 0,    0, -kInfinity, -kInfinity, -kInfinity, -kInfinity,
                          kNaN,       2, kNaN, 2, 5,          5,          -kInfinity, -kInfinity});
                     const ValueId u = b.Floats("u", F({kT}), {0, 0.5, 0.25, 0.5, 0.5, 0.999});
                     return OneOp(std::move(b), OpKind::kCategorical, {x, u},
                                  OpAttrs(OpKind::kCategorical), ToleranceClass::kExact);
                   }});
  cases.push_back({"random_uniform/rows", OpKind::kRandomUniform, [](uint64_t seed) {
                     CaseBuilder b(seed, 5);
                     const ValueId key = b.Ints("seed", I({2}), {-123456789, 987654321});
                     const ValueId pos = b.Ints("pos", I({kT}), {0, 1, 2, 131071, 7});
                     const ValueId slot = b.Ints("slot", I({kT}), {0, 0, 3, 1, 2});
                     return OneOp(std::move(b), OpKind::kRandomUniform, {key, pos, slot},
                                  OpAttrs(rl_random_uniform_attrs{0, 5}), ToleranceClass::kExact);
                   }});
  for (const float bound : {0.0F, 0.1F, 2.0F, 1e9F}) {
    cases.push_back(
        {fmt::format("entropy_accept/bound{}", bound), OpKind::kEntropyAccept, [=](uint64_t seed) {
           CaseBuilder b(seed, 37);
           std::vector<double> entropy(37);
           for (double& x : entropy) x = static_cast<double>(b.random().Int(0, 12)) / 16;
           entropy[5] = kNaN;
           const ValueId x = b.Floats("entropy", F({kT}), entropy);
           return OneOp(std::move(b), OpKind::kEntropyAccept, {x},
                        OpAttrs(rl_entropy_accept_attrs{0, bound}), ToleranceClass::kExact);
         }});
  }
}

}  // namespace

void AddSamplingCases(std::vector<CaseSpec>& cases) {
  AddPenalties(cases);
  cases.push_back({"bias_add/some", OpKind::kBiasAdd, [](uint64_t seed) {
                     CaseBuilder b(seed, 3);
                     const ValueId logits = b.Floats("logits", F({kT, 50}));
                     const ValueId ids = b.ConstantInts("ids", {49, 0, 17});
                     const ValueId bias = b.Floats("bias", F({3}), {1.5, -kInfinity, -0.25});
                     return OneOp(std::move(b), OpKind::kBiasAdd, {logits, ids, bias},
                                  OpAttrs(OpKind::kBiasAdd), ToleranceClass::kRounding);
                   }});
  AddMask<rl_top_p_mask_attrs>(cases, OpKind::kTopPMask, true);
  AddMask<rl_min_p_mask_attrs>(cases, OpKind::kMinPMask, false);
  AddMask<rl_typical_p_mask_attrs>(cases, OpKind::kTypicalPMask, false);
  AddDraws(cases);
  AddRowEdits(cases);
  AddRowDraws(cases);
}

}  // namespace rullama::conformance
