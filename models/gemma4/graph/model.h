// Gemma 4 as a graph of ops (models/common/model_graph.h), written once for every backend: what is
// computed, never where.
//
//   auto config = Gemma4Config::FromFile(file);
//   auto weights = Gemma4Weights::FromFile(*config, file);
//   auto model = BuildModel(*config, *weights, {.slots = 1, .capacity = 8192});
//   AddLogitsOutput(model->builder, model->logits, RowDemand::kWanted);   // or append a sampler
//   auto graph = std::move(model->builder).Finish();
//
// States: blk.N.k and blk.N.v, [slots, rows, kv_heads, head_dim], for each layer N that owns a
// cache: `capacity` rows on global layers, a ring of min(capacity, sliding_window) on sliding ones.
//
// Value names that tests and `rullama diff` rely on, in addition to those of the inputs and states:
// "embd", "blk.N.attn.q", "blk.N.attn.k", "blk.N.attn.v", "blk.N.attn.mix", "blk.N.attn.residual",
// "blk.N.ffn.glu", "blk.N.out", "output.norm", "logits".
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "models/common/graph/decoder_parts.h"
#include "models/common/model_graph.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

// Errors (kUsage) for options out of range: model.capacity, model.slots, model.rows,
// model.kv_dtype, model.canvas, model.media, model.encoder.
Result<ModelGraph> BuildModel(const Gemma4Config& config, const Gemma4Weights& weights,
                              const BuildOptions& options);

// A graph that conditions the next step of a canvas pass on logits made elsewhere: inputs row,
// logits and inverse temperature of canvas_names, no outputs.
Result<Graph> BuildConditioning(const Gemma4Config& config, const Gemma4Weights& weights);

// The projection of the mean of an encoder's rows (Model::BuildEmbeddingHead).
Result<ModelGraph> BuildProjection(const Gemma4Config& config, const Gemma4Weights& weights);

// Bytes of all K/V states of such a graph.
[[nodiscard]] uint64_t CacheBytes(const Gemma4Config& config, const BuildOptions& options);

// The cache of a layer that owns one.
[[nodiscard]] CacheShape CacheShapeOf(const Gemma4Config& config, const BuildOptions& options,
                                      int64_t layer);

}  // namespace rullama
