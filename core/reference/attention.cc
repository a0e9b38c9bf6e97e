// Rotary embedding, fused attention and the two parts of decomposed attention, local attention.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/reference/attention_rows.h"
#include "core/reference/dot_lanes.h"
#include "core/reference/kernels.h"

namespace rullama::reference {

Status EvalRope(const Call& call) {
  using In = operands::Rope;
  const auto& a = call.As<rl_rope_attrs>();
  const Tensor& x = call.in(In::x);
  const auto half = static_cast<size_t>(a.n_rot / 2);
  for (int64_t r = 0; r < RowCount(x); ++r) {
    const auto in = Row(x, r);
    const auto out = Row(call.y(), r);
    std::copy(in.begin(), in.end(), out.begin());
    const auto pos = static_cast<double>(call.in(In::pos).i[static_cast<size_t>(r / x.dims[1])]);
    for (size_t i = 0; i < half; ++i) {
      const size_t low = static_cast<size_t>(a.first) + i, high = low + half;
      const double exponent = -2.0 * static_cast<double>(i) / a.n_rot;
      const double factor = call.has(In::freq_factors) ? call.in(In::freq_factors).f[i] : 1.0;
      const double turn = pos * std::pow(double{a.theta}, exponent) / factor;
      const double angle = a.inverse != 0 ? -turn : turn;
      out[low] = in[low] * std::cos(angle) - in[high] * std::sin(angle);
      out[high] = in[low] * std::sin(angle) + in[high] * std::cos(angle);
    }
  }
  return OkStatus();
}

Status EvalRotate(const Call& call) {
  using In = operands::Rotate;
  const Tensor& x = call.in(In::x);
  const auto n = static_cast<size_t>(x.last());
  const double factor = 1 / std::sqrt(static_cast<double>(n));
  for (int64_t r = 0; r < RowCount(x); ++r) {
    const auto in = Row(x, r);
    const auto out = Row(call.y(), r);
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = 0; j < n; ++j) sum += std::popcount(i & j) % 2 == 0 ? in[j] : -in[j];
      out[i] = sum * factor;
    }
  }
  return OkStatus();
}

Status EvalAttention(const Call& call) {
  using In = operands::Attention;
  const auto& a = call.As<rl_attention_attrs>();
  const Tensor& q = call.in(In::q);
  KeyRows keys(call.find(In::k_state), call.in(In::k_new));
  KeyRows values(call.find(In::v_state), call.in(In::v_new));
  const Visibility visibility{call.in(In::q_pos),
                              call.in(In::q_slot),
                              call.in(In::kv_pos),
                              call.in(In::kv_slot),
                              call.find(In::past),
                              static_cast<rl_mask>(a.mask),
                              a.window,
                              call.find(In::q_end)};
  const int64_t group = q.dims[1] / keys.kv_heads();
  for (int64_t row = 0; row < q.rows(); ++row) {
    RL_ASSIGN_OR_RETURN(const std::vector<int64_t> columns,
                        visibility.Columns(call, row, keys.capacity(), keys.slots()));
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    std::vector<double> scores(columns.size());
    std::vector<double> probability(columns.size());
    for (int64_t head = 0; head < q.dims[1]; ++head) {
      for (size_t j = 0; j < columns.size(); ++j) {
        RL_ASSIGN_OR_RETURN(const auto key, keys.At(slot, columns[j], head / group));
        scores[j] = Dot(HeadOf(q, row, head), key) * double{a.scale};
      }
      SoftmaxRow(scores, probability);
      const auto y = Row(call.y(), row * q.dims[1] + head);
      for (size_t j = 0; j < columns.size(); ++j) {
        if (probability[j] == 0) continue;
        RL_ASSIGN_OR_RETURN(const auto value, values.At(slot, columns[j], head / group));
        for (size_t d = 0; d < y.size(); ++d) y[d] += probability[j] * value[d];
      }
    }
  }
  return OkStatus();
}

Status EvalAttentionScores(const Call& call) {
  using In = operands::AttentionScores;
  const auto& a = call.As<rl_attention_scores_attrs>();
  const Tensor& q = call.in(In::q);
  KeyRows keys(call.find(In::k_state), call.in(In::k_new));
  const Visibility visibility{call.in(In::q_pos),
                              call.in(In::q_slot),
                              call.in(In::kv_pos),
                              call.in(In::kv_slot),
                              call.find(In::past),
                              static_cast<rl_mask>(a.mask),
                              a.window,
                              call.find(In::q_end)};
  const int64_t group = q.dims[1] / keys.kv_heads();
  std::fill(call.y().f.begin(), call.y().f.end(), -kInfinity);
  for (int64_t row = 0; row < q.rows(); ++row) {
    RL_ASSIGN_OR_RETURN(const std::vector<int64_t> columns,
                        visibility.Columns(call, row, keys.capacity(), keys.slots()));
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    for (int64_t head = 0; head < q.dims[1]; ++head) {
      const auto y = Row(call.y(), row * q.dims[1] + head);
      for (const int64_t column : columns) {
        RL_ASSIGN_OR_RETURN(const auto key, keys.At(slot, column, head / group));
        y[static_cast<size_t>(column)] = Dot(HeadOf(q, row, head), key) * double{a.scale};
      }
    }
  }
  return OkStatus();
}

Status EvalAttentionMix(const Call& call) {
  using In = operands::AttentionMix;
  const Tensor& probability = call.in(In::probability);
  KeyRows values(call.find(In::v_state), call.in(In::v_new));
  const int64_t heads = probability.dims[1];
  const int64_t group = heads / values.kv_heads();
  for (int64_t row = 0; row < probability.rows(); ++row) {
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    if (slot < 0 || slot >= values.slots()) {
      return IndexError(call, "row {} has slot {}, the state {} slots", row, slot, values.slots());
    }
    for (int64_t head = 0; head < heads; ++head) {
      const auto p = HeadOf(probability, row, head);
      const auto y = Row(call.y(), row * heads + head);
      for (int64_t column = 0; column < values.columns(); ++column) {
        const double factor = p[static_cast<size_t>(column)];
        if (factor == 0) continue;
        RL_ASSIGN_OR_RETURN(const auto value, values.At(slot, column, head / group));
        AddScaled(factor, value, y);
      }
    }
  }
  return OkStatus();
}

Status EvalLocalAttention(const Call& call) {
  using In = operands::LocalAttention;
  const double cap = call.As<rl_local_attention_attrs>().cap;
  const Tensor& q = call.in(In::q);
  const int64_t window = call.in(In::rel).rows();
  for (int64_t row = 0; row < q.rows(); ++row) {
    const int64_t first = std::max<int64_t>(0, row - window + 1);
    std::vector<double> scores(static_cast<size_t>(row - first + 1));
    std::vector<double> probability(scores.size());
    for (int64_t head = 0; head < q.dims[1]; ++head) {
      const auto query = HeadOf(q, row, head);
      for (size_t j = 0; j < scores.size(); ++j) {
        const int64_t key = first + static_cast<int64_t>(j);
        const double score = Dot(query, HeadOf(call.in(In::k), key, head)) +
                             Dot(query, HeadOf(call.in(In::rel), row - key, head));
        scores[j] = cap > 0 ? cap * std::tanh(score / cap) : score;
      }
      SoftmaxRow(scores, probability);
      const auto y = Row(call.y(), row * q.dims[1] + head);
      for (size_t j = 0; j < scores.size(); ++j) {
        const auto value = HeadOf(call.in(In::v), first + static_cast<int64_t>(j), head);
        for (size_t d = 0; d < y.size(); ++d) y[d] += probability[j] * value[d];
      }
    }
  }
  return OkStatus();
}

}  // namespace rullama::reference
