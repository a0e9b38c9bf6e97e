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

// Reads which layers are sliding: one bool per layer, or the period after which a global layer
// comes.
Result<std::vector<bool>> ReadPattern(const GgufFile& file, size_t layers) {
  const std::string key = HparamKey(file, "attention.sliding_window_pattern");
  const GgufValue* value = file.Find(key);
  const bool number = value != nullptr && value->type != GgufType::kArray &&
                      IntegerAt<uint32_t>(*value, 0).has_value();
  if (!number) return file.GetBoolPerLayer(key, layers);
  RL_ASSIGN_OR_RETURN(const uint32_t period, file.GetU32(key));
  if (period == 0) return BadHparam("key '{}' is 0, expected a period of 1 or more", key);
  std::vector<bool> sliding(layers);
  for (size_t i = 0; i < layers; ++i) sliding[i] = (i + 1) % period != 0 && i + 1 != layers;
  return sliding;
}

struct HeadDims {
  int64_t global = 0;
  int64_t sliding = 0;
};

Result<HeadDims> ReadHeadDims(const GgufFile& file) {
  HeadDims dims;
  RL_ASSIGN_OR_RETURN(const uint32_t global, file.GetU32(HparamKey(file, "attention.key_length")));
  dims.global = global;
  RL_ASSIGN_OR_RETURN(dims.sliding,
                      U32Or(file, HparamKey(file, "attention.key_length_swa"), dims.global));
  RL_ASSIGN_OR_RETURN(const int64_t v_global,
                      U32Or(file, HparamKey(file, "attention.value_length"), dims.global));
  RL_ASSIGN_OR_RETURN(const int64_t v_sliding,
                      U32Or(file, HparamKey(file, "attention.value_length_swa"), dims.sliding));
  if (v_global != dims.global || v_sliding != dims.sliding) {
    return BadHparam(
        "values have {} (global) and {} (sliding) dims a head, keys {} and {}; expected the same",
        v_global, v_sliding, dims.global, dims.sliding);
  }
  return dims;
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

Status ReadLayers(const GgufFile& file, size_t count, Gemma4Config& config) {
  RL_ASSIGN_OR_RETURN(const auto sliding, ReadPattern(file, count));
  RL_ASSIGN_OR_RETURN(const auto ffn,
                      file.GetU32PerLayer(HparamKey(file, "feed_forward_length"), count));
  RL_ASSIGN_OR_RETURN(const HeadDims dims, ReadHeadDims(file));
  RL_ASSIGN_OR_RETURN(const int64_t shared,
                      U32Or(file, HparamKey(file, "attention.shared_kv_layers"), 0));
  config.layers.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Gemma4Layer& layer = config.layers[i];
    layer.kind = sliding[i] ? LayerKind::kSliding : LayerKind::kGlobal;
    layer.head_dim = sliding[i] ? dims.sliding : dims.global;
    layer.ffn_width = ffn[i];
  }
  RL_RETURN_IF_ERROR(AssignDonors(config.layers, shared));
  RL_RETURN_IF_ERROR(ReadKvHeads(file, config));
  for (size_t i = 0; i < count; ++i) {
    Gemma4Layer& layer = config.layers[i];
    layer.k_eq_v = layer.kind == LayerKind::kGlobal && config.OwnsCache(static_cast<int64_t>(i)) &&
                   file.FindTensor(fmt::format("blk.{}.attn_v.weight", i)) == nullptr;
  }
  config.n_rot_global = dims.global;
  config.n_rot_sliding = dims.sliding;
  return OkStatus();
}

Status ReadRopeFactors(const GgufFile& file, int64_t head_dim, Gemma4Config& config) {
  const TensorInfo* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor != nullptr) {
    if (tensor->dtype != DType::kF32) {
      return MakeError(ErrorKind::kModelFile, "model.tensor_dtype",
                       "tensor 'rope_freqs.weight' is {}, expected f32", NameOf(tensor->dtype));
    }
    const GgufNumbers<float> stored(file.data(*tensor));
    for (size_t i = 0; i < stored.size(); ++i) config.rope_factors.push_back(stored[i]);
    config.rope_factors_in_file = true;
    return OkStatus();
  }
  if (config.n_rot_global != head_dim) {
    return BadHparam(
        "rotary dimension count {} of global layers differs from the head dim {} and tensor "
        "'rope_freqs.weight', which would say what rotates, is missing; convert the model again",
        config.n_rot_global, head_dim);
  }
  RL_ASSIGN_OR_RETURN(const float fraction,
                      F32Or(file, HparamKey(file, "rope.partial_rotary_factor"),
                            static_cast<float>(kGemma4RotaryFraction)));
  if (!(fraction >= 0 && fraction <= 1)) {
    return BadHparam("key '{}' is {}, expected 0 to 1",
                     HparamKey(file, "rope.partial_rotary_factor"), fraction);
  }
  config.rope_factors = MakeRopeFactors(config.n_rot_global / 2, fraction);
  return OkStatus();
}

Status ReadRope(const GgufFile& file, Gemma4Config& config) {
  const int64_t global_head_dim = config.n_rot_global;
  RL_ASSIGN_OR_RETURN(config.rope_base_global,
                      F32Or(file, HparamKey(file, "rope.freq_base"), config.rope_base_global));
  RL_ASSIGN_OR_RETURN(const float local, F32Or(file, HparamKey(file, "rope.local.freq_base"),
                                               config.rope_base_sliding));
  RL_ASSIGN_OR_RETURN(config.rope_base_sliding,
                      F32Or(file, HparamKey(file, "rope.freq_base_swa"), local));
  RL_ASSIGN_OR_RETURN(config.n_rot_global,
                      U32Or(file, HparamKey(file, "rope.dimension_count"), config.n_rot_global));
  RL_ASSIGN_OR_RETURN(config.n_rot_sliding, U32Or(file, HparamKey(file, "rope.dimension_count_swa"),
                                                  config.n_rot_sliding));
  return ReadRopeFactors(file, global_head_dim, config);
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

Status ReadSoftcap(const GgufFile& file, Gemma4Config& config) {
  RL_ASSIGN_OR_RETURN(const auto cap, file.FindF32(HparamKey(file, "final_logit_softcapping")));
  if (!cap) return OkStatus();
  if (!(*cap > 0) || !std::isfinite(*cap)) {
    return BadHparam("key '{}' is {}, expected a finite number above 0",
                     HparamKey(file, "final_logit_softcapping"), *cap);
  }
  config.final_softcap = *cap;
  return OkStatus();
}

}  // namespace

Result<Gemma4Config> Gemma4Config::FromFile(const GgufFile& file) {
  RL_RETURN_IF_ERROR(file.GetString("general.architecture"));
  RL_ASSIGN_OR_RETURN(const uint32_t layers, file.GetU32(HparamKey(file, "block_count")));
  if (layers == 0 || layers > kMaxLayers) {
    return BadHparam("key '{}' is {}, expected 1 to {}", HparamKey(file, "block_count"), layers,
                     kMaxLayers);
  }
  Gemma4Config config;
  RL_ASSIGN_OR_RETURN(config.experts, ReadExperts(file));
  RL_ASSIGN_OR_RETURN(config.width, file.GetU32(HparamKey(file, "embedding_length")));
  RL_ASSIGN_OR_RETURN(config.context_length, file.GetU32(HparamKey(file, "context_length")));
  RL_ASSIGN_OR_RETURN(config.sliding_window,
                      file.GetU32(HparamKey(file, "attention.sliding_window")));
  RL_ASSIGN_OR_RETURN(config.heads,
                      UniformU32(file, HparamKey(file, "attention.head_count"), layers));
  RL_ASSIGN_OR_RETURN(config.ple_dim,
                      U32Or(file, HparamKey(file, "embedding_length_per_layer_input"), 0));
  RL_ASSIGN_OR_RETURN(
      config.rms_eps,
      F32Or(file, HparamKey(file, "attention.layer_norm_rms_epsilon"), config.rms_eps));
  RL_RETURN_IF_ERROR(ReadSoftcap(file, config));
  RL_RETURN_IF_ERROR(ReadCanvas(file, config));
  RL_ASSIGN_OR_RETURN(FileVocabulary vocabulary, ReadFileVocabulary(file));
  config.vocabulary = vocabulary.size;
  config.suppress_tokens = std::move(vocabulary.suppress_tokens);
  RL_RETURN_IF_ERROR(ReadLayers(file, layers, config));
  RL_RETURN_IF_ERROR(ReadRope(file, config));
  RL_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

}  // namespace rullama
