#include "core/ir/op_cases_test_util.h"

namespace rullama::test {

std::vector<OpCase> StructureCases() {
  const Dim t = Dim::T();
  return {
      {{OpKind::kReshape, OpAttrs(rl_reshape_attrs{0, 3, 4, 8, 0}), {F({t, 32})}},
       {F({t, 4, 8})},
       {{Attr(rl_reshape_attrs{0, 3, 4, 7, 0}), "32 elements a row cannot become 28"},
        {Attr(rl_reshape_attrs{0, 5, 4, 8, 1}), "rank 5 is outside 1 to 4"},
        {Attr(rl_reshape_attrs{0, 3, -4, -8, 0}), "dimension 1 of size -4 is out of range"},
        {Attr(rl_reshape_attrs{0, 3, INT64_MAX, 8, 0}), "is out of range"},
        {Operand(0, {DType::kQ8_0, {t, 32}}), "expected an element type without blocks"},
        {Operand(0, F({t, t})), "inner dimensions of f32[T,T] are not constant"}}},
      {{OpKind::kSlice, OpAttrs(rl_slice_attrs{0, 1, 2, 3}), {F({t, 8})}},
       {F({t, 3})},
       {{Attr(rl_slice_attrs{0, 0, 2, 3}), "axis 0 is outside 1 to 1"},
        {Attr(rl_slice_attrs{0, 1, 6, 3}), "[6, +3) is outside axis 1"},
        {Attr(rl_slice_attrs{0, 1, INT64_MAX, 3}), "is outside axis 1"},
        {Attr(rl_slice_attrs{0, 1, 0, 0}), "[0, +0) is outside axis 1"},
        {Operand(0, F({t, t})), "is outside axis 1 of f32[T,T]"}}},
      {{OpKind::kConcat, OpAttrs(rl_concat_attrs{0, 1}), {F({t, 8}), F({t, 4})}},
       {F({t, 12})},
       {{Attr(rl_concat_attrs{0, 2}), "axis 2 is outside 1 to 1"},
        {Operand(1, I({t, 4})), "operand b is i32[T,4], expected f32[T,4]"},
        {Operand(1, F({4, 4})), "operand b is f32[4,4], expected f32[T,4]"}}},
      {{OpKind::kCast, OpAttrs(rl_cast_attrs{0, RL_DTYPE_F16}), {F({t, 8})}},
       {{DType::kF16, {t, 8}}},
       {{Attr(rl_cast_attrs{0, RL_DTYPE_Q4_K}), "cannot cast f32[T,8] to q4_k"},
        {Attr(rl_cast_attrs{0, RL_DTYPE_Q8_0}),
         "the last dimension of q8_0[T,8] is not a constant multiple of its block length 32"},
        {Attr(rl_cast_attrs{0, 99}), "to an unknown type"},
        {Operand(0, {DType::kI8, {t, 8}}), "cannot cast i8[T,8] to f16"}}},
      {{OpKind::kCopy, OpAttrs(OpKind::kCopy), {I({t})}},
       {I({t})},
       {{Operand(0, {DType::kQ4_K, {t, 256}}), "expected an element type without blocks"},
        {Operand(0, {DType::kI32, {t, 1, 1, 1, 1}}), "operand x: rank 5 is outside 1 to 4"},
        {[](OpUse& use) { use.operands = {}; }, "found 0 operands, expected 1"}}},
      {{OpKind::kFoldRows, OpAttrs(rl_fold_rows_attrs{0, 3}), {I({Dim(6, 3, 0), 2, 4})}},
       {I({Dim(2, 1, 0), 24})},
       {{Attr(rl_fold_rows_attrs{0, 2}),
         "the rows of i32[3T+6,2,4] do not divide into groups of 2"},
        {Attr(rl_fold_rows_attrs{0, -3}), "do not divide into groups of -3"},
        {Operand(0, F({Dim(0, 3, 0), t})), "inner dimensions of f32[3T,T] are not constant"},
        {Operand(0, {DType::kQ8_0, {Dim(0, 3, 0), 32}}), "element type without blocks"}}},
      {{OpKind::kIm2Col, OpAttrs(rl_im2col_attrs{0, 3, 2}), {F({Dim(0, 4, 0), 6, 5})}},
       {F({Dim(0, 6, 0), 45})},
       {{Attr(rl_im2col_attrs{0, 2, 2}), "kernel is 2, expected an odd number up to 31"},
        {Attr(rl_im2col_attrs{0, 3, 3}), "the rows of f32[4T,6,5] do not divide into groups of 3"},
        {Attr(rl_im2col_attrs{0, 3, 4}),
         "the columns of f32[4T,6,5] are not a multiple of the stride"},
        {Operand(0, F({Dim(0, 4, 0), 6})), "expected rank 3"}}},
      {{OpKind::kGatherRows,
        OpAttrs(rl_gather_rows_attrs{0, 256, 512}),
        {TensorType(DType::kQ6_K, {100, 1024}), I({t})}},
       {F({t, 512})},
       {{Attr(rl_gather_rows_attrs{0, 128, 512}), "not a multiple of 256"},
        {Attr(rl_gather_rows_attrs{0, 768, 512}), "columns [768, +512)"},
        {Attr(rl_gather_rows_attrs{0, -256, 512}), "columns [-256, +512)"},
        {Operand(0, F({100, 4, 4})), "columns of f32[100,4,4] cannot be chosen"},
        {Operand(1, F({t})), "operand ids is f32[T], expected i32"},
        {Operand(1, I({t, 1})), "expected rank 1"}}},
      {{OpKind::kGatherLast, OpAttrs(OpKind::kGatherLast), {I({t, 8}), I({t})}},
       {I({t})},
       {{Operand(0, {DType::kF16, {t, 8}}), "expected f32 or i32"},
        {Operand(0, F({t, 8, 2})), "expected rank 2"},
        {Operand(1, I({8})), "operand index is i32[8], expected i32[T]"}}},
      {{OpKind::kStateAppend,
        OpAttrs(OpKind::kStateAppend),
        {TensorType(DType::kF16, {2, 16, 1, 8}), TensorType(DType::kF16, {t, 1, 8}), I({t}),
         I({t})}},
       {{DType::kF16, {2, 16, 1, 8}}},
       {{Operand(1, F({t, 1, 8})), "operand rows is f32[T,1,8], expected f16[T,1,8]"},
        {Operand(0, {DType::kQ4_K, {2, 16, 1, 256}}), "neither of a plain dtype nor q8_0 or q4_0"},
        {Operand(1, {DType::kF16, {t, 8}}), "do not fit state f16[2,16,1,8]"},
        {Operand(2, I({4})), "operand pos is i32[4], expected i32[T]"},
        {Operand(3, F({t})), "operand slot is f32[T], expected i32[T]"}}},
  };
}

const std::vector<OpCase>& OpCases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    for (const auto& part : {StructureCases(), ArithmeticCases(), AttentionCases(), SamplingCases(),
                             TrainingCases(), OptimizerCases()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return cases;
}

}  // namespace rullama::test
