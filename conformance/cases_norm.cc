// Cases of normalisations, rotation and the injection of per-layer embeddings.
#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr int64_t kNormColumns[] = {1, 15, 17, 256, 1536};

void AddRmsNorm(std::vector<CaseSpec>& cases) {
  for (const int64_t n : kNormColumns) {
    for (const bool weighted : {false, true}) {
      cases.push_back(
          {fmt::format("rms_norm/n{}{}", n, weighted ? "_weight" : ""), OpKind::kRmsNorm,
           [=](uint64_t seed) {
             CaseBuilder b(seed, 5);
             const ValueId x = b.Floats("x", F({kT, 2, n}), -3, 3);
             const ValueId weight = weighted ? b.Constant("weight", F({n}), 0.5, 1.5) : kNoValue;
             return OneOp(std::move(b), OpKind::kRmsNorm, {x, weight},
                          OpAttrs(rl_rms_norm_attrs{0, 1e-6F}), ToleranceClass::kRounding);
           }});
      cases.push_back(
          {fmt::format("residual_norm/n{}{}", n, weighted ? "_scale" : ""), OpKind::kResidualNorm,
           [=](uint64_t seed) {
             CaseBuilder b(seed, 5);
             const ValueId residual = b.Floats("residual", F({kT, n}), -3, 3);
             const ValueId x = b.Floats("x", F({kT, n}), -3, 3);
             const ValueId weight = b.Constant("weight", F({n}), 0.5, 1.5);
             const ValueId scale = weighted ? b.Constant("scale", F({1}), 0.2, 0.9) : kNoValue;
             return OneOp(std::move(b), OpKind::kResidualNorm, {residual, x, weight, scale},
                          OpAttrs(rl_residual_norm_attrs{0, 1e-6F}), ToleranceClass::kRounding);
           }});
    }
  }
  // Many short rows, of which kernels may take several at once.
  cases.push_back({"rms_norm/heads", OpKind::kRmsNorm, [](uint64_t seed) {
                     CaseBuilder b(seed, 130);
                     const ValueId x = b.Floats("x", F({kT, 16, 72}), -3, 3);
                     const ValueId weight = b.Constant("weight", F({72}), 0.5, 1.5);
                     return OneOp(std::move(b), OpKind::kRmsNorm, {x, weight},
                                  OpAttrs(rl_rms_norm_attrs{0, 1e-6F}), ToleranceClass::kRounding);
                   }});
  // Numbers so small that eps decides, and a row of zeros.
  cases.push_back({"rms_norm/tiny", OpKind::kRmsNorm, [](uint64_t seed) {
                     CaseBuilder b(seed, 3);
                     std::vector<double> values(3 * 33);
                     for (size_t i = 33; i < values.size(); ++i) {
                       values[i] = b.random().Uniform(-1, 1) * (i < 66 ? 1e-3 : 1e-8);
                     }
                     const ValueId x = b.Floats("x", F({kT, 33}), values);
                     return OneOp(std::move(b), OpKind::kRmsNorm, {x, kNoValue},
                                  OpAttrs(rl_rms_norm_attrs{0, 1e-6F}), ToleranceClass::kRounding);
                   }});
}

void AddLayerNorm(std::vector<CaseSpec>& cases) {
  for (const int64_t n : {17, 256, 1728}) {
    for (const bool biased : {false, true}) {
      cases.push_back({fmt::format("layer_norm/n{}{}", n, biased ? "_bias" : ""),
                       OpKind::kLayerNorm, [=](uint64_t seed) {
                         CaseBuilder b(seed, 5);
                         const ValueId x = b.Floats("x", F({kT, 2, n}), -2, 4);
                         const ValueId weight = b.Constant("weight", F({n}), 0.5, 1.5);
                         const ValueId bias = biased ? b.Constant("bias", F({n}), -1, 1) : kNoValue;
                         return OneOp(std::move(b), OpKind::kLayerNorm, {x, weight, bias},
                                      OpAttrs(rl_layer_norm_attrs{0, 1e-5F}),
                                      ToleranceClass::kRounding);
                       }});
    }
  }
}

void AddRope(std::vector<CaseSpec>& cases) {
  struct Rope {
    const char* name;
    int64_t heads, dim;
    int32_t n_rot;
    bool factors;
    float theta;
    int32_t inverse = 0;
    int32_t first = 0;
  };
  constexpr Rope kRopes[] = {
      {"sliding", 4, 256, 256, false, 1e4F},       {"global", 2, 512, 512, true, 1e6F},
      {"partial", 3, 64, 32, false, 1e4F},         {"tiny", 1, 2, 2, false, 1e4F},
      {"odd_half", 2, 48, 38, true, 1e4F},         {"half_of_72", 2, 36, 36, false, 100},
      {"inverse", 2, 256, 256, true, 1e6F, 1},     {"inverse_partial", 3, 64, 32, false, 1e4F, 1},
      {"last_half", 3, 64, 32, false, 100, 0, 32}, {"middle", 2, 72, 18, true, 1e4F, 0, 7}};
  for (const Rope& rope : kRopes) {
    cases.push_back(
        {fmt::format("rope/{}", rope.name), OpKind::kRope, [=](uint64_t seed) {
           CaseBuilder b(seed, 5);
           const ValueId x = b.Floats("x", F({kT, rope.heads, rope.dim}));
           const ValueId pos = b.Ints("pos", I({kT}), {0, 1, 777, 65537, 262143});
           const ValueId factors =
               rope.factors ? b.Constant("factors", F({rope.n_rot / 2}), 1, 8) : kNoValue;
           return OneOp(std::move(b), OpKind::kRope, {x, pos, factors},
                        OpAttrs(rl_rope_attrs{0, rope.theta, rope.n_rot, rope.inverse, rope.first}),
                        ToleranceClass::kRounding);
         }});
  }
}

void AddRotate(std::vector<CaseSpec>& cases) {
  for (const int64_t n : {2, 32, 64, 128, 256, 512, 1024}) {
    cases.push_back({fmt::format("rotate/n{}", n), OpKind::kRotate, [=](uint64_t seed) {
                       CaseBuilder b(seed, 5);
                       const ValueId x = b.Floats("x", F({kT, 3, n}));
                       return OneOp(std::move(b), OpKind::kRotate, {x}, OpAttrs(OpKind::kRotate),
                                    ToleranceClass::kRounding);
                     }});
  }
}

void AddPleInject(std::vector<CaseSpec>& cases) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (const bool scaled : {false, true}) {
      cases.push_back(
          {fmt::format("ple_inject/{}{}", NameOf(dtype), scaled ? "_scale" : ""),
           OpKind::kPleInject, [=](uint64_t seed) {
             CaseBuilder b(seed, 5);
             const ValueId x = b.Floats("x", F({kT, 512}));
             const ValueId ple = b.Floats("ple", F({kT, 256}));
             const ValueId gate = b.Weight("gate", {dtype, {256, 512}});
             const ValueId proj = b.Weight("proj", {dtype, {512, 256}});
             const ValueId norm = b.Constant("norm", F({512}), 0.5, 1.5);
             const ValueId scale = scaled ? b.Constant("scale", F({1}), 0.2, 0.9) : kNoValue;
             return OneOp(std::move(b), OpKind::kPleInject, {x, ple, gate, proj, norm, scale},
                          OpAttrs(rl_ple_inject_attrs{0, 1e-6F}), ToleranceClass::kComposite);
           }});
    }
  }
}

}  // namespace

void AddNormCases(std::vector<CaseSpec>& cases) {
  AddRmsNorm(cases);
  AddLayerNorm(cases);
  AddRope(cases);
  AddRotate(cases);
  AddPleInject(cases);
}

}  // namespace rullama::conformance
