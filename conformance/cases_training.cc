// Cases of the losses and derivatives.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr int64_t kTrainingColumns[] = {1, 15, 17, 64, 2049};
constexpr double kLargest = 3.3999999521443642e38;  // nearly the largest f32

// The losses of rows of logits, and their derivative.
void AddLossesOf(std::vector<CaseSpec>& cases, const std::string& name,
                 std::function<ValueId(CaseBuilder&)> logits, std::vector<int32_t> targets) {
  const auto rows = static_cast<int64_t>(targets.size());
  cases.push_back({"cross_entropy/" + name, OpKind::kCrossEntropy, [=](uint64_t seed) {
                     CaseBuilder b(seed, rows);
                     const ValueId z = logits(b);
                     const ValueId t = b.Ints("targets", I({kT}), targets);
                     return OneOp(std::move(b), OpKind::kCrossEntropy, {z, t},
                                  OpAttrs(OpKind::kCrossEntropy), ToleranceClass::kRounding);
                   }});
  cases.push_back({"cross_entropy_grad/" + name, OpKind::kCrossEntropyGrad, [=](uint64_t seed) {
                     CaseBuilder b(seed, rows);
                     const ValueId z = logits(b);
                     const ValueId t = b.Ints("targets", I({kT}), targets);
                     const ValueId factor = b.Floats("factor", F({1}), std::vector<double>{0.375});
                     return OneOp(std::move(b), OpKind::kCrossEntropyGrad, {z, t, factor},
                                  OpAttrs(OpKind::kCrossEntropyGrad), ToleranceClass::kRounding);
                   }});
}

// Rows of seven logits: large, equal and banned ones, a target that is banned, and targets that do
// not count over logits that are not finite.
const std::vector<double> kEdgeLogits = {
    2.0,        -2.5,       0.4,        -0.5,       -0.4,       -0.2,       -2.0,      //
    -7.0,       -26.0,      99.75,      6.8,        -10.6,      -8.4,       -20.0,     //
    1e4,        -1e4,       9999,       0,          0,          0,          0,         //
    1e4,        -1e4,       9999,       0,          0,          0,          0,         //
    3,          3,          3,          3,          3,          3,          3,         //
    0,          -kInfinity, 1,          -kInfinity, 2,          -kInfinity, 3,         //
    0,          -kInfinity, 1,          -kInfinity, 2,          -kInfinity, 3,         //
    kInfinity,  0,          0,          0,          0,          0,          0,         //
    kNaN,       kNaN,       kNaN,       kNaN,       kNaN,       kNaN,       kNaN,      //
    -kInfinity, 1,          kNaN,       kInfinity,  0,          0,          0,         //
    -kLargest,  -kLargest,  -kLargest,  -kLargest,  -kLargest,  -kLargest,  kLargest,  //
    88,         89,         90,         -104,       -88,        0,          1,         //
    1e30,       1e30,       -1e30,      0,          1e30,       0,          0,         //
    -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity,
    -kInfinity, kNaN,       -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity};
const std::vector<int32_t> kEdgeTargets = {2, 0, 0, 1, 6, 4, 1, -1, 9, INT32_MAX, 6, 3, 1, 2, 0};

void AddLosses(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kTrainingColumns) {
    AddLossesOf(
        cases, fmt::format("n{}", n),
        [n](CaseBuilder& b) {
          return b.Floats("logits", F({kT, n}), -12, 12);
        },
        {0, static_cast<int32_t>(n - 1), -1, static_cast<int32_t>(n), static_cast<int32_t>(n / 2)});
  }
  // A vocabulary of nearly equal logits, whose exponentials one running sum in f32 gets wrong.
  AddLossesOf(cases, "vocabulary",
              [](CaseBuilder& b) {
                return b.Floats("logits", F({kT, 262144}), -0.5, 0.5);
              },
              {262143, 77});
  AddLossesOf(
      cases, "edges",
      [](CaseBuilder& b) {
        return b.Floats("logits", F({kT, 7}), kEdgeLogits);
      },
      kEdgeTargets);
}

void AddHeads(std::vector<CaseSpec>& cases) {
  struct Head {
    const char* name;
    DType dtype;
    int64_t rows;
    float cap;
  };
  // Up to one row more than backends may take at a time.
  constexpr Head kHeads[] = {
      {"f32_t5", DType::kF32, 5, 30},       {"f16_t5", DType::kF16, 5, 30},
      {"q8_0_t1", DType::kQ8_0, 1, 30},     {"q4_k_t5", DType::kQ4_K, 5, 30},
      {"q6_k_t129", DType::kQ6_K, 129, 30}, {"q6_k_t257", DType::kQ6_K, 257, 30},
      {"f16_uncapped", DType::kF16, 5, 0}};
  for (const Head& head : kHeads) {
    cases.push_back(
        {fmt::format("linear_cross_entropy/{}", head.name), OpKind::kLinearCrossEntropy,
         [=](uint64_t seed) {
           constexpr int64_t kWidth = 256, kClasses = 320;
           CaseBuilder b(seed, head.rows);
           const ValueId x = b.Floats("x", F({kT, kWidth}));
           std::vector<int32_t> targets;  // of which one in five does not count
           targets.reserve(head.rows);
           for (int64_t i = 0; i < head.rows; ++i) {
             targets.push_back(i % 5 == 2 ? -1 : static_cast<int32_t>(b.random().Int(0, 319)));
           }
           const ValueId weight = b.Weight("weight", {head.dtype, {kClasses, kWidth}});
           const ValueId t = b.Ints("targets", I({kT}), targets);
           const ValueId factor = b.Floats("factor", F({1}), std::vector<double>{0.25});
           return OneOp(std::move(b), OpKind::kLinearCrossEntropy, {x, weight, t, factor},
                        OpAttrs(rl_linear_cross_entropy_attrs{0, head.cap}),
                        ToleranceClass::kComposite);
         }});
  }
}

// A softmax and any dy, which is not finite where there is no mass.
void AddSoftmaxGrad(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kTrainingColumns) {
    cases.push_back({fmt::format("softmax_grad/n{}", n), OpKind::kSoftmaxGrad, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const double mean = 1 / static_cast<double>(n);
                       const ValueId y = b.Floats("y", F({kT, 2, n}), 0, 2 * mean);
                       const ValueId dy = b.Floats("dy", F({kT, 2, n}));
                       return OneOp(std::move(b), OpKind::kSoftmaxGrad, {y, dy},
                                    OpAttrs(OpKind::kSoftmaxGrad), ToleranceClass::kRounding);
                     }});
  }
  cases.push_back(
      {"softmax_grad/no_mass", OpKind::kSoftmaxGrad, [](uint64_t seed) {
         CaseBuilder b(seed, 3);
         const ValueId y = b.Floats("y", F({kT, 4}), {0.5, 0, 0.25, 0.25, 0, 0, 0, 0, 0, 1, 0, 0});
         const ValueId dy = b.Floats("dy", F({kT, 4}),
                                     {1, -kInfinity, 3, 2, kNaN, 1, 2, kInfinity, kNaN, 5, 1, 1});
         return OneOp(std::move(b), OpKind::kSoftmaxGrad, {y, dy}, OpAttrs(OpKind::kSoftmaxGrad),
                      ToleranceClass::kRounding);
       }});
}

void AddRmsNormGrad(std::vector<CaseSpec>& cases) {
  for (const int64_t n : {1, 15, 17, 256, 1536}) {
    for (const bool weighted : {false, true}) {
      cases.push_back(
          {fmt::format("rms_norm_grad/n{}{}", n, weighted ? "_weight" : ""), OpKind::kRmsNormGrad,
           [=](uint64_t seed) {
             CaseBuilder b(seed, 5);
             const ValueId x = b.Floats("x", F({kT, 2, n}), -3, 3);
             const ValueId dy = b.Floats("dy", F({kT, 2, n}));
             const ValueId weight = weighted ? b.Constant("weight", F({n}), 0.5, 1.5) : kNoValue;
             return OneOp(std::move(b), OpKind::kRmsNormGrad, {x, dy, weight},
                          OpAttrs(rl_rms_norm_grad_attrs{0, 1e-6F}), ToleranceClass::kRounding);
           }});
    }
  }
  // Numbers so small that eps decides, and a row of zeros.
  cases.push_back({"rms_norm_grad/tiny", OpKind::kRmsNormGrad, [](uint64_t seed) {
                     CaseBuilder b(seed, 3);
                     std::vector<double> values(3 * 33);
                     for (size_t i = 33; i < values.size(); ++i) {
                       values[i] = b.random().Uniform(-1, 1) * (i < 66 ? 1e-3 : 1e-8);
                     }
                     const ValueId x = b.Floats("x", F({kT, 33}), values);
                     const ValueId dy = b.Floats("dy", F({kT, 33}));
                     return OneOp(std::move(b), OpKind::kRmsNormGrad, {x, dy, kNoValue},
                                  OpAttrs(rl_rms_norm_grad_attrs{0, 1e-6F}),
                                  ToleranceClass::kRounding);
                   }});
}

void AddGeGluGrad(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kTrainingColumns) {
    cases.push_back({fmt::format("geglu_grad/n{}", n), OpKind::kGeGluGrad, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId gate = b.Floats("gate", F({kT, n}), -12, 12);
                       const ValueId up = b.Floats("up", F({kT, n}));
                       const ValueId dy = b.Floats("dy", F({kT, n}));
                       return OneOp(std::move(b), OpKind::kGeGluGrad, {gate, up, dy},
                                    OpAttrs(OpKind::kGeGluGrad), ToleranceClass::kRounding);
                     }});
  }
  cases.push_back({"geglu_grad/saturated", OpKind::kGeGluGrad, [](uint64_t seed) {
                     CaseBuilder b(seed, 1);
                     const ValueId gate = b.Floats("gate", F({kT, 8}),
                                                   {0, 10, -10, 10.5, -10.5, 1e15, -1e15, -0.75});
                     const ValueId up = b.Floats("up", F({kT, 8}));
                     const ValueId dy = b.Floats("dy", F({kT, 8}));
                     return OneOp(std::move(b), OpKind::kGeGluGrad, {gate, up, dy},
                                  OpAttrs(OpKind::kGeGluGrad), ToleranceClass::kRounding);
                   }});
}

// Numbers whose sums are exact in any float type.
ValueId Quarters(CaseBuilder& b, std::string_view name, const TensorType& type) {
  std::vector<double> values;
  for (int64_t n = type.ElementsAt(b.extents()); n > 0; --n) {
    values.push_back(static_cast<double>(b.random().Int(-40, 40)) / 4);
  }
  return b.Floats(name, type, values);
}

void AddScatters(std::vector<CaseSpec>& cases) {
  const Dim r = Dim::R();
  struct Scatter {
    const char* name;
    int64_t t;
    std::vector<int32_t> rows;
    TensorType type;
  };
  const Scatter scatters[] = {{"vectors", 7, {6, 0, 2}, F({r, 300})},
                              {"heads", 5, {1, 3, 4, 0}, F({r, 3, 17})},
                              {"numbers", 5, {4, 2}, F({r})},
                              {"repeated", 6, {2, 0, 2, 2, 3, 0}, F({r, 33})},
                              {"t1", 1, {0}, F({r, 64})}};
  for (const Scatter& scatter : scatters) {
    cases.push_back(
        {fmt::format("scatter_rows/{}", scatter.name), OpKind::kScatterRows, [=](uint64_t seed) {
           CaseBuilder b(seed, scatter.t, static_cast<int64_t>(scatter.rows.size()));
           const ValueId x = Quarters(b, "x", scatter.type);
           const ValueId to = b.Ints("rows", I({r}), scatter.rows);
           return OneOp(std::move(b), OpKind::kScatterRows, {x, to}, OpAttrs(OpKind::kScatterRows),
                        ToleranceClass::kExact);
         }});
  }
  const std::vector<int32_t> pairs = {32, 0, -1, 16, 16, 16, -1, -1, 5, 31, 0, 1};
  cases.push_back({"scatter_last/pairs", OpKind::kScatterLast, [=](uint64_t seed) {
                     CaseBuilder b(seed, 4);
                     const ValueId x = Quarters(b, "x", F({kT, 3}));
                     const ValueId index = b.Ints("index", I({kT, 3}), pairs);
                     return OneOp(std::move(b), OpKind::kScatterLast, {x, index},
                                  OpAttrs(rl_scatter_last_attrs{0, 33}), ToleranceClass::kExact);
                   }});
  cases.push_back({"scatter_last/one", OpKind::kScatterLast, [](uint64_t seed) {
                     CaseBuilder b(seed, 5);
                     const ValueId x = b.Floats("x", F({kT}));
                     const ValueId index = b.Ints("index", I({kT}), {2048, 0, -1, 16, 31});
                     return OneOp(std::move(b), OpKind::kScatterLast, {x, index},
                                  OpAttrs(rl_scatter_last_attrs{0, 2049}), ToleranceClass::kExact);
                   }});
}

void AddPads(std::vector<CaseSpec>& cases) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32}) {
    for (const int axis : {1, 2}) {
      cases.push_back(
          {fmt::format("pad/{}_axis{}", NameOf(dtype), axis), OpKind::kPad, [=](uint64_t seed) {
             CaseBuilder b(seed, 7);
             const TensorType type(dtype, {kT, 3, 5});
             const ValueId x =
                 dtype == DType::kI32 ? b.Ints("x", type, -1000, 1000) : b.Floats("x", type);
             return OneOp(std::move(b), OpKind::kPad, {x}, OpAttrs(rl_pad_attrs{0, axis, 2, 1}),
                          ToleranceClass::kExact);
           }});
    }
  }
  cases.push_back({"pad/nothing", OpKind::kPad, [](uint64_t seed) {
                     CaseBuilder b(seed, 3);
                     const ValueId x = b.Floats("x", F({kT, 9}));
                     return OneOp(std::move(b), OpKind::kPad, {x},
                                  OpAttrs(rl_pad_attrs{0, 1, 0, 0}), ToleranceClass::kExact);
                   }});
}

void AddSums(std::vector<CaseSpec>& cases) {
  struct Sum {
    const char* name;
    TensorType type;
  };
  const Sum sums[] = {{"one", F({1})},
                      {"rows", F({kT, 3, 17})},
                      {"matrix", F({16, 1536})},
                      {"long", F({300, 2049})}};
  for (const Sum& sum : sums) {
    cases.push_back(
        {fmt::format("sum_squares/{}", sum.name), OpKind::kSumSquares, [=](uint64_t seed) {
           CaseBuilder b(seed, 5);
           const ValueId x = b.Floats("x", sum.type);
           return OneOp(std::move(b), OpKind::kSumSquares, {x}, OpAttrs(OpKind::kSumSquares),
                        ToleranceClass::kRounding);
         }});
  }
}

}  // namespace

void AddTrainingCases(std::vector<CaseSpec>& cases) {
  AddLosses(cases);
  AddHeads(cases);
  AddSoftmaxGrad(cases);
  AddRmsNormGrad(cases);
  AddGeGluGrad(cases);
  AddScatters(cases);
  AddPads(cases);
  AddSums(cases);
}

}  // namespace rullama::conformance
