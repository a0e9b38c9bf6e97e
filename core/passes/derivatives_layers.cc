// Derivatives of products, norms, the gated activation, rotation and attention.
#include <fmt/format.h>

#include "core/passes/derivatives.h"

namespace rullama::derivatives {

void MatMul(Site& s, const ops::MatMul& op) {
  using In = operands::MatMul;
  const bool transposed = op.transpose_weight != 0;
  if (s.Wants(In::x)) {
    s.Give(In::x,
           s.b.Add(ops::MatMul{.x = s.dy(), .weight = op.weight, .transpose_weight = !transposed},
                   s.Part("x")));
  }
  if (!s.Wants(In::weight)) return;
  if (transposed) {
    s.GiveProduct(In::weight, s.dy(), op.x);
  } else {
    s.GiveProduct(In::weight, op.x, s.dy());
  }
}

// An x without a dimension of experts is read by all experts of the row, whose gradients add up.
void GroupedMatMul(Site& s, const ops::GroupedMatMul& op) {
  using In = operands::GroupedMatMul;
  if (!s.Wants(In::x)) return;
  const bool shared = s.type(op.x).rank == 2;
  const int64_t width = s.type(op.x).last().constant;
  const ValueId dx = s.b.Add(
      ops::GroupedMatMul{
          .x = s.dy(), .weight = op.weight, .experts = op.experts, .as_stored = op.as_stored == 0},
      s.Part(shared ? "each" : "x"));
  if (!shared) return s.Give(In::x, dx);
  ValueId sum = kNoValue;
  const int64_t k = s.type(op.experts).last().constant;
  for (int64_t j = 0; j < k; ++j) {
    const auto part = [&](const char* name) { return s.Part("x") + fmt::format(".{}{}", name, j); };
    const ValueId slice =
        s.b.Add(ops::Slice{.x = dx, .axis = 1, .start = j, .size = 1}, part("slice"));
    const ValueId term = s.b.Add(ops::ReshapeTo(slice, {width}), part("term"));
    sum = j == 0 ? term : s.b.Add(ops::Sum(sum, term), part("sum"));
  }
  s.Give(In::x, sum);
}

void RmsNorm(Site& s, const ops::RmsNorm& op) {
  using In = operands::RmsNorm;
  if (!s.Wants(In::x)) return;
  s.Give(In::x,
         s.b.Add(ops::RmsNormGrad{.x = op.x, .dy = s.dy(), .weight = op.weight, .eps = op.eps},
                 s.Part("x")));
}

void ResidualNorm(Site& s, const ops::ResidualNorm& op) {
  using In = operands::ResidualNorm;
  const ValueId dsum = op.scale == kNoValue ? s.dy()
                                            : s.b.Add(ops::Scale{.x = s.dy(), .weight = op.scale},
                                                      s.Part("residual"));
  if (s.Wants(In::residual)) s.Give(In::residual, dsum);
  if (!s.Wants(In::x)) return;
  s.Give(In::x, s.b.Add(ops::RmsNormGrad{.x = op.x, .dy = dsum, .weight = op.weight, .eps = op.eps},
                        s.Part("x")));
}

void GeGlu(Site& s, const ops::GeGlu& op) {
  using In = operands::GeGlu;
  const auto [dgate, dup] =
      s.b.Add(ops::GeGluGrad{.gate = op.gate, .up = op.up, .dy = s.dy()}, s.Part("operands"));
  if (s.Wants(In::gate)) s.Give(In::gate, dgate);
  if (s.Wants(In::up)) s.Give(In::up, dup);
}

void Rope(Site& s, const ops::Rope& op) {
  ops::Rope back = op;
  back.x = s.dy();
  back.inverse = op.inverse == 0 ? 1 : 0;
  s.Give(operands::Rope::x, s.b.Add(back, s.Part("x")));
}

// Only of attention without old rows: those of a cache have no gradient to give. The ops of the
// derivative know no q_end.
void Attention(Site& s, const ops::Attention& op) {
  using In = operands::Attention;
  if (op.k_state != kNoValue || op.q_end != kNoValue) return;
  const auto with_rows = [&](auto grad) {
    grad.q = op.q;
    grad.k_new = op.k_new;
    grad.q_pos = op.q_pos;
    grad.q_slot = op.q_slot;
    grad.kv_pos = op.kv_pos;
    grad.kv_slot = op.kv_slot;
    grad.mask = op.mask;
    grad.window = op.window;
    grad.scale = op.scale;
    return grad;
  };
  const ValueId lse = s.b.Add(with_rows(ops::AttentionStats{}), s.Part("lse"));
  const auto with_result = [&](auto grad) {
    grad.v_new = op.v_new;
    grad.y = s.results[0];
    grad.lse = lse;
    grad.dy = s.dy();
    return with_rows(grad);
  };
  if (s.Wants(In::q)) s.Give(In::q, s.b.Add(with_result(ops::AttentionGradQ{}), s.Part("q")));
  if (!s.Wants(In::k_new) && !s.Wants(In::v_new)) return;
  const auto [dk, dv] = s.b.Add(with_result(ops::AttentionGradKv{}), s.Part("kv"));
  if (s.Wants(In::k_new)) s.Give(In::k_new, dk);
  if (s.Wants(In::v_new)) s.Give(In::v_new, dv);
}

}  // namespace rullama::derivatives
