// Gemma4Config from the metadata of a GGUF file. Converters differ in which keys they write and in
// whether a number that is the same for all layers is written once or per layer; both forms of
// every key are read here and nowhere else.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "core/base/checked_math.h"
#include "models/common/graph/hparams.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/layer_metadata.h"

namespace rullama {
namespace {

const TensorInfo* FindExpertTensor(const GgufFile& file) {
  for (const TensorInfo& tensor : file.tensors()) {
    const bool expert = tensor.name.find("_exps.") != std::string_view::npos ||
                        tensor.name.find(".ffn_gate_inp.") != std::string_view::npos;
    if (tensor.name.starts_with("blk.") && expert) return &tensor;
  }
  return nullptr;
}

Result<Gemma4Experts> ReadExperts(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const auto count, file.FindU32(HparamKey(file, "expert_count")));
  RL_ASSIGN_OR_RETURN(const auto used, file.FindU32(HparamKey(file, "expert_used_count")));
  Gemma4Experts experts;
  experts.count = count.value_or(0);
  experts.used = used.value_or(0);
  if (experts.used > experts.count) {
    return MakeError(ErrorKind::kModelFile, "model.moe",
                     "{} experts are used of {}, expected no more than there are", experts.used,
                     experts.count);
  }
  const TensorInfo* tensor = FindExpertTensor(file);
  if (experts.count == 0 && tensor != nullptr) {
    return MakeError(ErrorKind::kModelFile, "model.moe",
                     "tensor '{}' belongs to experts, but key '{}' says there are none",
                     tensor->name, HparamKey(file, "expert_count"));
  }
  if (experts.count == 0) return experts;
  RL_ASSIGN_OR_RETURN(experts.ffn_width,
                      file.GetU32(HparamKey(file, "expert_feed_forward_length")));
  experts.fused_gate_up = file.FindTensor("blk.0.ffn_gate_exps.weight") == nullptr;
  return experts;
}

Status ReadEncoder(const GgufFile& file, Gemma4Config& config) {
  RL_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  if (name != kEmbeddingGemma2Architecture) return OkStatus();
  RL_RETURN_IF_ERROR(CheckPooling(file));
  const std::string key = HparamKey(file, "embedding_length_out");
  RL_ASSIGN_OR_RETURN(config.embedding_width, file.GetU32(key));
  return InRange<int64_t>("embedding width", config.embedding_width, 1, kMaxWidth);
}

// Key/value heads of a layer as its K projection has them, for files that do not say.
Result<int64_t> KvHeadsFromTensor(const GgufFile& file, int64_t index, int64_t head_dim) {
  const std::string name = fmt::format("blk.{}.attn_k.weight", index);
  const TensorInfo* tensor = file.FindTensor(name);
  if (tensor == nullptr) {
    return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                     "neither key '{}' nor tensor '{}' says how many key/value heads layer {} has",
                     HparamKey(file, "attention.head_count_kv"), name, index);
  }
  const auto rows = CheckedCast<int64_t>(tensor->dims[1]);
  if (head_dim < 1 || !rows || *rows % head_dim != 0) {
    return MakeError(ErrorKind::kModelFile, "model.tensor_shape",
                     "tensor '{}' has {} rows, expected a multiple of the head dim {}", name,
                     tensor->dims[1], head_dim);
  }
  return *rows / head_dim;
}

Status ReadKvHeads(const GgufFile& file, Gemma4Config& config) {
  const std::string key = HparamKey(file, "attention.head_count_kv");
  if (const GgufValue* value = file.Find(key)) {
    RL_ASSIGN_OR_RETURN(const auto counts, file.GetU32PerLayer(key, config.layers.size()));
    for (size_t i = 0; i < counts.size(); ++i) config.layers[i].kv_heads = counts[i];
    if (value->type == GgufType::kArray) return OkStatus();
    // An older converter writes the sliding layers' count there and the global one apart.
    RL_ASSIGN_OR_RETURN(const auto global,
                        file.FindU32(HparamKey(file, "attention.global_head_count_kv")));
    for (Gemma4Layer& layer : config.layers) {
      if (global && layer.kind == LayerKind::kGlobal) layer.kv_heads = *global;
    }
    return OkStatus();
  }
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    Gemma4Layer& layer = config.layers[static_cast<size_t>(i)];
    if (config.OwnsCache(i)) {
      RL_ASSIGN_OR_RETURN(layer.kv_heads, KvHeadsFromTensor(file, i, layer.head_dim));
    } else {
      layer.kv_heads = config.layer(layer.cache_layer).kv_heads;
    }
  }
  return OkStatus();
}

Status ReadLayers(const GgufFile& file, Gemma4Config& config) {
  RL_RETURN_IF_ERROR(gemma4::ReadLayerShapes(file, config));
  RL_ASSIGN_OR_RETURN(const int64_t shared,
                      U32Or(file, HparamKey(file, "attention.shared_kv_layers"), 0));
  RL_RETURN_IF_ERROR(AssignDonors(config.layers, shared));
  RL_RETURN_IF_ERROR(ReadKvHeads(file, config));
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    Gemma4Layer& layer = config.layers[static_cast<size_t>(i)];
    layer.k_eq_v = layer.kind == LayerKind::kGlobal && config.OwnsCache(i) &&
                   file.FindTensor(fmt::format("blk.{}.attn_v.weight", i)) == nullptr;
  }
  return OkStatus();
}

// The canvas of a model that denoises; its sampler's numbers are optional, and judged by the
// sampler.
Status ReadCanvas(const GgufFile& file, Gemma4Config& config) {
  RL_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  if (name != kDiffusionGemmaArchitecture) return OkStatus();
  CanvasFacts& canvas = config.canvas;
  RL_ASSIGN_OR_RETURN(canvas.length, file.GetU32("diffusion.canvas_length"));
  if (canvas.length == 0) {
    return BadHparam("key 'diffusion.canvas_length' is 0, expected the tokens of a canvas");
  }
  RL_ASSIGN_OR_RETURN(canvas.max_steps, U32Or(file, "diffusion.eb_max_steps", canvas.max_steps));
  RL_ASSIGN_OR_RETURN(canvas.t_min, F32Or(file, "diffusion.eb_t_min", canvas.t_min));
  RL_ASSIGN_OR_RETURN(canvas.t_max, F32Or(file, "diffusion.eb_t_max", canvas.t_max));
  RL_ASSIGN_OR_RETURN(canvas.entropy_bound,
                      F32Or(file, "diffusion.eb_entropy_bound", canvas.entropy_bound));
  RL_ASSIGN_OR_RETURN(canvas.stability_threshold,
                      U32Or(file, "diffusion.eb_stability_threshold", canvas.stability_threshold));
  RL_ASSIGN_OR_RETURN(canvas.confidence_threshold, F32Or(file, "diffusion.eb_confidence_threshold",
                                                         canvas.confidence_threshold));
  return OkStatus();
}

}  // namespace

Result<Gemma4Config> Gemma4Config::FromFile(const GgufFile& file) {
  Gemma4Config config;
  RL_RETURN_IF_ERROR(gemma4::ReadDimensions(file, config));
  RL_ASSIGN_OR_RETURN(config.experts, ReadExperts(file));
  RL_RETURN_IF_ERROR(ReadEncoder(file, config));
  RL_RETURN_IF_ERROR(ReadCanvas(file, config));
  RL_ASSIGN_OR_RETURN(FileVocabulary vocabulary, ReadFileVocabulary(file));
  config.vocabulary = vocabulary.size;
  config.suppress_tokens = std::move(vocabulary.suppress_tokens);
  RL_RETURN_IF_ERROR(ReadLayers(file, config));
  RL_RETURN_IF_ERROR(gemma4::ReadRope(file, config));
  RL_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

}  // namespace rullama
