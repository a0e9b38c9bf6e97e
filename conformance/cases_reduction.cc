// Cases of reductions, sorting, softmax and entropy.
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr int64_t kReductionColumns[] = {1, 15, 17, 64, 2049};

// Logits on a coarse grid: many ties, also of the largest.
std::vector<double> Tied(CaseBuilder& b, const TensorType& type, int64_t levels) {
  std::vector<double> values;
  for (int64_t n = type.ElementsAt(b.extents()); n > 0; --n) {
    values.push_back(static_cast<double>(b.random().Int(-levels, levels)) / 4);
  }
  return values;
}

// Row lengths; some are as long as rows of logits, which backends split.
std::vector<int64_t> ShortAndLongRows() {
  std::vector<int64_t> columns(std::begin(kReductionColumns), std::end(kReductionColumns));
  columns.push_back(8192);
  return columns;
}

void AddReduce(std::vector<CaseSpec>& cases) {
  for (const int32_t fn : {RL_REDUCE_SUM, RL_REDUCE_MAX, RL_REDUCE_MEAN}) {
    for (const int64_t n : ShortAndLongRows()) {
      cases.push_back(
          {fmt::format("reduce/{}_n{}", EnumeratorName("rl_reduce", fn), n), OpKind::kReduce,
           [=](uint64_t seed) {
             CaseBuilder b(seed, 5);
             // All negative for the maximum: nothing may start at 0.
             const double high = fn == RL_REDUCE_MAX ? -0.5 : 2;
             const ValueId x = b.Floats("x", F({kT, 3, n}), -2, high);
             return OneOp(std::move(b), OpKind::kReduce, {x}, OpAttrs(rl_reduce_attrs{0, fn}),
                          fn == RL_REDUCE_MAX ? ToleranceClass::kExact : ToleranceClass::kRounding);
           }});
    }
  }
  for (const int64_t n : kReductionColumns) {
    cases.push_back({fmt::format("cumsum/n{}", n), OpKind::kCumSum, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, 2, n}));
                       return OneOp(std::move(b), OpKind::kCumSum, {x}, OpAttrs(OpKind::kCumSum),
                                    ToleranceClass::kRounding);
                     }});
  }
}

void AddSorting(std::vector<CaseSpec>& cases) {
  for (const int64_t n : ShortAndLongRows()) {
    cases.push_back({fmt::format("argmax/n{}", n), OpKind::kArgMax, [=](uint64_t seed) {
                       CaseBuilder b(seed, 7);
                       const ValueId x = b.Floats("x", F({kT, n}), Tied(b, F({kT, n}), 6));
                       return OneOp(std::move(b), OpKind::kArgMax, {x}, OpAttrs(OpKind::kArgMax),
                                    ToleranceClass::kExact);
                     }});
  }
  for (const int64_t n : kReductionColumns) {
    for (const int64_t k : std::set<int64_t>{1, std::min<int64_t>(n, 8), n}) {
      cases.push_back({fmt::format("topk/n{}_k{}", n, k), OpKind::kTopK, [=](uint64_t seed) {
                         CaseBuilder b(seed, 3);
                         const ValueId x = b.Floats("x", F({kT, n}), Tied(b, F({kT, n}), 40));
                         return OneOp(std::move(b), OpKind::kTopK, {x},
                                      OpAttrs(rl_topk_attrs{0, k}), ToleranceClass::kExact);
                       }});
    }
  }
  // Rows that several workgroups share: whole parts, and a short last one.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{8192, 64}, {6001, 20}, {4097, 250}}) {
    cases.push_back(
        {fmt::format("topk/long_n{}_k{}", n, k), OpKind::kTopK, [n = n, k = k](uint64_t seed) {
           CaseBuilder b(seed, 2);
           const ValueId x = b.Floats("x", F({kT, n}), Tied(b, F({kT, n}), 400));
           return OneOp(std::move(b), OpKind::kTopK, {x}, OpAttrs(rl_topk_attrs{0, k}),
                        ToleranceClass::kExact);
         }});
  }
  const std::vector<double> specials = {kNaN, -1,        kNaN,       3,    -kInfinity, 3,
                                        kNaN, kNaN,      kNaN,       kNaN, kNaN,       kNaN,
                                        1,    kInfinity, -kInfinity, 0,    kNaN,       kInfinity};
  cases.push_back({"argmax/specials", OpKind::kArgMax, [=](uint64_t seed) {
                     CaseBuilder b(seed, 3);
                     const ValueId x = b.Floats("x", F({kT, 6}), specials);
                     return OneOp(std::move(b), OpKind::kArgMax, {x}, OpAttrs(OpKind::kArgMax),
                                  ToleranceClass::kExact);
                   }});
  cases.push_back({"topk/specials", OpKind::kTopK, [=](uint64_t seed) {
                     CaseBuilder b(seed, 3);
                     const ValueId x = b.Floats("x", F({kT, 6}), specials);
                     return OneOp(std::move(b), OpKind::kTopK, {x}, OpAttrs(rl_topk_attrs{0, 4}),
                                  ToleranceClass::kExact);
                   }});
}

void AddProbabilities(std::vector<CaseSpec>& cases) {
  constexpr double kBan = -kInfinity;
  const std::vector<double> specials = {kBan, kBan, kBan, kBan,  kBan, kBan, kBan,
                                        kBan, kBan, 5,    kBan,  500,  500,  -500,
                                        0,    kNaN, 1,    1e-30, 0,    -1e30};
  for (const OpKind kind : {OpKind::kSoftmax, OpKind::kEntropy}) {
    const std::string op(NameOf(kind));
    for (const int64_t n : kReductionColumns) {
      cases.push_back({fmt::format("{}/n{}", op, n), kind, [=](uint64_t seed) {
                         CaseBuilder b(seed, 5);
                         const ValueId x = b.Floats("x", F({kT, n}), -12, 12);
                         return OneOp(std::move(b), kind, {x}, OpAttrs(kind),
                                      ToleranceClass::kRounding);
                       }});
    }
    cases.push_back({op + "/specials", kind, [=](uint64_t seed) {
                       CaseBuilder b(seed, 4);
                       const ValueId x = b.Floats("x", F({kT, 5}), specials);
                       return OneOp(std::move(b), kind, {x}, OpAttrs(kind),
                                    ToleranceClass::kRounding);
                     }});
  }
}

}  // namespace

void AddReductionCases(std::vector<CaseSpec>& cases) {
  AddReduce(cases);
  AddSorting(cases);
  AddProbabilities(cases);
}

}  // namespace rullama::conformance
