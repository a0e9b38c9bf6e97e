#include "models/gemma4/graph/layer_metadata.h"

#include <cmath>
#include <string>
#include <vector>

#include "models/common/graph/hparams.h"

namespace rullama::gemma4 {
namespace {

// After which a layer of EmbeddingGemma 2 is global, if its file does not say.
constexpr size_t kEncoderPeriod = 6;

// Reads which layers are sliding: one bool per layer, or the period after which a global layer
// comes.
Result<std::vector<bool>> ReadPattern(const GgufFile& file, const Gemma4Config& config) {
  const size_t layers = config.layers.size();
  const std::string key = HparamKey(file, "attention.sliding_window_pattern");
  const GgufValue* value = file.Find(key);
  if (value == nullptr && config.encodes()) {
    std::vector<bool> sliding(layers);
    for (size_t i = 0; i < layers; ++i) sliding[i] = (i + 1) % kEncoderPeriod != 0;
    return sliding;
  }
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

Status ReadRopeFactors(const GgufFile& file, int64_t head_dim, Gemma4Config& config) {
  const TensorInfo* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor != nullptr) {
    if (tensor->dtype != DType::kF32) {
      return MakeError(ErrorKind::kModelFile, "model.tensor_dtype",
                       "tensor 'rope_freqs.weight' is {}, expected f32", NameOf(tensor->dtype));
    }
    RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(*tensor));
    const GgufNumbers<float> stored(bytes);
    for (size_t i = 0; i < stored.size(); ++i) config.rope_factors.push_back(stored[i]);
    config.rope_factors_in_file = true;
    return OkStatus();
  }
  if (config.encodes()) {
    config.rope_factors = MakeRopeFactors(config.n_rot_global / 2, 1);
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

Status ReadDimensions(const GgufFile& file, Gemma4Config& config) {
  RL_RETURN_IF_ERROR(file.GetString("general.architecture"));
  RL_ASSIGN_OR_RETURN(const uint32_t layers, file.GetU32(HparamKey(file, "block_count")));
  if (layers == 0 || layers > kMaxLayers) {
    return BadHparam("key '{}' is {}, expected 1 to {}", HparamKey(file, "block_count"), layers,
                     kMaxLayers);
  }
  config.layers.resize(layers);
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
  return ReadSoftcap(file, config);
}

Status ReadLayerShapes(const GgufFile& file, Gemma4Config& config) {
  const size_t count = config.layers.size();
  RL_ASSIGN_OR_RETURN(const auto sliding, ReadPattern(file, config));
  RL_ASSIGN_OR_RETURN(const auto ffn,
                      file.GetU32PerLayer(HparamKey(file, "feed_forward_length"), count));
  RL_ASSIGN_OR_RETURN(const HeadDims dims, ReadHeadDims(file));
  for (size_t i = 0; i < count; ++i) {
    Gemma4Layer& layer = config.layers[i];
    layer.kind = sliding[i] ? LayerKind::kSliding : LayerKind::kGlobal;
    layer.head_dim = sliding[i] ? dims.sliding : dims.global;
    layer.ffn_width = ffn[i];
  }
  config.n_rot_global = dims.global;
  config.n_rot_sliding = dims.sliding;
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

}  // namespace rullama::gemma4
