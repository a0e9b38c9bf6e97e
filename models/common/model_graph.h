// A model's network as a graph of ops, before a sampler or an output is added. Every family builds
// its graphs in this form, so that the engine joins any of them with its samplers.
//
// A graph works on T rows (tokens of this step, of any slots) and ends in the logits of every row;
// what an output asks for decides which rows are computed (the row-demand pass). Inputs, all i32:
// tokens[T], pos[T], slot[T], past[slots], rows[R] (names in input_names).
//
// A model that denoises has two such graphs over one set of weights and states
// (BuildOptions::pass): the causal one reads prompts and finished canvases and fills the caches;
// the canvas one sees the caches and a canvas whose rows see each other, and changes no cache.
// Between the steps of a canvas it keeps the embedding expected after the last one
// (AppendSelfConditioning).
// A model that takes pictures and sounds has, in addition to its causal graph, one for steps in
// which soft tokens take the place of the embeddings of some rows (media_names). Steps of text
// alone take the causal graph, which knows nothing of media.
//
// An encoder has a graph without caches, which ends in last_norm: there are no logits. One that
// takes media has another one for texts with soft tokens.
//
// Value names that tests and `rullama diff` rely on, in addition to those of the inputs: "logits".
//
// Thread safety: a ModelGraph belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/builder.h"

namespace rullama {

// What whoever wants an encoder to write text is told (model.encoder).
inline constexpr std::string_view kWritesNoText =
    "not a language model; use /v1/embeddings, `rullama embed` or Engine::Embed()";

enum class ModelPass : uint8_t {
  kCausal,
  kCanvas,       // only of a model that denoises
  kMedia,        // only of a model that takes media: the causal pass for steps with soft tokens
  kEncode,       // only of an encoder: a whole text, whose rows see each other
  kEncodeMedia,  // only of an encoder that takes media: the same for steps with soft tokens
};

// The number formats of the KV cache: one type, or one of keys and one of values. Fresh keys and
// values are rounded to them before attention reads them, so a prompt gives the same numbers in one
// step or in several.
struct CacheTypes {
  DType keys = DType::kF16, values = DType::kF16;

  CacheTypes() = default;
  CacheTypes(DType both) : keys(both), values(both) {}  // NOLINT: one type is that of both
  CacheTypes(DType of_keys, DType of_values) : keys(of_keys), values(of_values) {}
  bool operator==(const CacheTypes&) const = default;
};
// "q8_0", or "q8_0 for keys, q4_0 for values".
[[nodiscard]] std::string ToString(const CacheTypes& types);

struct BuildOptions {
  ModelPass pass = ModelPass::kCausal;
  int64_t slots = 1;     // sequences with a cache of their own
  int64_t capacity = 0;  // tokens per slot; at most the model's context length
  CacheTypes kv_dtype = {};
  // Without caches a graph has no states: a step sees its own rows only, and `past` is absent. For
  // training, with kv_dtype f32.
  bool caches = true;
  // Rows that the ring of a sliding-window layer has beyond its window: a slot may go back by that
  // many rows, and one more, at any time.
  int64_t spare_rows = 0;
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
  ValueId logits = kNoValue;     // f32[T, vocabulary]; tokens that must not be drawn are -inf
  // The product that makes logits of last_norm, before masking: softcap(last_norm weight^T).
  struct Head {
    ValueId weight = kNoValue;  // [vocabulary, width], a constant
    float softcap = 0;          // 0: none
  };
  Head head = {};
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
  // The residual stream after the embedding and after each layer: one value more than layers, each
  // f32[T, width].
  std::vector<ValueId> hidden = {};
  std::vector<SyntheticConstant> constants = {};
};

// Ends a step of a canvas pass: its logits at this inverse temperature (f32[1]) condition the next.
void AppendSelfConditioning(ModelGraph& model, ValueId logits, ValueId inverse_temperature);

// Makes `logits` the output "logits".
void AddLogitsOutput(GraphBuilder& builder, ValueId logits, RowDemand demand);

}  // namespace rullama
