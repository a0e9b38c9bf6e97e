// Derivatives of attention over fresh rows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/reference/attention_rows.h"
#include "core/reference/dot_lanes.h"
#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

template <typename In, typename Attrs>
Visibility VisibilityOf(const Call& call) {
  const auto& a = call.As<Attrs>();
  return {call.in(In::q_pos),
          call.in(In::q_slot),
          call.in(In::kv_pos),
          call.in(In::kv_slot),
          nullptr,
          static_cast<rl_mask>(a.mask),
          a.window};
}

// A query head of a row and the keys that it sees.
struct Query {
  int64_t row;
  int64_t head;
  int64_t kv_head;
  const std::vector<int64_t>& keys;   // ascending
  const std::vector<double>& scores;  // of each key
};

// Calls use(Query) for each query head, in the order of rows and heads.
template <typename In, typename Attrs, typename Use>
Status ForEachQuery(const Call& call, Use&& use) {
  const Tensor& q = call.in(In::q);
  const Tensor& k = call.in(In::k_new);
  const Visibility visibility = VisibilityOf<In, Attrs>(call);
  const double scale = call.As<Attrs>().scale;
  const int64_t heads = q.dims[1];
  const int64_t group = heads / k.dims[1];
  for (int64_t row = 0; row < q.rows(); ++row) {
    RL_ASSIGN_OR_RETURN(const std::vector<int64_t> keys,
                        visibility.Columns(call, row, /*capacity=*/0, kMaxRows));
    std::vector<double> scores(keys.size());
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv_head = head / group;
      std::ranges::transform(keys, scores.begin(), [&](int64_t key) {
        return Dot(HeadOf(q, row, head), HeadOf(k, key, kv_head)) * scale;
      });
      use(Query{row, head, kv_head, keys, scores});
    }
  }
  return OkStatus();
}

// A query head of a row, a key that it sees, and their share of the derivative.
struct Pair {
  int64_t row;
  int64_t head;
  int64_t key;
  int64_t kv_head;
  double probability;
  double score_gradient;  // of q . k
};

// Calls use(Pair) for each query and each key that it sees, in the order of rows, heads and keys.
template <typename In, typename Attrs, typename Use>
Status ForEachPair(const Call& call, Use&& use) {
  const double scale = call.As<Attrs>().scale;
  const int64_t heads = call.in(In::q).dims[1];
  return ForEachQuery<In, Attrs>(call, [&](const Query& query) {
    const auto dy = HeadOf(call.in(In::dy), query.row, query.head);
    const double mean = Dot(dy, HeadOf(call.in(In::y), query.row, query.head));
    const double lse = call.in(In::lse).f[static_cast<size_t>(query.row * heads + query.head)];
    for (size_t i = 0; i < query.keys.size(); ++i) {
      const int64_t key = query.keys[i];
      const double p = std::exp(query.scores[i] - lse);
      const double difference = Dot(dy, HeadOf(call.in(In::v_new), key, query.kv_head)) - mean;
      use(Pair{query.row, query.head, key, query.kv_head, p, scale * p * difference});
    }
  });
}

}  // namespace

Status EvalAttentionStats(const Call& call) {
  using In = operands::AttentionStats;
  const int64_t heads = call.in(In::q).dims[1];
  return ForEachQuery<In, rl_attention_stats_attrs>(call, [&](const Query& query) {
    if (query.keys.empty()) return;
    const double largest = std::ranges::max(query.scores);
    double sum = 0;
    for (const double score : query.scores) sum += std::exp(score - largest);
    call.y().f[static_cast<size_t>(query.row * heads + query.head)] = largest + std::log(sum);
  });
}

Status EvalAttentionGradQ(const Call& call) {
  using In = operands::AttentionGradQ;
  const int64_t heads = call.in(In::q).dims[1];
  return ForEachPair<In, rl_attention_grad_q_attrs>(call, [&](const Pair& pair) {
    AddScaled(pair.score_gradient, HeadOf(call.in(In::k_new), pair.key, pair.kv_head),
              Row(call.y(), pair.row * heads + pair.head));
  });
}

Status EvalAttentionGradKv(const Call& call) {
  using In = operands::AttentionGradKv;
  Tensor& dk = call.out[0];
  Tensor& dv = call.out[1];
  return ForEachPair<In, rl_attention_grad_kv_attrs>(call, [&](const Pair& pair) {
    const int64_t at = pair.key * dk.dims[1] + pair.kv_head;
    AddScaled(pair.score_gradient, HeadOf(call.in(In::q), pair.row, pair.head), Row(dk, at));
    AddScaled(pair.probability, HeadOf(call.in(In::dy), pair.row, pair.head), Row(dv, at));
  });
}

Status EvalAttentionMixRows(const Call& call) {
  using In = operands::AttentionMixRows;
  const Tensor& probability = call.in(In::probability);
  const int64_t heads = probability.dims[1];
  const int64_t kv_heads = call.y().dims[1];
  for (int64_t row = 0; row < probability.rows(); ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const auto p = HeadOf(probability, row, head);
      for (size_t key = 0; key < p.size(); ++key) {
        if (p[key] == 0) continue;
        AddScaled(p[key], HeadOf(call.in(In::x), row, head),
                  Row(call.y(), static_cast<int64_t>(key) * kv_heads + head / (heads / kv_heads)));
      }
    }
  }
  return OkStatus();
}

}  // namespace rullama::reference
