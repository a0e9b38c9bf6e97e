#include "models/gemma4/graph/model.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "core/ir/canvas_names.h"
#include "core/ir/encoder_names.h"
#include "models/gemma4/graph/build_context.h"

namespace rullama {
namespace {

GraphLimits LimitsOf(const Gemma4Config& config) {
  return {.context_length = config.context_length,
          .denoises = config.denoises(),
          .takes_media = config.takes_media(),
          .encodes = config.encodes()};
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
  const ValueId embedding = ScaledEmbedding(context, c.width, "embd.token");
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

ValueId Embedding(gemma4::ModelBuildContext& context) {
  const Gemma4Config& c = context.config();
  if (c.encodes() || (context.media() && c.sees_whole_pictures())) {
    context.set_last_seen(LastSeen(context));
  }
  if (context.canvas()) return ConditionedEmbedding(context);
  if (context.media()) return EmbeddingWithMedia(context, c.width);
  return ScaledEmbedding(context, c.width, "embd");
}

std::string_view GraphNameOf(ModelPass pass) {
  switch (pass) {
    case ModelPass::kCanvas:
      return "gemma4.canvas";
    case ModelPass::kMedia:
      return "gemma4.media";
    case ModelPass::kEncode:
      return "embeddinggemma2";
    case ModelPass::kEncodeMedia:
      return "embeddinggemma2.media";
    case ModelPass::kCausal:
      break;
  }
  return "gemma4";
}

}  // namespace

CacheShape CacheShapeOf(const Gemma4Config& config, const BuildOptions& options, int64_t layer) {
  const Gemma4Layer& shape = config.layer(layer);
  return {.rows = CacheRowsOf(shape.kind, config.sliding_window, options),
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim};
}

uint64_t CacheBytes(const Gemma4Config& config, const BuildOptions& options) {
  uint64_t bytes = 0;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    if (config.OwnsCache(i)) bytes += CacheStateBytes(CacheShapeOf(config, options, i), options);
  }
  return bytes;
}

Result<ModelGraph> BuildModel(const Gemma4Config& config, const Gemma4Weights& weights,
                              const BuildOptions& options) {
  RL_ASSIGN_OR_RETURN(ModelGraph model,
                      BeginModelGraph(GraphNameOf(options.pass), LimitsOf(config), options));
  gemma4::ModelBuildContext context(config, weights, options, model);

  ValueId hidden = Embedding(context);
  model.hidden.push_back(hidden);
  gemma4::PerLayerInputs per_layer;
  per_layer.Build(context, hidden);
  gemma4::LayerStack stack(context);
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    hidden = stack.Build(i, hidden, per_layer.Of(context, i));
    model.hidden.push_back(hidden);
  }
  if (config.encodes()) {
    FinalNorm(context, hidden, config.rms_eps);
    return model;
  }
  model.logits = BuildHead(
      context, hidden,
      {.eps = config.rms_eps, .softcap = config.final_softcap, .suppress = config.suppress_tokens});
  return model;
}

Result<ModelGraph> BuildProjection(const Gemma4Config& config, const Gemma4Weights& weights) {
  const BuildOptions options{
      .pass = ModelPass::kEncode, .capacity = config.context_length, .caches = false};
  RL_ASSIGN_OR_RETURN(ModelGraph model,
                      EmptyModelGraph("embeddinggemma2.head", LimitsOf(config), options));
  gemma4::ModelBuildContext context(config, weights, options, model);
  GraphBuilder& b = model.builder;
  const ValueId mean = b.Input(encoder_names::kMean, {DType::kF32, {Dim::T(), config.width}});
  const ValueId embedding =
      b.Add(ops::Linear(mean, context.Weight("output.weight")), encoder_names::kEmbedding);
  b.Output(encoder_names::kEmbedding, embedding, RowDemand::kAll);
  return model;
}

Result<Graph> BuildConditioning(const Gemma4Config& config, const Gemma4Weights& weights) {
  const BuildOptions options{
      .pass = ModelPass::kCanvas, .capacity = config.context_length, .max_t = config.canvas.length};
  RL_ASSIGN_OR_RETURN(ModelGraph model,
                      EmptyModelGraph("gemma4.conditioning", LimitsOf(config), options));
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
