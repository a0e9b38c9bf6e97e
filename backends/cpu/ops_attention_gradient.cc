// The derivatives of attention over fresh rows, in tiles of query rows and keys that hold their
// scores in registers and L1. Tiles in which no query sees a key are left out, so that the cost of
// a window grows with the rows, not with their square. Every sum has an order that depends on
// shapes alone: an item adds the keys, or the queries, in their order.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

constexpr int64_t kTile = 32;  // query rows, and keys

// Numbers for each query row (of one head) and each key of a tile.
using Tile = std::array<float, kTile * kTile>;

struct Span {
  int64_t first;
  int64_t count;
};

Span TileOf(int64_t tile, int64_t rows) {
  return {tile * kTile, std::min(kTile, rows - tile * kTile)};
}
int64_t TilesOf(int64_t rows) { return (rows + kTile - 1) / kTile; }

// Which key a query of a tile sees, as 1 or 0.
struct VisibleTile {
  std::array<uint8_t, kTile * kTile> sees;
  bool any = false;

  [[nodiscard]] bool At(int64_t query, int64_t key) const {
    return sees[static_cast<size_t>(query * kTile + key)] != 0;
  }
};

// Rows [rows, heads, dim] of f32.
struct HeadRows {
  const float* data;
  int64_t heads, dim;

  static HeadRows Of(const View& view, const Step& step) {
    return {view.as<const float>(), view.Dim(1, step), view.Dim(2, step)};
  }
  [[nodiscard]] int64_t stride() const { return heads * dim; }
  [[nodiscard]] const float* At(int64_t row, int64_t head) const {
    return data + row * stride() + head * dim;
  }
};

// Operands that the ops of this file share: q, k_new, the mask and the indices of the rows.
class FreshAttention {
 public:
  template <typename In, typename Attrs>
  static FreshAttention Of(const CompileContext& context) {
    const auto& attrs = context.attrs<Attrs>();
    return {context.kernels,
            context.Input(In::q),
            context.Input(In::k_new),
            context.Input(In::q_pos),
            context.Input(In::q_slot),
            context.Input(In::kv_pos),
            context.Input(In::kv_slot),
            attrs.mask == RL_MASK_CANVAS,
            attrs.window,
            attrs.scale};
  }

  [[nodiscard]] int64_t QueryRows(const Step& step) const { return q.Rows(step); }
  [[nodiscard]] int64_t Keys(const Step& step) const { return k.Rows(step); }
  [[nodiscard]] int64_t Group(const Step& step) const { return q.Dim(1, step) / k.Dim(1, step); }

  [[nodiscard]] VisibleTile Visible(const Span& queries, const Span& keys) const {
    VisibleTile tile;
    tile.sees.fill(0);
    for (int64_t i = 0; i < queries.count; ++i) {
      const int64_t position = q_pos.as<const int32_t>()[queries.first + i];
      const int32_t slot = q_slot.as<const int32_t>()[queries.first + i];
      for (int64_t j = 0; j < keys.count; ++j) {
        const int64_t key = kv_pos.as<const int32_t>()[keys.first + j];
        const bool in_reach =
            canvas || (key <= position && (window == 0 || position - key < window));
        const bool sees = in_reach && kv_slot.as<const int32_t>()[keys.first + j] == slot;
        tile.sees[static_cast<size_t>(i * kTile + j)] = sees ? 1 : 0;
        tile.any = tile.any || sees;
      }
    }
    return tile;
  }

  // tile[i][j] = x of query row i and head `head` times row j of `keys` and its head.
  void Multiply(const HeadRows& x, int64_t head, const Span& queries, const HeadRows& rows,
                int64_t kv_head, const Span& keys, Tile& tile) const {
    MatMulArgs args;
    args.weights = rows.At(keys.first, kv_head);
    args.row_bytes = static_cast<size_t>(rows.stride()) * sizeof(float);
    args.k = static_cast<size_t>(x.dim);
    args.n_end = static_cast<size_t>(keys.count);
    args.x = x.At(queries.first, head);
    args.x_stride = static_cast<size_t>(x.stride()) * sizeof(float);
    args.batch = static_cast<size_t>(queries.count);
    args.format = ActivationFormat::kFloat32;
    args.y = tile.data();
    args.y_stride = kTile;
    MatMul(kernels, DType::kF32, args);
  }

  const KernelTable& kernels;
  View q, k, q_pos, q_slot, kv_pos, kv_slot;
  bool canvas;
  int64_t window;
  float scale;
};

// lse[rows, heads]. An item is a tile of query rows and a head.
class AttentionStatsNode final : public Node {
 public:
  explicit AttentionStatsNode(const CompileContext& context)
      : attention_(FreshAttention::Of<operands::AttentionStats, rl_attention_stats_attrs>(context)),
        lse_(context.Result()) {}

  [[nodiscard]] int64_t Items(const Step& step) const override {
    return TilesOf(attention_.QueryRows(step)) * attention_.q.Dim(1, step);
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t heads = attention_.q.Dim(1, step);
    for (int64_t item = begin; item < end; ++item) {
      RunTile(step, TileOf(item / heads, attention_.QueryRows(step)), item % heads);
    }
  }

 private:
  // The largest score so far and the sum of exponentials relative to it.
  struct Running {
    float largest = -std::numeric_limits<float>::infinity();
    double sum = 0;
  };

  void RunTile(const Step& step, const Span& queries, int64_t head) const {
    const HeadRows q = HeadRows::Of(attention_.q, step);
    const HeadRows k = HeadRows::Of(attention_.k, step);
    std::array<Running, kTile> running;
    for (int64_t t = 0; t < TilesOf(attention_.Keys(step)); ++t) {
      const Span keys = TileOf(t, attention_.Keys(step));
      const VisibleTile visible = attention_.Visible(queries, keys);
      if (!visible.any) continue;
      Tile scores;
      attention_.Multiply(q, head, queries, k, head / attention_.Group(step), keys, scores);
      for (int64_t i = 0; i < queries.count; ++i) {
        AddKeys(visible, i, keys.count, scores.data() + i * kTile, running[static_cast<size_t>(i)]);
      }
    }
    for (int64_t i = 0; i < queries.count; ++i) {
      const Running& row = running[static_cast<size_t>(i)];
      lse_.as<float>()[(queries.first + i) * q.heads + head] =
          row.sum > 0 ? static_cast<float>(row.largest + std::log(row.sum)) : 0.0f;
    }
  }

  void AddKeys(const VisibleTile& visible, int64_t query, int64_t keys, float* scores,
               Running& row) const {
    int64_t count = 0;  // visible keys, whose scores move to the front
    for (int64_t j = 0; j < keys; ++j) {
      if (visible.At(query, j)) scores[count++] = scores[j] * attention_.scale;
    }
    if (count == 0) return;
    const auto n = static_cast<size_t>(count);
    const float largest = std::max(row.largest, attention_.kernels.max(scores, n));
    if (row.sum > 0) row.sum *= std::exp(static_cast<double>(row.largest - largest));
    for (size_t j = 0; j < n; ++j) scores[j] -= largest;
    attention_.kernels.exp(scores, n, scores);
    row.sum += attention_.kernels.sum(scores, n);
    row.largest = largest;
  }

  FreshAttention attention_;
  View lse_;
};

// Operands and tiles of a derivative of attention.
class AttentionGradient {
 public:
  template <typename In, typename Attrs>
  static AttentionGradient Of(const CompileContext& context) {
    return {FreshAttention::Of<In, Attrs>(context), context.Input(In::v_new), context.Input(In::y),
            context.Input(In::lse), context.Input(In::dy)};
  }

  // The probabilities of a tile and the derivatives by its scores q . k, for one head.
  struct Tiles {
    Tile probability;
    Tile by_score;
  };

  void Compute(const Step& step, const VisibleTile& visible, const Span& queries, int64_t head,
               const Span& keys, Tiles& tiles) const {
    const int64_t kv_head = head / attention.Group(step);
    const HeadRows q = HeadRows::Of(attention.q, step);
    const HeadRows gradients = HeadRows::Of(dy, step);
    const HeadRows results = HeadRows::Of(y, step);
    attention.Multiply(q, head, queries, HeadRows::Of(attention.k, step), kv_head, keys,
                       tiles.probability);
    attention.Multiply(gradients, head, queries, HeadRows::Of(v, step), kv_head, keys,
                       tiles.by_score);
    for (int64_t i = 0; i < queries.count; ++i) {
      const int64_t row = queries.first + i;
      const float mean = attention.kernels.dot(gradients.At(row, head), results.At(row, head),
                                               static_cast<size_t>(q.dim));
      FinishRow(visible, i, keys.count, lse.as<const float>()[row * q.heads + head], mean, tiles);
    }
  }

  FreshAttention attention;
  View v, y, lse, dy;

 private:
  AttentionGradient(FreshAttention shared, View v_rows, View y_rows, View lse_rows, View dy_rows)
      : attention(shared), v(v_rows), y(y_rows), lse(lse_rows), dy(dy_rows) {}

  void FinishRow(const VisibleTile& visible, int64_t query, int64_t keys, float row_lse, float mean,
                 Tiles& tiles) const {
    float* p = tiles.probability.data() + query * kTile;
    float* s = tiles.by_score.data() + query * kTile;
    for (int64_t j = 0; j < keys; ++j) {
      p[j] = visible.At(query, j) ? p[j] * attention.scale - row_lse
                                  : -std::numeric_limits<float>::infinity();
    }
    attention.kernels.exp(p, static_cast<size_t>(keys), p);
    for (int64_t j = 0; j < keys; ++j) {
      s[j] = visible.At(query, j) ? attention.scale * p[j] * (s[j] - mean) : 0.0f;
    }
  }
};

// dq[rows, heads, dim]. An item is a tile of query rows and a head.
class AttentionGradQNode final : public Node {
 public:
  explicit AttentionGradQNode(const CompileContext& context)
      : gradient_(
            AttentionGradient::Of<operands::AttentionGradQ, rl_attention_grad_q_attrs>(context)),
        dq_(context.Result()) {}

  [[nodiscard]] int64_t Items(const Step& step) const override {
    return TilesOf(dq_.Rows(step)) * dq_.Dim(1, step);
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t heads = dq_.Dim(1, step);
    for (int64_t item = begin; item < end; ++item) {
      RunTile(step, TileOf(item / heads, dq_.Rows(step)), item % heads);
    }
  }

 private:
  void RunTile(const Step& step, const Span& queries, int64_t head) const {
    const FreshAttention& attention = gradient_.attention;
    const HeadRows k = HeadRows::Of(attention.k, step);
    const auto dim = static_cast<size_t>(k.dim);
    const HeadRows rows = HeadRows::Of(dq_, step);
    const auto dq = [&](int64_t i) {
      return dq_.as<float>() + (queries.first + i) * rows.stride() + head * rows.dim;
    };
    for (int64_t i = 0; i < queries.count; ++i) std::fill_n(dq(i), dim, 0.0f);
    for (int64_t t = 0; t < TilesOf(attention.Keys(step)); ++t) {
      const Span keys = TileOf(t, attention.Keys(step));
      const VisibleTile visible = attention.Visible(queries, keys);
      if (!visible.any) continue;
      AttentionGradient::Tiles tiles;
      gradient_.Compute(step, visible, queries, head, keys, tiles);
      attention.kernels.add_weighted_rows({.factors = tiles.by_score.data(),
                                           .output_stride = kTile,
                                           .rows = k.At(keys.first, head / attention.Group(step)),
                                           .row_stride = static_cast<size_t>(k.stride()),
                                           .count = static_cast<size_t>(keys.count),
                                           .columns = dim,
                                           .y = dq(0),
                                           .y_stride = static_cast<size_t>(rows.stride()),
                                           .outputs = static_cast<size_t>(queries.count)});
    }
  }

  AttentionGradient gradient_;
  View dq_;
};

// dk and dv[T, kv_heads, dim]. An item is a tile of keys and a kv head; it adds query rows in their
// order, and of each tile of them the heads in their order.
class AttentionGradKvNode final : public Node {
 public:
  explicit AttentionGradKvNode(const CompileContext& context)
      : gradient_(
            AttentionGradient::Of<operands::AttentionGradKv, rl_attention_grad_kv_attrs>(context)),
        dk_(context.Result(0)),
        dv_(context.Result(1)) {}

  [[nodiscard]] int64_t Items(const Step& step) const override {
    return TilesOf(dk_.Rows(step)) * dk_.Dim(1, step);
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t kv_heads = dk_.Dim(1, step);
    for (int64_t item = begin; item < end; ++item) {
      RunTile(step, TileOf(item / kv_heads, dk_.Rows(step)), item % kv_heads);
    }
  }

 private:
  void RunTile(const Step& step, const Span& keys, int64_t kv_head) const {
    const FreshAttention& attention = gradient_.attention;
    const HeadRows rows = HeadRows::Of(dk_, step);
    const auto at = [&](const View& view, int64_t j) {
      return view.as<float>() + (keys.first + j) * rows.stride() + kv_head * rows.dim;
    };
    for (int64_t j = 0; j < keys.count; ++j) {
      std::fill_n(at(dk_, j), rows.dim, 0.0f);
      std::fill_n(at(dv_, j), rows.dim, 0.0f);
    }
    const int64_t group = attention.Group(step);
    for (int64_t t = 0; t < TilesOf(attention.QueryRows(step)); ++t) {
      const Span queries = TileOf(t, attention.QueryRows(step));
      const VisibleTile visible = attention.Visible(queries, keys);
      if (!visible.any) continue;
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        AttentionGradient::Tiles tiles;
        gradient_.Compute(step, visible, queries, head, keys, tiles);
        const HeadRows q = HeadRows::Of(attention.q, step);
        const HeadRows dy = HeadRows::Of(gradient_.dy, step);
        AddQueries(tiles.by_score, q, head, queries, keys, at(dk_, 0), rows.stride());
        AddQueries(tiles.probability, dy, head, queries, keys, at(dv_, 0), rows.stride());
      }
    }
  }

  // Adds the rows of x, weighted by a column of the tile, to the row of each key.
  void AddQueries(const Tile& tile, const HeadRows& x, int64_t head, const Span& queries,
                  const Span& keys, float* sums, int64_t stride) const {
    gradient_.attention.kernels.add_weighted_rows({.factors = tile.data(),
                                                   .output_stride = 1,
                                                   .factor_stride = kTile,
                                                   .rows = x.At(queries.first, head),
                                                   .row_stride = static_cast<size_t>(x.stride()),
                                                   .count = static_cast<size_t>(queries.count),
                                                   .columns = static_cast<size_t>(x.dim),
                                                   .y = sums,
                                                   .y_stride = static_cast<size_t>(stride),
                                                   .outputs = static_cast<size_t>(keys.count)});
  }

  AttentionGradient gradient_;
  View dk_, dv_;
};

// y[T, kv_heads, dim] of the decomposed form. An item is a key.
class AttentionMixRowsNode final : public Node {
 public:
  explicit AttentionMixRowsNode(const CompileContext& context)
      : kernels_(context.kernels),
        p_(context.Input(operands::AttentionMixRows::probability)),
        x_(context.Input(operands::AttentionMixRows::x)),
        y_(context.Result()) {}

  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const HeadRows x = HeadRows::Of(x_, step);
    const int64_t columns = p_.Last(step);
    const int64_t kv_heads = y_.Dim(1, step);
    const int64_t group = x.heads / kv_heads;
    const auto dim = static_cast<size_t>(x.dim);
    std::fill_n(y_.as<float>() + begin * kv_heads * x.dim, (end - begin) * kv_heads * x.dim, 0.0f);
    for (int64_t row = 0; row < x_.Rows(step); ++row) {
      for (int64_t head = 0; head < x.heads; ++head) {
        const float* p = p_.as<const float>() + (row * x.heads + head) * columns;
        for (int64_t key = begin; key < end; ++key) {
          if (p[key] == 0) continue;
          kernels_.axpy(p[key], x.At(row, head), dim,
                        y_.as<float>() + (key * kv_heads + head / group) * x.dim);
        }
      }
    }
  }

 private:
  const KernelTable& kernels_;
  View p_, x_, y_;
};

template <uint32_t kKeys>
std::string RefuseKeys(const sdk::GraphView& graph, const rl_op& op,
                       const KernelTable& /*kernels*/) {
  const bool f32 = graph.input(op, kKeys)->dtype == RL_DTYPE_F32;
  return f32 ? "" : "keys must be f32";
}

}  // namespace

const OpRow rows::kAttentionStats = {RL_OP_attention_stats,
                                     RefuseKeys<operands::AttentionStats::k_new>,
                                     AddNode<AttentionStatsNode>};
const OpRow rows::kAttentionGradQ = {RL_OP_attention_grad_q,
                                     RefuseKeys<operands::AttentionGradQ::k_new>,
                                     AddNode<AttentionGradQNode>};
const OpRow rows::kAttentionGradKv = {RL_OP_attention_grad_kv,
                                      RefuseKeys<operands::AttentionGradKv::k_new>,
                                      AddNode<AttentionGradKvNode>};
const OpRow rows::kAttentionMixRows = {RL_OP_attention_mix_rows, nullptr,
                                       AddNode<AttentionMixRowsNode>};

}  // namespace rullama::cpu
