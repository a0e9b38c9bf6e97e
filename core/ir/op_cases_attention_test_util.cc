#include <cmath>

#include "core/ir/op_cases_test_util.h"

namespace rullama::test {

std::vector<OpCase> AttentionCases() {
  const Dim t = Dim::T();
  const Dim r = Dim::R();
  const TensorType fresh(DType::kF16, {t, 2, 8});
  const TensorType state(DType::kF16, {3, 16, 2, 8});
  return {
      {{OpKind::kRope, OpAttrs(rl_rope_attrs{0, 10000.0F, 8, 0}), {F({t, 4, 16}), I({t}), F({4})}},
       {F({t, 4, 16})},
       {{Attr(rl_rope_attrs{0, 10000.0F, 7, 0}), "n_rot = 7 is not an even number of 2 to 16"},
        {Attr(rl_rope_attrs{0, 10000.0F, 18, 0}), "n_rot = 18"},
        {Attr(rl_rope_attrs{0, 0.0F, 8, 0}), "theta = 0, expected > 0"},
        {Attr(rl_rope_attrs{0, 10000.0F, 8, 2}), "inverse is 2, expected 0 or 1"},
        {Operand(1, I({4})), "operand pos is i32[4], expected i32[T]"},
        {Operand(2, F({8})), "operand freq_factors is f32[8], expected f32[4]"}}},
      {{OpKind::kAttention,
        OpAttrs(rl_attention_attrs{0, RL_MASK_CAUSAL, 8, 1.0F}),
        {F({r, 4, 8}), fresh, fresh, state, state, I({r}), I({r}), I({t}), I({t}), I({3})}},
       {F({r, 4, 8})},
       {{Attr(rl_attention_attrs{0, 7, 8, 1.0F}), "7 is no rl_mask"},
        {Attr(rl_attention_attrs{0, 0, -1, 1.0F}), "window is -1, expected >= 0"},
        {Operand(0, F({r, 3, 8})), "queries f32[R,3,8] do not fit keys f16[T,2,8]"},
        {Operand(0, F({r, 4, 16})), "do not fit keys"},
        {Operand(2, {DType::kF16, {t, 1, 8}}), "operand v_state is f16[3,16,2,8]"},
        {Operand(3, F({3, 16, 2, 8})), "operand k_state is f32[3,16,2,8], expected f16[3,16,2,8]"},
        {Operand(5, I({t})), "operand q_pos is i32[T], expected i32[R]"},
        {Operand(7, I({r})), "operand kv_pos is i32[R], expected i32[T]"},
        {Operand(9, I({2})), "operand past is i32[2], expected i32[3]"},
        {Absent(9), "2 of k_state, v_state and past are present, expected all or none"}},
       [](OpUse& use) { use.operands[3] = use.operands[4] = use.operands[9] = std::nullopt; }},
      {{OpKind::kAttentionScores,
        OpAttrs(rl_attention_scores_attrs{0, RL_MASK_CANVAS, 0, 0.5F}),
        {F({r, 4, 8}), fresh, state, I({r}), I({r}), I({t}), I({t}), I({3})}},
       {F({r, 4, Dim(16, 1, 0)})},
       {{Attr(rl_attention_scores_attrs{0, 0, 0, INFINITY}), "scale is not finite"},
        {Operand(1, I({t, 2, 8})), "i32[T,2,8] is not a float type"},
        {Operand(2, {DType::kF16, {3, 16, 2}}), "expected rank 4"},
        {Operand(6, I({r})), "operand kv_slot is i32[R], expected i32[T]"},
        {Absent(2), "1 of k_state and past are present, expected all or none"}},
       [](OpUse& use) { use.operands[2] = use.operands[7] = std::nullopt; }},
      {{OpKind::kAttentionMix,
        OpAttrs(OpKind::kAttentionMix),
        {F({r, 4, Dim(16, 1, 0)}), fresh, state, I({r})}},
       {F({r, 4, 8})},
       {{Operand(0, F({r, 4, 16})), "operand probability is f32[R,4,16], expected f32[R,4,T+16]"},
        {Operand(0, F({r, 3, Dim(16, 1, 0)})), "3 heads do not share 2 value heads"},
        {Absent(2), "operand probability is f32[R,4,T+16], expected f32[R,4,T]"},
        {Operand(3, I({t})), "operand q_slot is i32[T], expected i32[R]"}},
       [](OpUse& use) {
         use.operands[0] = F({Dim::R(), 4, Dim::T()});
         use.operands[2] = std::nullopt;
       }},
      {{OpKind::kAttentionStats,
        OpAttrs(rl_attention_stats_attrs{0, RL_MASK_CAUSAL, 8, 1.0F}),
        {F({r, 4, 8}), fresh, I({r}), I({r}), I({t}), I({t})}},
       {F({r, 4})},
       {{Attr(rl_attention_stats_attrs{0, 7, 8, 1.0F}), "7 is no rl_mask"},
        {Operand(0, F({r, 3, 8})), "queries f32[R,3,8] do not fit keys f16[T,2,8]"},
        {Operand(1, I({t, 2, 8})), "i32[T,2,8] is not a float type"},
        {Operand(4, I({r})), "operand kv_pos is i32[R], expected i32[T]"}}},
      {{OpKind::kAttentionGradQ,
        OpAttrs(rl_attention_grad_q_attrs{0, RL_MASK_CAUSAL, 8, 1.0F}),
        {F({r, 4, 8}), fresh, fresh, F({r, 4, 8}), F({r, 4}), F({r, 4, 8}), I({r}), I({r}), I({t}),
         I({t})}},
       {F({r, 4, 8})},
       {{Attr(rl_attention_grad_q_attrs{0, 0, -1, 1.0F}), "window is -1, expected >= 0"},
        {Operand(2, {DType::kF16, {t, 1, 8}}), "operand v_new is f16[T,1,8]"},
        {Operand(3, F({t, 4, 8})), "operand y is f32[T,4,8], expected f32[R,4,8]"},
        {Operand(4, F({r, 2})), "operand lse is f32[R,2], expected f32[R,4]"},
        {Operand(5, F({r, 4})), "operand dy is f32[R,4], expected f32[R,4,8]"},
        {Operand(7, I({t})), "operand q_slot is i32[T], expected i32[R]"}}},
      {{OpKind::kAttentionGradKv,
        OpAttrs(rl_attention_grad_kv_attrs{0, RL_MASK_CAUSAL, 0, 1.0F}),
        {F({r, 4, 8}), fresh, fresh, F({r, 4, 8}), F({r, 4}), F({r, 4, 8}), I({r}), I({r}), I({t}),
         I({t})}},
       {F({t, 2, 8}), F({t, 2, 8})},
       {{Attr(rl_attention_grad_kv_attrs{0, 0, 0, INFINITY}), "scale is not finite"},
        {Operand(4, F({t, 4})), "operand lse is f32[T,4], expected f32[R,4]"},
        {Operand(9, I({r})), "operand kv_slot is i32[R], expected i32[T]"}}},
      {{OpKind::kAttentionMixRows,
        OpAttrs(rl_attention_mix_rows_attrs{0, 2}),
        {F({r, 4, t}), F({r, 4, 8})}},
       {F({t, 2, 8})},
       {{Attr(rl_attention_mix_rows_attrs{0, 3}), "4 heads do not share 3 kv heads"},
        {Attr(rl_attention_mix_rows_attrs{0, 0}), "4 heads do not share 0 kv heads"},
        {Operand(0, F({r, t})), "expected rank 3"},
        {Operand(1, F({t, 4, 8})), "operand x is f32[T,4,8], expected f32[R,4,8]"}}},
  };
}

}  // namespace rullama::test
