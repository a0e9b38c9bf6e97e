#include <cmath>

#include "core/ir/op_cases_test_util.h"

namespace rullama::test {
namespace {

const Dim kT = Dim::T();

std::vector<OpCase> PointwiseCases() {
  return {
      {{OpKind::kUnary, OpAttrs(rl_unary_attrs{0, RL_UNARY_SILU}), {F({kT, 8})}},
       {F({kT, 8})},
       {{Attr(rl_unary_attrs{0, 99}), "99 is not a value of rl_unary"},
        {Operand(0, I({kT, 8})), "operand x is i32[T,8], expected f32"}}},
      {{OpKind::kBinary, OpAttrs(rl_binary_attrs{0, RL_BINARY_LE}), {F({kT, 4, 8}), F({kT, 1, 8})}},
       {F({kT, 4, 8})},
       {{Attr(rl_binary_attrs{0, -1}), "-1 is not a value of rl_binary"},
        {Operand(1, F({kT, 8})), "operand b is f32[T,8], expected rank 3"},
        {Operand(1, F({1, 4, 8})), "f32[1,4,8] does not broadcast to f32[T,4,8]"},
        {Operand(1, F({kT, 2, 8})), "f32[T,2,8] does not broadcast to f32[T,4,8]"},
        {Operand(1, I({kT, 4, 8})), "expected f32"}}},
      {{OpKind::kScale, OpAttrs(OpKind::kScale), {F({kT, 8}), F({8})}},
       {F({kT, 8})},
       {{Operand(1, F({4})), "operand weight is f32[4], expected f32[8]"},
        {Operand(1, {DType::kF16, {8}}), "operand weight is f16[8], expected f32[8]"},
        {[](OpUse& use) {
           use.operands = {F({kT}), F({kT})};
         },
         "expected rank 2 or more"},
        {[](OpUse& use) { use.operands[1] = std::nullopt; }, "operand weight is missing"}}},
      {{OpKind::kAffine, OpAttrs(rl_affine_attrs{0, 0.5F, -1.0F}), {F({kT, 8})}},
       {F({kT, 8})},
       {{Operand(0, {DType::kBF16, {kT, 8}}), "expected f32"},
        {[](OpUse& use) { use.operands.emplace_back(F({kT})); }, "found 2 operands, expected 1"}}},
      {{OpKind::kClamp, OpAttrs(rl_clamp_attrs{0, 0.0F, INFINITY}), {F({kT, 8})}},
       {F({kT, 8})},
       {{Attr(rl_clamp_attrs{0, 2.0F, 1.0F}), "bounds are 2 and 1, expected lo <= hi"},
        {Attr(rl_clamp_attrs{0, NAN, 1.0F}), "expected lo <= hi"},
        {Operand(0, I({kT, 8})), "operand x is i32[T,8], expected f32"}}},
      {{OpKind::kAddVector, OpAttrs(OpKind::kAddVector), {F({kT, 4, 8}), F({8})}},
       {F({kT, 4, 8})},
       {{Operand(1, F({4})), "operand vector is f32[4], expected f32[8]"},
        {Operand(0, F({kT})), "expected rank 2 or more"}}},
      {{OpKind::kSelect, OpAttrs(rl_select_attrs{0, -INFINITY}), {F({kT, 8}), F({kT, 8})}},
       {F({kT, 8})},
       {{Operand(0, I({kT, 8})), "operand condition is i32[T,8], expected f32"},
        {Operand(1, F({kT, 1})), "operand a is f32[T,1], expected f32[T,8]"}}},
      {{OpKind::kWhere, OpAttrs(OpKind::kWhere), {F({kT}), I({kT}), I({kT})}},
       {I({kT})},
       {{Operand(0, I({kT})), "operand condition is i32[T], expected f32"},
        {Operand(1, {DType::kQ8_0, {kT, 32}}), "expected an element type without blocks"},
        {Operand(2, F({kT})), "operand b is f32[T], expected i32[T]"}}},
      {{OpKind::kLayerNorm,
        OpAttrs(rl_layer_norm_attrs{0, 1e-5F}),
        {F({kT, 2, 8}), F({8}), F({8})}},
       {F({kT, 2, 8})},
       {{Attr(rl_layer_norm_attrs{0, -1.0F}), "eps is -1, expected a finite number >= 0"},
        {Operand(1, F({4})), "operand weight is f32[4], expected f32[8]"},
        {Operand(2, F({1})), "operand bias is f32[1], expected f32[8]"}}},
      {{OpKind::kSoftcap, OpAttrs(rl_softcap_attrs{0, 30.0F}), {F({kT, 8})}},
       {F({kT, 8})},
       {{Attr(rl_softcap_attrs{0, 0.0F}), "cap is 0, expected a finite number > 0"},
        {Attr(rl_softcap_attrs{0, INFINITY}), "cap is inf"},
        {Operand(0, I({kT, 8})), "expected f32"}}},
      {{OpKind::kGeGlu, OpAttrs(OpKind::kGeGlu), {F({kT, 8}), F({kT, 8})}},
       {F({kT, 8})},
       {{Operand(0, {DType::kF16, {kT, 8}}), "operand gate is f16[T,8], expected f32"},
        {Operand(1, F({kT, 4})), "operand up is f32[T,4], expected f32[T,8]"}}},
  };
}

std::vector<OpCase> ReductionCases() {
  return {
      {{OpKind::kReduce, OpAttrs(rl_reduce_attrs{0, RL_REDUCE_MEAN}), {F({kT, 4, 8})}},
       {F({kT, 4, 1})},
       {{Attr(rl_reduce_attrs{0, 3}), "3 is not a value of rl_reduce"},
        {Operand(0, F({kT})), "expected rank 2 or more"}}},
      {{OpKind::kMeanRows, OpAttrs(rl_mean_rows_attrs{0, 9}), {F({Dim(0, 18, 0), 8})}},
       {F({Dim(0, 2, 0), 8})},
       {{Attr(rl_mean_rows_attrs{0, 4}), "the rows of f32[18T,8] do not divide into groups of 4"},
        {Attr(rl_mean_rows_attrs{0, 0}), "do not divide into groups of 0"},
        {Attr(rl_mean_rows_attrs{0, 65}), "group is 65, expected at most 64"},
        {Operand(0, I({Dim(0, 9, 0), 8})), "expected f32"}}},
      {{OpKind::kArgMax, OpAttrs(OpKind::kArgMax), {F({kT, 8})}},
       {I({kT})},
       {{Operand(0, I({kT, 8})), "expected f32"}, {Operand(0, F({kT, 2, 8})), "expected rank 2"}}},
      {{OpKind::kTopK, OpAttrs(rl_topk_attrs{0, 3}), {F({kT, 8})}},
       {F({kT, 3}), I({kT, 3})},
       {{Attr(rl_topk_attrs{0, 9}), "k = 9 is outside 1 to the 8 columns"},
        {Attr(rl_topk_attrs{0, 0}), "k = 0 is outside"},
        {Operand(0, F({kT})), "expected rank 2"}}},
      {{OpKind::kCumSum, OpAttrs(OpKind::kCumSum), {F({kT, 8})}},
       {F({kT, 8})},
       {{Operand(0, F({kT})), "expected rank 2 or more"},
        {Operand(0, I({kT, 8})), "expected f32"}}},
      {{OpKind::kEntropy, OpAttrs(OpKind::kEntropy), {F({kT, 8})}},
       {F({kT})},
       {{Operand(0, F({kT, 2, 8})), "expected rank 2"}, {Operand(0, I({kT, 8})), "expected f32"}}},
      {{OpKind::kSoftmax, OpAttrs(OpKind::kSoftmax), {F({kT, 2, 8})}},
       {F({kT, 2, 8})},
       {{Operand(0, F({kT})), "expected rank 2 or more"},
        {Operand(0, {DType::kF16, {kT, 8}}), "expected f32"}}},
  };
}

std::vector<OpCase> LinearCases() {
  const TensorType weight(DType::kQ4_K, {512, 256});
  return {
      {{OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {F({kT, 256}), weight}},
       {F({kT, 512})},
       {{Attr(rl_matmul_attrs{0, 2}), "transpose_weight is 2, expected 0 or 1"},
        {Attr(rl_matmul_attrs{0, 0}), "weight q4_k[512,256] does not fit 256 input columns"},
        {Operand(1, F({256})), "expected rank 2"},
        {Operand(1, {DType::kQ4_K, {512, 255}}), "not a constant multiple of its block length 256"},
        {Operand(0, {DType::kF16, {kT, 256}}), "operand x is f16[T,256], expected f32"}}},
      {{OpKind::kCausalConv1d, OpAttrs(OpKind::kCausalConv1d), {F({kT, 8}), F({8, 5})}},
       {F({kT, 8})},
       {{Operand(1, F({5, 8})), "weight f32[5,8] does not fit f32[T,8]"},
        {Operand(0, F({kT, 2, 8})), "expected rank 2"}}},
      {{OpKind::kGroupedMatMul,
        OpAttrs(OpKind::kGroupedMatMul),
        {F({kT, 256}), TensorType(DType::kQ4_K, {8, 512, 256}), I({kT, 2})}},
       {F({kT, 2, 512})},
       {{Operand(0, F({kT, 3, 256})), "does not fit experts i32[T,2]"},
        {Operand(0, F({kT, 128})), "does not fit 128 input columns"},
        {Operand(1, weight), "expected rank 3"},
        {Attr(rl_grouped_matmul_attrs{0, 2}), "as_stored is 2, expected 0 or 1"},
        {Attr(rl_grouped_matmul_attrs{0, 1}), "weight q4_k[8,512,256] does not fit 256 input"},
        {Operand(2, F({kT, 2})), "operand experts is f32[T,2], expected i32"}}},
      {{OpKind::kMoeFfn,
        OpAttrs(OpKind::kMoeFfn),
        {F({kT, 256}), F({kT, 2}), I({kT, 2}), TensorType(DType::kQ4_K, {8, 64, 256}), std::nullopt,
         TensorType(DType::kQ8_0, {8, 256, 32}), F({8})}},
       {F({kT, 256})},
       {{Operand(1, F({kT, 3})), "operand experts is i32[T,2], expected i32[T,3]"},
        {Operand(3, {DType::kQ4_K, {8, 63, 256}}), "expected gate and up alike"},
        {Operand(4, {DType::kQ4_K, {8, 32, 256}}), "gate_weight has 64 rows, up_weight 32"},
        {Operand(5, {DType::kQ8_0, {4, 256, 32}}), "weights of 8 and 4 experts"},
        {Operand(5, {DType::kQ8_0, {8, 128, 32}}), "gives 128 columns, x has 256"},
        {Operand(6, F({4})), "operand expert_scale is f32[4], expected f32[8]"}}},
      {{OpKind::kRmsNorm, OpAttrs(rl_rms_norm_attrs{0, 1e-6F}), {F({kT, 8}), std::nullopt}},
       {F({kT, 8})},
       {{Attr(rl_rms_norm_attrs{0, -1.0F}), "eps is -1, expected a finite number >= 0"},
        {Operand(1, F({4})), "operand weight is f32[4], expected f32[8]"},
        {Operand(0, F({kT})), "expected rank 2 or more"}}},
      {{OpKind::kGeGluLinear, OpAttrs(OpKind::kGeGluLinear), {F({kT, 256}), weight, weight}},
       {F({kT, 512})},
       {{Operand(2, {DType::kQ4_K, {256, 256}}), "gate_weight has 512 rows, up_weight 256"},
        {Operand(1, {DType::kQ4_K, {512, 512}}), "does not fit 256 input columns"},
        {Operand(0, F({kT, 2, 256})), "expected rank 2"}}},
      {{OpKind::kResidualNorm,
        OpAttrs(rl_residual_norm_attrs{0, 1e-6F}),
        {F({kT, 8}), F({kT, 8}), F({8}), F({1})}},
       {F({kT, 8})},
       {{Attr(rl_residual_norm_attrs{0, NAN}), "eps is nan"},
        {Operand(1, F({kT, 4})), "operand x is f32[T,4], expected f32[T,8]"},
        {Operand(3, F({8})), "operand scale is f32[8], expected f32[1]"}}},
      {{OpKind::kPleInject,
        OpAttrs(rl_ple_inject_attrs{0, 1e-6F}),
        {F({kT, 512}), F({kT, 256}), TensorType(DType::kF16, {256, 512}), weight, F({512}),
         std::nullopt}},
       {F({kT, 512})},
       {{Attr(rl_ple_inject_attrs{0, INFINITY}), "eps is inf"},
        {Operand(1, F({256, 256})), "operand ple is f32[256,256], expected f32[T,256]"},
        {Operand(2, {DType::kF16, {128, 512}}), "do not fit x f32[T,512] and ple f32[T,256]"},
        {Operand(3, {DType::kF16, {512, 512}}), "does not fit 256 input columns"},
        {Operand(4, F({256})), "operand norm_weight is f32[256], expected f32[512]"}}},
  };
}

}  // namespace

std::vector<OpCase> ArithmeticCases() {
  std::vector<OpCase> all;
  for (const auto& part : {PointwiseCases(), ReductionCases(), LinearCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace rullama::test
