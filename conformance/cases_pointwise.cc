// Cases of the pointwise ops and of activations.
#include <cmath>
#include <limits>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

// Vector units work on 4 to 64 elements: one, one less, one more, and a prime far beyond.
constexpr int64_t kPointwiseColumns[] = {1, 15, 17, 64, 257};

struct Domain {
  double low, high;
};
Domain DomainOf(rl_unary fn) {
  switch (fn) {
    case RL_UNARY_EXP:
      return {-30, 20};
    case RL_UNARY_LOG:
      return {1e-6, 100};
    case RL_UNARY_SQRT:
      return {0, 100};
    case RL_UNARY_RSQRT:
      return {1e-3, 100};
    default:
      return {-12, 12};
  }
}

bool IsExact(rl_unary fn) { return fn == RL_UNARY_NEG || fn == RL_UNARY_ABS; }
bool IsExact(rl_binary fn) {
  return fn == RL_BINARY_MIN || fn == RL_BINARY_MAX || fn == RL_BINARY_LT || fn == RL_BINARY_LE ||
         fn == RL_BINARY_EQ;
}

// Infinities where numerics.md defines the result for every backend.
std::vector<double> SpecialsOf(rl_unary fn) {
  switch (fn) {
    case RL_UNARY_EXP:
      return {-kInfinity, 0, -100, 100, kNaN};
    case RL_UNARY_LOG:
      return {0, 1, kInfinity, -1};
    case RL_UNARY_SQRT:
    case RL_UNARY_RSQRT:
      return {0, 4, kInfinity, -1};
    case RL_UNARY_TANH:
    case RL_UNARY_SIGMOID:
      return {-kInfinity, kInfinity, 0, 1e-5, -1e-5, 40, -40, kNaN};
    case RL_UNARY_GELU_TANH:
    case RL_UNARY_SILU:
      return {0, 1e-5, -1e-5, 60, -60, kNaN};
    case RL_UNARY_GELU_TANH_GRAD:
      return {0, 1e-5, -1e-5, 10, -10, 10.5, -10.5, 1e30, -1e30, kInfinity, -kInfinity, kNaN};
    default:
      return {0, kInfinity, -kInfinity, kNaN, 1e-30};
  }
}

void AddUnary(std::vector<CaseSpec>& cases) {
  for (int32_t i = RL_UNARY_NEG; i <= RL_UNARY_GELU_TANH_GRAD; ++i) {
    const auto fn = static_cast<rl_unary>(i);
    const std::string name(EnumeratorName("rl_unary", i));
    const ToleranceClass tolerance =
        IsExact(fn) ? ToleranceClass::kExact : ToleranceClass::kRounding;
    for (const int64_t n : kPointwiseColumns) {
      cases.push_back({fmt::format("unary/{}_n{}", name, n), OpKind::kUnary, [=](uint64_t seed) {
                         CaseBuilder b(seed, 5);
                         const Domain domain = DomainOf(fn);
                         const ValueId x = b.Floats("x", F({kT, n}), domain.low, domain.high);
                         return OneOp(std::move(b), OpKind::kUnary, {x},
                                      OpAttrs(rl_unary_attrs{0, fn}), tolerance);
                       }});
    }
    cases.push_back(
        {fmt::format("unary/{}_specials", name), OpKind::kUnary, [=](uint64_t seed) {
           const std::vector<double> values = SpecialsOf(fn);
           CaseBuilder b(seed, 1);
           const ValueId x = b.Floats("x", F({kT, static_cast<int64_t>(values.size())}), values);
           return OneOp(std::move(b), OpKind::kUnary, {x}, OpAttrs(rl_unary_attrs{0, fn}),
                        tolerance);
         }});
  }
}

void AddBinary(std::vector<CaseSpec>& cases) {
  struct Shapes {
    const char* name;
    TensorType a, b;
  };
  const Shapes shapes[] = {{"same_n1", F({kT, 1}), F({kT, 1})},
                           {"same_n17", F({kT, 17}), F({kT, 17})},
                           {"rank1", F({kT}), F({kT})},
                           {"broadcast_last", F({kT, 5, 17}), F({kT, 5, 1})},
                           {"broadcast_middle", F({kT, 5, 17}), F({kT, 1, 17})},
                           {"broadcast_both", F({kT, 3, 5, 17}), F({kT, 1, 5, 1})}};
  for (int32_t i = RL_BINARY_ADD; i <= RL_BINARY_EQ; ++i) {
    const auto fn = static_cast<rl_binary>(i);
    const ToleranceClass tolerance =
        IsExact(fn) ? ToleranceClass::kExact : ToleranceClass::kRounding;
    for (const Shapes& shape : shapes) {
      cases.push_back({fmt::format("binary/{}_{}", EnumeratorName("rl_binary", i), shape.name),
                       OpKind::kBinary, [=](uint64_t seed) {
                         CaseBuilder b(seed, 7);
                         // Halves, so that equal pairs occur; no divisor is 0.
                         std::vector<double> first, second;
                         for (int64_t n = shape.a.ElementsAt(b.extents()); n > 0; --n) {
                           first.push_back(static_cast<double>(b.random().Int(-6, 6)) / 2);
                         }
                         for (int64_t n = shape.b.ElementsAt(b.extents()); n > 0; --n) {
                           const int64_t sign = b.random().Int(0, 1) * 2 - 1;
                           second.push_back(static_cast<double>(sign * b.random().Int(1, 6)) / 2);
                         }
                         const ValueId x = b.Floats("a", shape.a, first);
                         const ValueId y = b.Floats("b", shape.b, second);
                         return OneOp(std::move(b), OpKind::kBinary, {x, y},
                                      OpAttrs(rl_binary_attrs{0, fn}), tolerance);
                       }});
    }
  }
  for (const rl_binary fn : {RL_BINARY_LT, RL_BINARY_LE, RL_BINARY_EQ}) {
    cases.push_back(
        {fmt::format("binary/{}_specials", EnumeratorName("rl_binary", fn)), OpKind::kBinary,
         [=](uint64_t seed) {
           CaseBuilder b(seed, 1);
           const ValueId x = b.Floats("a", F({kT, 5}), {kNaN, 1, kInfinity, -kInfinity, 0});
           const ValueId y = b.Floats("b", F({kT, 5}), {1, kNaN, kInfinity, kInfinity, -0.0});
           return OneOp(std::move(b), OpKind::kBinary, {x, y}, OpAttrs(rl_binary_attrs{0, fn}),
                        ToleranceClass::kExact);
         }});
  }
}

void AddScaling(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kPointwiseColumns) {
    const std::string suffix = fmt::format("n{}", n);
    cases.push_back({"scale/vector_" + suffix, OpKind::kScale, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, 2, n}));
                       const ValueId weight = b.Constant("weight", F({n}));
                       return OneOp(std::move(b), OpKind::kScale, {x, weight},
                                    OpAttrs(OpKind::kScale), ToleranceClass::kRounding);
                     }});
    cases.push_back({"scale/one_" + suffix, OpKind::kScale, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, n}));
                       const ValueId weight = b.Floats("weight", F({1}));
                       return OneOp(std::move(b), OpKind::kScale, {x, weight},
                                    OpAttrs(OpKind::kScale), ToleranceClass::kRounding);
                     }});
    cases.push_back({"add_vector/" + suffix, OpKind::kAddVector, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, 2, n}));
                       const ValueId vector = b.Constant("vector", F({n}));
                       return OneOp(std::move(b), OpKind::kAddVector, {x, vector},
                                    OpAttrs(OpKind::kAddVector), ToleranceClass::kRounding);
                     }});
    cases.push_back({"clamp/" + suffix, OpKind::kClamp, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, n}));
                       return OneOp(std::move(b), OpKind::kClamp, {x},
                                    OpAttrs(rl_clamp_attrs{0, -0.75F, 1.25F}),
                                    ToleranceClass::kExact);
                     }});
    cases.push_back({"affine/" + suffix, OpKind::kAffine, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, n}));
                       return OneOp(std::move(b), OpKind::kAffine, {x},
                                    OpAttrs(rl_affine_attrs{0, -1.75F, 0.3F}),
                                    ToleranceClass::kRounding);
                     }});
  }
}

void AddClampSpecials(std::vector<CaseSpec>& cases) {
  struct Clamp {
    const char* name;
    float lo, hi;
  };
  constexpr Clamp kClamps[] = {
      {"relu", 0, HUGE_VALF}, {"above", -HUGE_VALF, 2}, {"all", -HUGE_VALF, HUGE_VALF}};
  for (const Clamp& clamp : kClamps) {
    cases.push_back({fmt::format("clamp/{}", clamp.name), OpKind::kClamp, [=](uint64_t seed) {
                       CaseBuilder b(seed, 1);
                       const ValueId x = b.Floats("x", F({kT, 7}),
                                                  {-kInfinity, -1, 0, 2, 178000, kInfinity, kNaN});
                       return OneOp(std::move(b), OpKind::kClamp, {x},
                                    OpAttrs(rl_clamp_attrs{0, clamp.lo, clamp.hi}),
                                    ToleranceClass::kExact);
                     }});
  }
}

void AddChoices(std::vector<CaseSpec>& cases) {
  const auto condition = [](CaseBuilder& b, const TensorType& type) {
    std::vector<double> values;
    for (int64_t n = type.ElementsAt(b.extents()); n > 0; --n) {
      const double choices[] = {0, 1, -0.0, 0.5, kNaN};
      values.push_back(choices[b.random().Int(0, 4)]);
    }
    return b.Floats("condition", type, values);
  };
  for (const int64_t n : kPointwiseColumns) {
    cases.push_back({fmt::format("select/n{}", n), OpKind::kSelect, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId chosen = condition(b, F({kT, n}));
                       const ValueId a = b.Floats("a", F({kT, n}));
                       return OneOp(std::move(b), OpKind::kSelect, {chosen, a},
                                    OpAttrs(rl_select_attrs{0, -HUGE_VALF}),
                                    ToleranceClass::kExact);
                     }});
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI32}) {
    cases.push_back({fmt::format("where/{}", NameOf(dtype)), OpKind::kWhere, [=](uint64_t seed) {
                       CaseBuilder b(seed, 9);
                       const TensorType type(dtype, {kT});
                       const bool ints = dtype == DType::kI32;
                       const ValueId chosen = condition(b, F({kT}));
                       const ValueId a = ints ? b.Ints("a", type, 0, 99) : b.Floats("a", type);
                       const ValueId c = ints ? b.Ints("b", type, 0, 99) : b.Floats("b", type);
                       return OneOp(std::move(b), OpKind::kWhere, {chosen, a, c},
                                    OpAttrs(OpKind::kWhere), ToleranceClass::kExact);
                     }});
  }
}

void AddActivations(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kPointwiseColumns) {
    cases.push_back({fmt::format("softcap/n{}", n), OpKind::kSoftcap, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, n}), -200, 200);
                       return OneOp(std::move(b), OpKind::kSoftcap, {x},
                                    OpAttrs(rl_softcap_attrs{0, 30.0F}), ToleranceClass::kRounding);
                     }});
    cases.push_back({fmt::format("geglu/n{}", n), OpKind::kGeGlu, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId gate = b.Floats("gate", F({kT, n}), -8, 8);
                       const ValueId up = b.Floats("up", F({kT, n}), -8, 8);
                       return OneOp(std::move(b), OpKind::kGeGlu, {gate, up},
                                    OpAttrs(OpKind::kGeGlu), ToleranceClass::kRounding);
                     }});
  }
  cases.push_back({"softcap/specials", OpKind::kSoftcap, [](uint64_t seed) {
                     CaseBuilder b(seed, 1);
                     const ValueId x = b.Floats("x", F({kT, 4}), {kInfinity, -kInfinity, kNaN, 0});
                     return OneOp(std::move(b), OpKind::kSoftcap, {x},
                                  OpAttrs(rl_softcap_attrs{0, 30.0F}), ToleranceClass::kRounding);
                   }});
}

}  // namespace

void AddPointwiseCases(std::vector<CaseSpec>& cases) {
  AddUnary(cases);
  AddBinary(cases);
  AddScaling(cases);
  AddClampSpecials(cases);
  AddChoices(cases);
  AddActivations(cases);
}

}  // namespace rullama::conformance
