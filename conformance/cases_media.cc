// Cases of the ops of pictures and sound: groups of rows, convolutions, attention over the last
// rows.
#include <cmath>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

Dim Times(int32_t factor) { return {0, factor, 0}; }

void AddGroupsOfRows(std::vector<CaseSpec>& cases) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI32}) {
    cases.push_back(
        {fmt::format("fold_rows/{}", NameOf(dtype)), OpKind::kFoldRows, [=](uint64_t seed) {
           CaseBuilder b(seed, 3);
           const TensorType type(dtype, {Times(9), 2, 7});
           const ValueId x =
               dtype == DType::kI32 ? b.Ints("x", type, -99, 99) : b.Floats("x", type);
           return OneOp(std::move(b), OpKind::kFoldRows, {x}, OpAttrs(rl_fold_rows_attrs{0, 9}),
                        ToleranceClass::kExact);
         }});
  }
  for (const int32_t group : {1, 9}) {
    cases.push_back(
        {fmt::format("mean_rows/group{}", group), OpKind::kMeanRows, [=](uint64_t seed) {
           CaseBuilder b(seed, 5);
           const ValueId x = b.Floats("x", F({Times(group), 72}));
           return OneOp(std::move(b), OpKind::kMeanRows, {x}, OpAttrs(rl_mean_rows_attrs{0, group}),
                        ToleranceClass::kRounding);
         }});
  }
}

void AddConvolutions(std::vector<CaseSpec>& cases) {
  struct Patches {
    const char* name;
    int32_t rows;  // of x for each row of the step
    int64_t width, channels, kernel, stride;
  };
  constexpr Patches kPatches[] = {{"first", 4, 16, 1, 3, 2},
                                  {"second", 2, 8, 32, 3, 2},
                                  {"same_size", 1, 5, 3, 5, 1},
                                  {"pixels", 3, 6, 2, 1, 3}};
  for (const Patches& p : kPatches) {
    cases.push_back({fmt::format("im2col/{}", p.name), OpKind::kIm2Col, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({Times(p.rows), p.width, p.channels}));
                       return OneOp(std::move(b), OpKind::kIm2Col, {x},
                                    OpAttrs(rl_im2col_attrs{0, p.kernel, p.stride}),
                                    ToleranceClass::kExact);
                     }});
  }
  struct Causal {
    int64_t rows, n, kernel;
  };
  constexpr Causal kCausal[] = {{1, 64, 5}, {3, 64, 5}, {19, 65, 5}, {7, 33, 1}};
  for (const Causal& c : kCausal) {
    cases.push_back({fmt::format("causal_conv1d/n{}_k{}_t{}", c.n, c.kernel, c.rows),
                     OpKind::kCausalConv1d, [=](uint64_t seed) {
                       CaseBuilder b(seed, c.rows);
                       const ValueId x = b.Floats("x", F({kT, c.n}));
                       const ValueId weight = b.Constant("weight", F({c.n, c.kernel}));
                       return OneOp(std::move(b), OpKind::kCausalConv1d, {x, weight},
                                    OpAttrs(OpKind::kCausalConv1d), ToleranceClass::kContraction);
                     }});
  }
}

// Products between clamps, as towers have them: two that clamp the same rows differently, one whose
// clamp does not follow at once, one with gates, and one of gated rows.
void AddClippedProducts(std::vector<CaseSpec>& cases) {
  struct Clipped {
    DType dtype;
    int64_t t, n, k;
  };
  constexpr Clipped kClipped[] = {{DType::kF16, 70, 96, 640},
                                  {DType::kF16, 150, 8500, 64},
                                  {DType::kF16, 3, 96, 640},
                                  {DType::kQ4_K, 70, 96, 768},
                                  {DType::kF32, 70, 96, 640}};
  for (const Clipped& c : kClipped) {
    const std::string name = fmt::format("matmul/clipped_{}_k{}_n{}_t{}{}", NameOf(c.dtype), c.k,
                                         c.n, c.t, WideSuffix(c.n));
    cases.push_back(
        {name, OpKind::kMatMul, [=](uint64_t seed) {
           CaseBuilder b(seed, c.t);
           GraphBuilder& g = b.graph();
           const TensorType type(c.dtype, {c.n, c.k});
           const auto weight = [&](std::string_view of) {
             return IsBlockType(c.dtype) ? b.Weight(of, type) : b.Constant(of, type, -0.3, 0.3);
           };
           // Twice the spread of sums with plain weights, so that a row's largest result stays
           // large.
           const auto bound = static_cast<float>(0.35 * std::sqrt(c.k));
           const ValueId x = b.Floats("x", F({kT, c.k}));
           const ValueId a = g.Add(ops::Clamp{.x = x, .lo = -1.5F, .hi = 1.25F}, "a.in");
           const ValueId d = g.Add(ops::Clamp{.x = x, .lo = -HUGE_VALF, .hi = 0.5F}, "d.in");
           const ValueId a_open = g.Add(ops::Linear(a, weight("a.weight")), "a.open");
           b.Output(g.Add(ops::Clamp{.x = a_open, .lo = -bound, .hi = bound}, "a"));
           const ValueId d_open = g.Add(ops::Linear(d, weight("d.weight")), "d.open");
           b.Output(g.Add(
               ops::GeGluLinear{
                   .x = a, .gate_weight = weight("gate.weight"), .up_weight = weight("up.weight")},
               "gated"));
           b.Output(g.Add(ops::Clamp{.x = d_open, .lo = -bound, .hi = HUGE_VALF}, "d"));
           const ValueId up = b.Floats("up", F({kT, c.k}));
           const ValueId glu = g.Add(ops::GeGlu{.gate = x, .up = up}, "glu");
           const ValueId glu_in = g.Add(ops::Clamp{.x = glu, .lo = -1, .hi = 2}, "glu.in");
           b.Output(g.Add(ops::Linear(glu_in, weight("glu.weight")), "of.glu"));
           return std::move(b).Finish(IsBlockType(c.dtype)     ? ToleranceClass::kComposite
                                      : c.dtype == DType::kF16 ? ToleranceClass::kHalfFactors
                                                               : ToleranceClass::kContraction);
         }});
  }
}

void AddLocalAttention(std::vector<CaseSpec>& cases) {
  struct Local {
    const char* name;
    int64_t rows, heads, dim, window;
    float cap;
  };
  constexpr Local kLocal[] = {{"one", 1, 4, 16, 12, 50},
                              {"below_window", 5, 4, 16, 12, 50},
                              {"many", 41, 8, 128, 12, 50},
                              {"capped", 17, 3, 20, 4, 2},
                              {"uncapped", 17, 2, 64, 7, 0}};
  for (const Local& c : kLocal) {
    cases.push_back(
        {fmt::format("local_attention/{}", c.name), OpKind::kLocalAttention, [=](uint64_t seed) {
           CaseBuilder b(seed, c.rows);
           const double size = 3 / std::sqrt(static_cast<double>(c.dim));
           const TensorType rows = F({kT, c.heads, c.dim});
           const ValueId q = b.Floats("q", rows);
           const ValueId k = b.Floats("k", rows, -size, size);
           const ValueId v = b.Floats("v", rows);
           const ValueId rel = b.Floats("rel", F({c.window, c.heads, c.dim}), -size, size);
           return OneOp(std::move(b), OpKind::kLocalAttention, {q, k, v, rel},
                        OpAttrs(rl_local_attention_attrs{0, c.cap}), ToleranceClass::kContraction);
         }});
  }
}

}  // namespace

void AddMediaCases(std::vector<CaseSpec>& cases) {
  AddGroupsOfRows(cases);
  AddConvolutions(cases);
  AddClippedProducts(cases);
  AddLocalAttention(cases);
}

}  // namespace rullama::conformance
