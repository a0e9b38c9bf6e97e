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
  AddLocalAttention(cases);
}

}  // namespace rullama::conformance
