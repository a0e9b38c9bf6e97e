#include <cmath>

#include "core/ir/op_cases_test_util.h"

namespace rullama::test {
namespace {

const Dim kR = Dim::R();

std::vector<OpCase> LossCases() {
  const TensorType weight(DType::kQ4_K, {512, 256});
  return {
      {{OpKind::kCrossEntropy, OpAttrs(OpKind::kCrossEntropy), {F({kR, 8}), I({kR})}},
       {F({kR})},
       {{Operand(0, F({kR, 2, 8})), "operand logits is f32[R,2,8], expected rank 2"},
        {Operand(0, {DType::kF16, {kR, 8}}), "operand logits is f16[R,8], expected f32"},
        {Operand(0, F({kR, (1 << 24) + 1})), "16777217 columns of logits, expected a constant"},
        {Operand(1, F({kR})), "operand targets is f32[R], expected i32[R]"},
        {Operand(1, I({kT})), "operand targets is i32[T], expected i32[R]"}}},
      {{OpKind::kCrossEntropyGrad,
        OpAttrs(OpKind::kCrossEntropyGrad),
        {F({kR, 8}), I({kR}), F({1})}},
       {F({kR, 8})},
       {{Operand(0, F({kR, kT})), "T columns of logits, expected a constant"},
        {Operand(1, I({kR, 1})), "operand targets is i32[R,1], expected i32[R]"},
        {Operand(2, F({kR})), "operand factor is f32[R], expected f32[1]"}}},
      {{OpKind::kLinearCrossEntropy,
        OpAttrs(rl_linear_cross_entropy_attrs{0, 30.0F}),
        {F({kR, 256}), weight, I({kR}), F({1})}},
       {F({kR}), F({kR, 256})},
       {{Attr(rl_linear_cross_entropy_attrs{0, -1.0F}), "cap is -1, expected a finite number >= 0"},
        {Attr(rl_linear_cross_entropy_attrs{0, NAN}), "cap is nan"},
        {Operand(0, F({kR, 128})), "does not fit 128 input columns"},
        {Operand(1, {DType::kF16, {(1 << 24) + 1, 256}}), "weight has 16777217 rows, expected at"},
        {Operand(2, I({8})), "operand targets is i32[8], expected i32[R]"},
        {Operand(3, F({2})), "operand factor is f32[2], expected f32[1]"}}},
  };
}

std::vector<OpCase> DerivativeCases() {
  return {
      {{OpKind::kSoftmaxGrad, OpAttrs(OpKind::kSoftmaxGrad), {F({kT, 2, 8}), F({kT, 2, 8})}},
       {F({kT, 2, 8})},
       {{Operand(0, I({kT, 2, 8})), "operand dy is f32[T,2,8], expected i32[T,2,8]"},
        {Operand(1, F({kT, 8})), "operand dy is f32[T,8], expected f32[T,2,8]"},
        {[](OpUse& use) {
           use.operands = {F({kT}), F({kT})};
         },
         "operand y is f32[T], expected rank 2 or more"}}},
      {{OpKind::kRmsNormGrad,
        OpAttrs(rl_rms_norm_grad_attrs{0, 1e-6F}),
        {F({kT, 8}), F({kT, 8}), F({8})}},
       {F({kT, 8})},
       {{Attr(rl_rms_norm_grad_attrs{0, -1.0F}), "eps is -1, expected a finite number >= 0"},
        {Operand(1, F({kR, 8})), "operand dy is f32[R,8], expected f32[T,8]"},
        {Operand(2, F({4})), "operand weight is f32[4], expected f32[8]"}}},
      {{OpKind::kGeGluGrad, OpAttrs(OpKind::kGeGluGrad), {F({kT, 8}), F({kT, 8}), F({kT, 8})}},
       {F({kT, 8}), F({kT, 8})},
       {{Operand(0, {DType::kF16, {kT, 8}}), "operand gate is f16[T,8], expected f32"},
        {Operand(1, F({kT, 4})), "operand up is f32[T,4], expected f32[T,8]"},
        {Operand(2, F({kR, 8})), "operand dy is f32[R,8], expected f32[T,8]"}}},
  };
}

std::vector<OpCase> ScatterCases() {
  return {
      {{OpKind::kScatterRows, OpAttrs(OpKind::kScatterRows), {F({kR, 4, 8}), I({kR})}},
       {F({kT, 4, 8})},
       {{Operand(0, {DType::kF16, {kR, 4, 8}}), "operand x is f16[R,4,8], expected f32"},
        {Operand(1, I({kT})), "operand rows is i32[T], expected i32[R]"}}},
      {{OpKind::kScatterLast, OpAttrs(rl_scatter_last_attrs{0, 128}), {F({kT, 8}), I({kT, 8})}},
       {F({kT, 128})},
       {{Attr(rl_scatter_last_attrs{0, 0}), "n is 0, expected 1 to"},
        {Attr(rl_scatter_last_attrs{0, INT64_MAX}), "expected 1 to"},
        {Operand(0, F({kT, 2, 8})), "operand x is f32[T,2,8], expected rank 1 or 2"},
        {Operand(1, I({kT})), "operand index is i32[T], expected i32[T,8]"}}},
      {{OpKind::kPad, OpAttrs(rl_pad_attrs{0, 1, 2, 3}), {I({kT, 4, 8})}},
       {I({kT, 9, 8})},
       {{Attr(rl_pad_attrs{0, 0, 2, 3}), "axis 0 is outside 1 to 2"},
        {Attr(rl_pad_attrs{0, 1, -1, 3}), "-1 zeros before and 3 after axis 1 of i32[T,4,8]"},
        {Attr(rl_pad_attrs{0, 2, 0, INT64_MAX}), "after axis 2 of i32[T,4,8] are out of range"},
        {Operand(0, F({kT, kT, 8})), "after axis 1 of f32[T,T,8] are out of range"},
        {Operand(0, {DType::kQ8_0, {kT, 4, 32}}), "expected an element type without blocks"}}},
      {{OpKind::kSumSquares, OpAttrs(OpKind::kSumSquares), {F({16, 256})}},
       {F({1})},
       {{Operand(0, I({16, 256})), "operand x is i32[16,256], expected f32"},
        {[](OpUse& use) { use.operands.emplace_back(F({1})); }, "found 2 operands, expected 1"}}},
  };
}

}  // namespace

std::vector<OpCase> TrainingCases() {
  std::vector<OpCase> all;
  for (const auto& part : {LossCases(), DerivativeCases(), ScatterCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace rullama::test
