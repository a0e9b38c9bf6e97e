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

void AddPenalties(std::vector<CaseSpec>& cases) {
  static const std::vector<Look> kLooks = {
      {"decode", 8, {20}, {20}, {0}},
      {"prompt", 16, {0}, {0, 1, 2, 3, 4}, {0, 0, 0, 0, 0}},
      {"mixed", 4, {30, 2}, {30, 2, 31, 3, 4}, {0, 1, 0, 1, 1}},
      {"one", 1, {9}, {9, 10}, {0, 0}},
      {"none", 0, {9}, {9, 10}, {0, 0}},
  };
  for (const Look& look : kLooks) {
    cases.push_back(
        {fmt::format("penalties/{}", look.name), OpKind::kPenalties, [&look](uint64_t seed) {
           constexpr int64_t kVocabulary = 40, kCapacity = 16;
           CaseBuilder b(seed, static_cast<int64_t>(look.pos.size()));
           const auto slots = static_cast<int64_t>(look.past.size());
           const ValueId logits = b.Floats("logits", F({kT, kVocabulary}), -5, 5);
           // Few different tokens, so that they repeat; some outside the vocabulary.
           std::vector<int32_t> seen(static_cast<size_t>(slots * kCapacity));
           for (int32_t& token : seen) {
             token = static_cast<int32_t>(b.random().Int(-1, 6)) * 7;
           }
           const ValueId history = b.Ints("history", I({slots, kCapacity}), seen);
           const ValueId tokens = b.Ints("tokens", I({kT}), 0, 9);
           const ValueId pos = b.Ints("pos", I({kT}), look.pos);
           const ValueId slot = b.Ints("slot", I({kT}), look.slot);
           const ValueId past = b.Ints("past", I({slots}), look.past);
           return OneOp(std::move(b), OpKind::kPenalties,
                        {logits, history, tokens, pos, slot, pos, slot, past},
                        OpAttrs(rl_penalties_attrs{0, look.last_n, 1.3F, 0.25F, 0.5F}),
                        ToleranceClass::kRounding);
         }});
  }
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
}

}  // namespace rullama::conformance
