// The variants of attention that ops_attention.cc selects from.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Query heads per workgroup: the most, up to `most`, that share a key/value head.
int64_t GroupOf(int64_t heads_per_kv, int64_t most);

// Whether attention_row.comp can compute this attention op: it has one query row, or
// several that are computed side by side.
bool IsOneRow(const sdk::GraphView& graph, const Target& target, const rl_op& attention);

// Turns per position of each pair that a rope rotates, theta^(-2i / n_rot) / factor / 2 pi: their
// fractions in 64 bits, high word first. Whole turns change nothing.
DeviceAddress RopeRates(PlanBuilder& plan, const rl_op& rope);
inline uint32_t RotatedPairs(const rl_op& rope) {
  return static_cast<uint32_t>(sdk::GraphView::attrs<rl_rope_attrs>(rope).n_rot / 2);
}

// Whether keys and values are all f16 or all f32, as the kernel for one row stores them.
bool HasPlainCache(const sdk::GraphView& graph, const rl_op& op);

// The shape and the mask of an attention op.
struct AttentionShape {
  int64_t rows;   // of queries, at most
  int64_t fresh;  // rows of new keys, at most
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;  // of a head
  int64_t slots;
  int64_t capacity;  // cached rows of a slot
  int64_t window;    // 0: none
  bool canvas;
  float scale;
  DType type;  // of keys
  DType value_type;

  [[nodiscard]] int64_t HeadsPerKv() const { return heads / kv_heads; }
  // The maximum number of cached keys that a query may see.
  [[nodiscard]] int64_t MaxOld() const;
};
AttentionShape AttentionShapeOf(const PlanBuilder& plan);

// The old rows of the current attention op. Where it has none, `past` is 0 for each slot below the
// number of fresh rows, and the others stand for memory that is not read.
struct OldRows {
  BufferArgument keys;
  BufferArgument values;
  BufferArgument past;
};
OldRows OldRowsOf(PlanBuilder& plan);

// The arguments of the current attention op for kernels of several rows, with these results.
kernels::AttentionArgs AttentionArgsOf(PlanBuilder& plan, const BufferArgument& y);

// Appends the current attention op and returns true if IsOneRow() holds, the device has the kernel
// and heads in blocks begin at whole words.
bool AttentionOfOneRow(PlanBuilder& plan);
// The same for many query rows on matrix units, if the device, the shape and the types allow it:
// of old and new rows in f16 and in blocks, and of the rows of a step among themselves in f32.
bool AttentionOnMatrixUnits(PlanBuilder& plan);
bool FreshAttentionOnMatrixUnits(PlanBuilder& plan);
// The same for attention_stats.
bool AttentionStatsOnMatrixUnits(PlanBuilder& plan);

}  // namespace rullama::gpu
