// Gemma 4 as a graph of ops, written once for every backend: what is computed, never where.
//
//   auto config = Gemma4Config::FromFile(file);
//   auto weights = Gemma4Weights::FromFile(*config, file);
//   auto model = BuildModel(*config, *weights, {.slots = 1, .capacity = 8192});
//   AddLogitsOutput(model->builder, model->logits, RowDemand::kWanted);   // or append a sampler
//   auto graph = std::move(model->builder).Finish();
//
// The graph works on T rows (tokens of this step, of any slots) and ends in the logits of every
// row; what an output asks for decides which rows are computed (the row-demand pass). Inputs, all
// i32: tokens[T], pos[T], slot[T], past[slots], rows[R] (names in input_names).
//
// States: blk.N.k and blk.N.v, [slots, rows, kv_heads, head_dim], for each layer N that owns a
// cache: `capacity` rows on global layers, a ring of min(capacity, sliding_window) on sliding ones.
//
// A model that denoises has two such graphs over one set of weights and states
// (BuildOptions::pass): the causal one reads prompts and finished canvases and fills the caches;
// the canvas one sees the caches and a canvas whose rows see each other, and changes no cache.
// Between the steps of a canvas it keeps the embedding expected after the last one
// (AppendSelfConditioning).
//
// Value names that tests and `rullama diff` rely on, beside those of the inputs and states: "embd",
// "blk.N.attn.q", "blk.N.attn.k", "blk.N.attn.v", "blk.N.attn.mix", "blk.N.attn.residual",
// "blk.N.ffn.glu", "blk.N.out", "output.norm", "logits".
//
// Thread safety: BuildModel is a pure function; a ModelGraph belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

enum class Gemma4Pass : uint8_t {
  kCausal,
  kCanvas,  // only for a config that denoises()
};

struct BuildOptions {
  Gemma4Pass pass = Gemma4Pass::kCausal;
  int64_t slots = 1;     // sequences with a cache of their own
  int64_t capacity = 0;  // tokens per slot; at most the model's context length
  // Number format of the KV cache, f16 or f32. Fresh keys and values are rounded to it before
  // attention reads them, so a prompt gives the same numbers in one step or in several.
  DType kv_dtype = DType::kF16;
  int64_t max_t = 1;  // the largest T and R of any step
  int64_t max_r = 1;
};

// A constant that is not in the model file. Whoever loads weights looks here first: the graph
// refers to it by `name` as to any tensor.
struct SyntheticConstant {
  std::string name;
  TensorType type;
  std::vector<std::byte> bytes;
};

struct ModelGraph {
  GraphBuilder builder;
  ValueId tokens = kNoValue;  // the inputs
  ValueId pos = kNoValue;
  ValueId slot = kNoValue;
  ValueId past = kNoValue;
  ValueId rows = kNoValue;
  ValueId last_norm = kNoValue;  // f32[T, width]
  ValueId logits = kNoValue;     // f32[T, vocabulary], soft-capped; suppressed tokens are -inf
  // pos, slot and past as attention (and the penalties of a sampler) want them.
  ops::AttentionRows attention_rows = {};
  // Results of a canvas pass: the row of each token, the token embeddings, and the state of
  // self-conditioning (canvas_names).
  struct Canvas {
    ValueId row = kNoValue;
    ValueId embeddings = kNoValue;
    ValueId soft_embedding = kNoValue;
  };
  Canvas canvas = {};
  // The residual stream after the embedding and after each layer: layer_count() + 1 values of
  // f32[T, width].
  std::vector<ValueId> hidden = {};
  std::vector<SyntheticConstant> constants = {};
};

// Errors: model.capacity, model.slots, model.rows, model.kv_dtype (kUsage) for options out of
// range.
Result<ModelGraph> BuildModel(const Gemma4Config& config, const Gemma4Weights& weights,
                              const BuildOptions& options);

// Ends a step of a canvas pass: its logits at this inverse temperature (f32[1]) condition the next.
void AppendSelfConditioning(ModelGraph& model, ValueId logits, ValueId inverse_temperature);

// A graph that conditions the next step of a canvas pass on logits made elsewhere: inputs row,
// logits and inverse temperature of canvas_names, no outputs.
Result<Graph> BuildConditioning(const Gemma4Config& config, const Gemma4Weights& weights);

// Makes `logits` the output "logits".
void AddLogitsOutput(GraphBuilder& builder, ValueId logits, RowDemand demand);

// Bytes of all K/V states of such a graph.
[[nodiscard]] uint64_t CacheBytes(const Gemma4Config& config, const BuildOptions& options);

// Rows per slot of the cache of a layer that owns one.
[[nodiscard]] int64_t CacheRows(const Gemma4Config& config, const BuildOptions& options,
                                int64_t layer);

}  // namespace rullama
