// Gemma 3 as a graph of ops (models/common/model_graph.h), written once for every backend.
//
// States: blk.N.k and blk.N.v, [slots, rows, kv_heads, head_dim]: `capacity` rows on global layers,
// a ring of min(capacity, sliding_window) on sliding ones.
//
// Value names that tests and `rullama diff` rely on, in addition to those of the inputs and states:
// "embd", "blk.N.attn.q", "blk.N.attn.k", "blk.N.attn.v", "blk.N.attn.mix", "blk.N.attn.residual",
// "blk.N.ffn.glu", "blk.N.out", "output.norm", "logits".
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "models/common/graph/tensor_table.h"
#include "models/common/model_graph.h"
#include "models/gemma3/graph/config.h"
#include "models/gemma3/graph/head_norms.h"

namespace rullama {

// Caches whose keys are in blocks take `balanced`, norms for each layer, if there are any. Errors:
// those of BeginModelGraph.
Result<ModelGraph> BuildModel(const Gemma3Config& config, const ModelWeights& weights,
                              const BuildOptions& options,
                              std::span<const HeadNorms> balanced = {});

// The layers after the mean of an encoder's rows (Model::BuildEmbeddingHead), of a model that has
// them.
Result<ModelGraph> BuildDenseHead(const Gemma3Config& config, const ModelWeights& weights);

// Bytes of all K/V states of such a graph.
[[nodiscard]] uint64_t CacheBytes(const Gemma3Config& config, const BuildOptions& options);

}  // namespace rullama
