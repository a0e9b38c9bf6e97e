// The parts of which the families build their decoder layers. A layer's tensors and values are
// named "blk.LAYER.NAME".
//
// Thread safety: pure functions on a context.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/common/graph/graph_context.h"
#include "models/common/graph/layer_kind.h"

namespace rullama {

// "blk.3.attn_q.weight"
[[nodiscard]] std::string LayerName(int64_t layer, std::string_view name);

// The embeddings of the input tokens times sqrt(width), f32[T, width].
ValueId ScaledEmbedding(GraphContext& context, int64_t width, std::string_view name);

// The same, or in its place the soft tokens of pictures and sounds, which are not scaled: the
// inputs kSoft and kKeep of media_names.
ValueId EmbeddingWithMedia(GraphContext& context, int64_t width);
// The last position that each row sees, i32[T]: the input kLastSeen of media_names.
ValueId LastSeen(GraphContext& context);

// A projection of x, f32[T, width], as heads: f32[T, heads, head_dim].
struct HeadProjection {
  std::string_view weight;  // "attn_q.weight"
  int64_t heads = 0;
  int64_t head_dim = 0;
  std::string name;        // "blk.3.attn.q"; the product is NAME.project
  std::string heads_name;  // of the result
};
ValueId ProjectHeads(GraphContext& context, int64_t layer, ValueId x, const HeadProjection& p);

// Heads of queries or keys, normalised one by one and rotated by their positions.
struct HeadRotation {
  std::string_view norm;                      // "attn_q_norm.weight"
  std::span<const float> other_weights = {};  // instead of those of the file
  float eps = 0;
  float theta = 0;
  int64_t n_rot = 0;
  ValueId factors = kNoValue;  // divisors of the frequencies
  std::string name;            // of the result; the norm is NAME.norm
};
ValueId NormAndRotate(GraphContext& context, int64_t layer, ValueId heads, const HeadRotation& r);

// The K/V cache of one layer: two states [slots, rows, kv_heads, head_dim].
struct CacheShape {
  int64_t rows = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};
struct LayerCache {
  ValueId k_state = kNoValue;  // none if the graph has no caches
  ValueId v_state = kNoValue;
  ValueId k_new = kNoValue;  // this step's rows, in the number format of the cache
  ValueId v_new = kNoValue;
};
// Rows per slot of a layer's cache: the capacity, or a ring of one window and the spare rows.
[[nodiscard]] int64_t CacheRowsOf(LayerKind kind, int64_t window, const BuildOptions& options);
// Bytes of both states.
[[nodiscard]] uint64_t CacheStateBytes(const CacheShape& shape, const BuildOptions& options);
// Adds the states of a layer, if the graph has caches.
LayerCache AddCache(GraphContext& context, int64_t layer, const CacheShape& shape);
// The name of keys or values before they are rounded to this format of the cache: NAME itself if
// that is f32, else NAME.f32.
[[nodiscard]] std::string UnroundedName(DType dtype, const std::string& name);
// Rounds fresh keys and values, called UnroundedName, to the cache's format.
void SetFreshRows(GraphContext& context, int64_t layer, ValueId k, ValueId v, LayerCache& cache);
// Stores the fresh rows. Every reader of the old ones comes first in the graph.
void AppendFreshRows(GraphContext& context, int64_t layer, const LayerCache& cache);

// hidden + norm(mix output_weight), the end of a layer's attention: mix is f32[T, heads, head_dim]
// and `width` the product of the last two.
ValueId EndAttention(GraphContext& context, int64_t layer, ValueId hidden, ValueId mix,
                     int64_t width, float eps);
// The norm before a gated feed-forward, and the feed-forward itself; the norm after it is the
// caller's.
ValueId DenseFeedForward(GraphContext& context, int64_t layer, ValueId hidden, float eps);

// The norm of the residual stream after the last layer, which is last_norm of the model.
ValueId FinalNorm(GraphContext& context, ValueId hidden, float eps);

// Logits of a residual stream: softcap(norm(hidden) weight^T), with the embedding as weight if
// there is no output.weight, and -inf for tokens that are never to be drawn. Sets last_norm and
// head of the model.
struct OutputHead {
  float eps = 0;
  float softcap = 0;                       // 0: none
  std::span<const int32_t> suppress = {};  // token ids
};
ValueId BuildHead(GraphContext& context, ValueId hidden, const OutputHead& head);

}  // namespace rullama
