#include "models/gemma4/gemma4_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "models/gemma4/gemma4_scope.h"

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
  if (options.kv_dtype != DType::kF16 && options.kv_dtype != DType::kF32) {
    return MakeError(ErrorKind::kUsage, "model.kv_dtype",
                     "the KV cache would be {}, expected f16 or f32", NameOf(options.kv_dtype));
  }
  return OkStatus();
}

void AddInputs(ModelGraph& model, int64_t slots) {
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
                          .past = model.past};
}

template <typename T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Tokens the file says are never to be generated (begin markers of media and the like).
ValueId Suppress(gemma4::Scope& scope, ValueId logits) {
  const std::vector<int32_t>& ids = scope.config().suppress_tokens;
  const auto count = static_cast<int64_t>(ids.size());
  const std::vector<float> ban(ids.size(), -std::numeric_limits<float>::infinity());
  const ValueId id_values =
      scope.Synthetic("suppress_tokens.ids", {DType::kI32, {count}}, Bytes(ids));
  const ValueId bias = scope.Synthetic("suppress_tokens.bias", {DType::kF32, {count}}, Bytes(ban));
  return scope.builder().BiasAdd(logits, id_values, bias, "logits");
}

ValueId Head(gemma4::Scope& scope, ValueId hidden) {
  const Gemma4Config& c = scope.config();
  GraphBuilder& b = scope.builder();
  const bool suppress = !c.suppress_tokens.empty();
  const bool cap = c.final_softcap > 0;
  const ValueId x = b.RmsNorm(hidden, scope.Weight("output_norm.weight"), c.rms_eps, "output.norm");
  ValueId weight = scope.OptionalWeight("output.weight");
  if (weight == kNoValue) weight = scope.Weight("token_embd.weight");
  const bool done = !cap && !suppress;
  ValueId logits = b.MatMul(x, weight, done ? "logits" : "output.project");
  if (cap) logits = b.Softcap(logits, c.final_softcap, suppress ? "output.softcap" : "logits");
  return suppress ? Suppress(scope, logits) : logits;
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
  Graph empty;
  empty.name = "gemma4";
  empty.max_t = options.max_t;
  empty.max_r = options.max_r;
  ModelGraph model{.builder = GraphBuilder(std::move(empty))};
  AddInputs(model, options.slots);
  gemma4::Scope scope(config, weights, options, model);
  GraphBuilder& b = model.builder;

  ValueId hidden = b.GatherRows(scope.Weight("token_embd.weight"), model.tokens, "embd.gather");
  hidden = b.Affine(hidden, std::sqrt(static_cast<float>(config.width)), 0, "embd");
  model.hidden.push_back(hidden);
  gemma4::PerLayerInputs per_layer;
  per_layer.Build(scope, hidden);
  gemma4::LayerStack stack(scope);
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    hidden = stack.Build(i, hidden, per_layer.Of(scope, i));
    model.hidden.push_back(hidden);
  }
  model.logits = Head(scope, hidden);
  return model;
}

void AddLogitsOutput(GraphBuilder& builder, ValueId logits, RowDemand demand) {
  builder.Output("logits", logits, demand);
}

}  // namespace rullama
