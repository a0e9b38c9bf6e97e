#include "models/common/graph/graph_context.h"

#include <fmt/format.h>
#include <rullama/sdk/cache_rows.h>

#include <utility>

#include "core/base/check.h"

namespace rullama {
namespace {

// Bounds of the options, so that shapes cannot overflow; memory runs out long before.
constexpr int64_t kMaxSlots = 4096;
constexpr int64_t kMaxStepRows = int64_t{1} << 20;

Status CheckOption(std::string_view id, std::string_view what, int64_t value, int64_t high) {
  if (value >= 1 && value <= high) return OkStatus();
  return MakeError(ErrorKind::kUsage, id, "{} is {}, expected 1 to {}", what, value, high);
}

Status CheckOptions(const GraphLimits& limits, const BuildOptions& options) {
  RL_RETURN_IF_ERROR(CheckOption("model.slots", "slots", options.slots, kMaxSlots));
  RL_RETURN_IF_ERROR(CheckOption("model.capacity",
                                 "context capacity (the model's context length is the limit)",
                                 options.capacity, limits.context_length));
  RL_RETURN_IF_ERROR(CheckOption("model.rows", "rows of a step", options.max_t, kMaxStepRows));
  RL_RETURN_IF_ERROR(CheckOption("model.rows", "wanted rows", options.max_r, options.max_t));
  if (options.pass == ModelPass::kCanvas && !limits.denoises) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "a canvas was asked for, but this model predicts the next token; expected a "
                     "DiffusionGemma");
  }
  const bool with_media =
      options.pass == ModelPass::kMedia || options.pass == ModelPass::kEncodeMedia;
  if (with_media && !limits.takes_media) {
    return MakeError(ErrorKind::kUsage, "model.media",
                     "this model takes text only; expected one that takes pictures or sounds");
  }
  const bool encodes =
      options.pass == ModelPass::kEncode || options.pass == ModelPass::kEncodeMedia;
  if (encodes != limits.encodes) {
    return MakeError(ErrorKind::kUsage, "model.encoder", "{}",
                     limits.encodes ? kWritesNoText
                                    : "this model writes text, expected one that makes embeddings");
  }
  for (const DType dtype : {options.kv_dtype.keys, options.kv_dtype.values}) {
    if (sdk::IsCacheType(dtype)) continue;
    return MakeError(ErrorKind::kUsage, "model.kv_dtype",
                     "the KV cache would be {}, expected f32, f16, bf16, q8_0 or q4_0",
                     NameOf(dtype));
  }
  return OkStatus();
}

void AddInputs(ModelGraph& model, const BuildOptions& options) {
  GraphBuilder& b = model.builder;
  model.tokens = b.Input(input_names::kTokens, {DType::kI32, {Dim::T()}});
  model.pos = b.Input(input_names::kPos, {DType::kI32, {Dim::T()}});
  model.slot = b.Input(input_names::kSlot, {DType::kI32, {Dim::T()}});
  model.past = b.Input(input_names::kPast, {DType::kI32, {options.slots}});
  model.rows = b.Input(input_names::kRows, {DType::kI32, {Dim::R()}});
  b.WantedRows(model.rows);
  model.attention_rows = {.q_pos = model.pos,
                          .q_slot = model.slot,
                          .kv_pos = model.pos,
                          .kv_slot = model.slot,
                          .past = options.caches ? model.past : kNoValue};
}

}  // namespace

ValueId GraphContext::Constant(const WeightBinding& binding, int64_t first, int64_t count) {
  const std::string key = fmt::format("{}@{}", binding.tensor, first);
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  TensorType type(binding.dtype, {count});
  for (size_t axis = 1; axis < binding.dims.size(); ++axis) {
    type.dim(type.rank++) = binding.dims[axis];
  }
  const ValueId value = builder().Constant(binding.tensor, type, first);
  constants_.emplace(key, value);
  return value;
}

ValueId GraphContext::OptionalWeight(std::string_view name) {
  const WeightBinding* binding = weights_.Find(name);
  return binding == nullptr ? kNoValue : Constant(*binding, 0, binding->dims[0]);
}

ValueId GraphContext::Weight(std::string_view name) {
  const ValueId value = OptionalWeight(name);
  RL_CHECK(value != kNoValue);
  return value;
}

ValueId GraphContext::WeightRows(std::string_view name, int64_t first, int64_t count) {
  const WeightBinding* binding = weights_.Find(name);
  RL_CHECK(binding != nullptr && binding->dims.size() == 2);
  return Constant(*binding, first, count);
}

ValueId GraphContext::SyntheticBytes(std::string_view name, const TensorType& type,
                                     std::vector<std::byte> bytes) {
  const std::string key(name);
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  const ValueId value = builder().Constant(name, type);
  model_.constants.push_back({.name = key, .type = type, .bytes = std::move(bytes)});
  constants_.emplace(key, value);
  return value;
}

ValueId GraphContext::RopeFactors(std::span<const float> factors) {
  constexpr std::string_view kName = "rope_freqs.weight";
  if (const ValueId stored = OptionalWeight(kName); stored != kNoValue) return stored;
  return Synthetic(kName, DType::kF32, factors);
}

Result<ModelGraph> EmptyModelGraph(std::string_view name, const GraphLimits& limits,
                                   const BuildOptions& options) {
  RL_RETURN_IF_ERROR(CheckOptions(limits, options));
  Graph empty;
  empty.name = name;
  empty.max_t = options.max_t;
  empty.max_r = options.max_r;
  return ModelGraph{.builder = GraphBuilder(std::move(empty))};
}

Result<ModelGraph> BeginModelGraph(std::string_view name, const GraphLimits& limits,
                                   const BuildOptions& options) {
  RL_ASSIGN_OR_RETURN(ModelGraph model, EmptyModelGraph(name, limits, options));
  AddInputs(model, options);
  return model;
}

}  // namespace rullama
