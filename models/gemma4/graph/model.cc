#include "models/gemma4/graph/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "core/ir/canvas_names.h"
#include "models/gemma4/graph/build_context.h"

namespace rullama {
namespace {

// Bounds of the options, so that shapes cannot overflow; memory runs out long before.
constexpr int64_t kMaxSlots = 4096;
constexpr int64_t kMaxStepRows = int64_t{1} << 20;

Status CheckOption(std::string_view id, std::string_view what, int64_t value, int64_t high) {
  if (value >= 1 && value <= high) return OkStatus();
  return MakeError(ErrorKind::kUsage, id, "{} is {}, expected 1 to {}", what, value, high);
}

Status CheckOptions(const Gemma4Config& config, const BuildOptions& options) {
  RL_RETURN_IF_ERROR(CheckOption("model.slots", "slots", options.slots, kMaxSlots));
  RL_RETURN_IF_ERROR(CheckOption("model.capacity",
                                 "context capacity (the model's context length is the limit)",
                                 options.capacity, config.context_length));
  RL_RETURN_IF_ERROR(CheckOption("model.rows", "rows of a step", options.max_t, kMaxStepRows));
  RL_RETURN_IF_ERROR(CheckOption("model.rows", "wanted rows", options.max_r, options.max_t));
  if (options.pass == ModelPass::kCanvas && !config.denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "a canvas was asked for, but this model predicts the next token; expected a "
                     "DiffusionGemma");
  }
  if (options.kv_dtype != DType::kF16 && options.kv_dtype != DType::kF32) {
    return MakeError(ErrorKind::kUsage, "model.kv_dtype",
                     "the KV cache would be {}, expected f16 or f32", NameOf(options.kv_dtype));
  }
  return OkStatus();
}

GraphBuilder EmptyGraph(std::string_view name, const BuildOptions& options) {
  Graph empty;
  empty.name = name;
  empty.max_t = options.max_t;
  empty.max_r = options.max_r;
  return GraphBuilder(std::move(empty));
}

void AddInputs(ModelGraph& model, int64_t slots, bool caches) {
  GraphBuilder& b = model.builder;
  model.tokens = b.Input(input_names::kTokens, {DType::kI32, {Dim::T()}});
  model.pos = b.Input(input_names::kPos, {DType::kI32, {Dim::T()}});
  model.slot = b.Input(input_names::kSlot, {DType::kI32, {Dim::T()}});
  model.past = b.Input(input_names::kPast, {DType::kI32, {slots}});
  model.rows = b.Input(input_names::kRows, {DType::kI32, {Dim::R()}});
  b.WantedRows(model.rows);
  model.attention_rows = {.q_pos = model.pos,
                          .q_slot = model.slot,
                          .kv_pos = model.pos,
                          .kv_slot = model.slot,
                          .past = caches ? model.past : kNoValue};
}

template <typename T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Tokens the file says are never to be generated (begin markers of media and the like).
ValueId Suppress(gemma4::ModelBuildContext& context, ValueId logits) {
  const std::vector<int32_t>& ids = context.config().suppress_tokens;
  const auto count = static_cast<int64_t>(ids.size());
  const std::vector<float> ban(ids.size(), -std::numeric_limits<float>::infinity());
  const ValueId id_values =
      context.Synthetic("suppress_tokens.ids", {DType::kI32, {count}}, Bytes(ids));
  const ValueId bias =
      context.Synthetic("suppress_tokens.bias", {DType::kF32, {count}}, Bytes(ban));
  return context.builder().Add(ops::BiasAdd{.logits = logits, .ids = id_values, .bias = bias},
                               "logits");
}

ValueId Head(gemma4::ModelBuildContext& context, ValueId hidden) {
  const Gemma4Config& c = context.config();
  GraphBuilder& b = context.builder();
  const bool suppress = !c.suppress_tokens.empty();
  const bool cap = c.final_softcap > 0;
  const ValueId x = b.Add(
      ops::RmsNorm{.x = hidden, .weight = context.Weight("output_norm.weight"), .eps = c.rms_eps},
      "output.norm");
  context.model().last_norm = x;
  ValueId weight = context.OptionalWeight("output.weight");
  if (weight == kNoValue) weight = context.Weight("token_embd.weight");
  context.model().head = {.weight = weight, .softcap = c.final_softcap};
  const bool done = !cap && !suppress;
  ValueId logits = b.Add(ops::Linear(x, weight), done ? "logits" : "output.project");
  if (cap)
    logits = b.Add(ops::Softcap{.x = logits, .cap = c.final_softcap},
                   suppress ? "output.softcap" : "logits");
  return suppress ? Suppress(context, logits) : logits;
}

ValueId Embedding(gemma4::ModelBuildContext& context, std::string_view name) {
  GraphBuilder& b = context.builder();
  const ValueId rows = b.Add(
      ops::GatherRows{.table = context.Weight("token_embd.weight"), .ids = context.model().tokens},
      "embd.gather");
  return b.Add(
      ops::Affine{
          .x = rows, .scale = std::sqrt(static_cast<float>(context.config().width)), .bias = 0},
      name);
}

ModelGraph::Canvas AddCanvas(gemma4::ModelBuildContext& context) {
  GraphBuilder& b = context.builder();
  const Gemma4Config& c = context.config();
  const TensorType state(DType::kF32, {c.canvas.length, 1, c.width});
  return {.row = b.Input(canvas_names::kRow, {DType::kI32, {Dim::T()}}),
          .embeddings = context.Weight("token_embd.weight"),
          .soft_embedding = b.State(canvas_names::kSoftEmbedding, state)};
}

// The canvas's tokens and, through a small gated network, what the last step expected in their
// place. A soft embedding of zero, before the first step, adds nothing: the norm of zero is zero.
ValueId ConditionedEmbedding(gemma4::ModelBuildContext& context) {
  const Gemma4Config& c = context.config();
  GraphBuilder& b = context.builder();
  const ModelGraph::Canvas canvas = context.model().canvas = AddCanvas(context);
  const ValueId embedding = Embedding(context, "embd.token");
  const ValueId rows =
      b.Add(ops::GatherRows{.table = canvas.soft_embedding, .ids = canvas.row}, "self_cond.rows");
  const ValueId soft =
      b.Add(ops::Affine{.x = b.Add(ops::ReshapeTo(rows, {c.width}), "self_cond.soft"),
                        .scale = std::sqrt(static_cast<float>(c.width)),
                        .bias = 0},
            "self_cond.scaled");
  const ValueId x = b.Add(
      ops::RmsNorm{
          .x = soft, .weight = context.Weight("self_cond_pre_norm.weight"), .eps = c.rms_eps},
      "self_cond.norm");
  const ValueId glu = b.Add(ops::GeGluLinear{.x = x,
                                             .gate_weight = context.Weight("self_cond_gate.weight"),
                                             .up_weight = context.Weight("self_cond_up.weight")},
                            "self_cond.glu");
  const ValueId signal =
      b.Add(ops::Linear(glu, context.Weight("self_cond_down.weight")), "self_cond.signal");
  return b.Add(
      ops::RmsNorm{.x = b.Add(ops::Sum(embedding, signal), "self_cond.sum"), .eps = c.rms_eps},
      "embd");
}

}  // namespace

int64_t CacheRows(const Gemma4Config& config, const BuildOptions& options, int64_t layer) {
  const bool sliding = config.layer(layer).kind == LayerKind::kSliding;
  return sliding ? std::min(options.capacity, config.sliding_window) : options.capacity;
}

uint64_t CacheBytes(const Gemma4Config& config, const BuildOptions& options) {
  uint64_t bytes = 0;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    if (!config.OwnsCache(i)) continue;
    const Gemma4Layer& layer = config.layer(i);
    const auto elements = static_cast<uint64_t>(options.slots * CacheRows(config, options, i) *
                                                layer.kv_heads * layer.head_dim);
    bytes += 2 * RowBytes(options.kv_dtype, elements);  // keys and values
  }
  return bytes;
}

Result<ModelGraph> BuildModel(const Gemma4Config& config, const Gemma4Weights& weights,
                              const BuildOptions& options) {
  RL_RETURN_IF_ERROR(CheckOptions(config, options));
  const bool canvas = options.pass == ModelPass::kCanvas;
  ModelGraph model{.builder = EmptyGraph(canvas ? "gemma4.canvas" : "gemma4", options)};
  AddInputs(model, options.slots, options.caches);
  gemma4::ModelBuildContext context(config, weights, options, model);

  ValueId hidden = canvas ? ConditionedEmbedding(context) : Embedding(context, "embd");
  model.hidden.push_back(hidden);
  gemma4::PerLayerInputs per_layer;
  per_layer.Build(context, hidden);
  gemma4::LayerStack stack(context);
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    hidden = stack.Build(i, hidden, per_layer.Of(context, i));
    model.hidden.push_back(hidden);
  }
  model.logits = Head(context, hidden);
  return model;
}

Result<Graph> BuildConditioning(const Gemma4Config& config, const Gemma4Weights& weights) {
  const BuildOptions options{
      .pass = ModelPass::kCanvas, .capacity = config.context_length, .max_t = config.canvas.length};
  RL_RETURN_IF_ERROR(CheckOptions(config, options));
  ModelGraph model{.builder = EmptyGraph("gemma4.conditioning", options)};
  gemma4::ModelBuildContext context(config, weights, options, model);
  GraphBuilder& b = model.builder;
  model.canvas = AddCanvas(context);
  const ValueId logits =
      b.Input(canvas_names::kLogits, {DType::kF32, {Dim::T(), config.vocabulary}});
  const ValueId inverse_temperature =
      b.Input(canvas_names::kInverseTemperature, {DType::kF32, {1}});
  AppendSelfConditioning(model, logits, inverse_temperature);
  return std::move(b).Finish();
}

}  // namespace rullama
