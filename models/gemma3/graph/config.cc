#include "models/gemma3/graph/config.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/base/checked_math.h"
#include "core/config/range.h"
#include "models/common/graph/hparams.h"

namespace rullama {
namespace {

constexpr float kMaxRopeScaling = 1e6F;

// The one size whose scores are divided by the root of width/heads (168) instead of head_dim (128).
// No file says so; the layer count tells it from the others, as in llama.cpp.
constexpr int64_t kLayersOf27B = 62;

// Linear scaling is the only kind that the family has.
Result<float> ReadRopeScaling(const GgufFile& file, int64_t context_length) {
  const std::string type_key = HparamKey(file, "rope.scaling.type");
  RL_ASSIGN_OR_RETURN(const auto type, file.FindString(type_key));
  if (type && *type != "linear" && *type != "none") {
    return BadHparam("key '{}' is '{}', expected 'linear' or 'none'", type_key, *type);
  }
  if (type && *type == "none") return 1.0F;
  const float otherwise = type ? 1.0F : PublishedRopeScaling(context_length);
  return F32Or(file, HparamKey(file, "rope.scaling.factor"), otherwise);
}

Status ReadRope(const GgufFile& file, Gemma3Config& config) {
  RL_ASSIGN_OR_RETURN(const float global, F32Or(file, HparamKey(file, "rope.global.freq_base"),
                                                config.rope_base_global));
  RL_ASSIGN_OR_RETURN(config.rope_base_global,
                      F32Or(file, HparamKey(file, "rope.freq_base"), global));
  RL_ASSIGN_OR_RETURN(const float local, F32Or(file, HparamKey(file, "rope.local.freq_base"),
                                               config.rope_base_sliding));
  RL_ASSIGN_OR_RETURN(config.rope_base_sliding,
                      F32Or(file, HparamKey(file, "rope.freq_base_swa"), local));
  RL_ASSIGN_OR_RETURN(config.rope_scaling_global, ReadRopeScaling(file, config.context_length));
  RL_ASSIGN_OR_RETURN(const int64_t rotated,
                      U32Or(file, HparamKey(file, "rope.dimension_count"), config.head_dim));
  if (rotated == config.head_dim) return OkStatus();
  return BadHparam("{} dims of a head are rotated, expected all {}", rotated, config.head_dim);
}

Status ReadHeads(const GgufFile& file, Gemma3Config& config) {
  const auto layers = static_cast<size_t>(config.layers);
  RL_ASSIGN_OR_RETURN(config.heads,
                      UniformU32(file, HparamKey(file, "attention.head_count"), layers));
  RL_ASSIGN_OR_RETURN(config.kv_heads,
                      UniformU32(file, HparamKey(file, "attention.head_count_kv"), layers));
  RL_ASSIGN_OR_RETURN(config.head_dim, file.GetU32(HparamKey(file, "attention.key_length")));
  RL_ASSIGN_OR_RETURN(const int64_t values,
                      U32Or(file, HparamKey(file, "attention.value_length"), config.head_dim));
  if (values == config.head_dim) return OkStatus();
  return BadHparam("values have {} dims a head, keys {}; expected the same", values,
                   config.head_dim);
}

// The period after which a layer is global: a number, or one bool per layer, which has to repeat.
Result<int64_t> ReadPeriod(const GgufFile& file, const Gemma3Config& config) {
  const std::string key = HparamKey(file, "attention.sliding_window_pattern");
  const GgufValue* value = file.Find(key);
  if (value == nullptr || value->type != GgufType::kArray) return U32Or(file, key, config.pattern);
  const auto layers = static_cast<size_t>(config.layers);
  RL_ASSIGN_OR_RETURN(const std::vector<bool> sliding, file.GetBoolPerLayer(key, layers));
  const auto period = std::ranges::find(sliding, false) - sliding.begin() + 1;
  for (size_t i = 0; i < layers; ++i) {
    if (sliding[i] == ((static_cast<int64_t>(i) + 1) % period != 0)) continue;
    return BadHparam(
        "key '{}' does not repeat at layer {}, expected every layer of number {} to "
        "be global",
        key, i, period);
  }
  return int64_t{period};
}

constexpr std::string_view kFirstDense[] = {"dense_2.weight", "dense.0.weight"};
constexpr std::string_view kSecondDense[] = {"dense_3.weight", "dense.1.weight"};

const TensorInfo* FindAny(const GgufFile& file, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (const TensorInfo* tensor = file.FindTensor(name)) return tensor;
  }
  return nullptr;
}

// The width between the dense layers, whose shapes the table of tensors checks.
Result<int64_t> ReadDenseWidth(const GgufFile& file) {
  const TensorInfo* first = FindAny(file, kFirstDense);
  const TensorInfo* second = FindAny(file, kSecondDense);
  if (first == nullptr && second == nullptr) return 0;
  if (first == nullptr || second == nullptr) {
    const TensorInfo* found = first != nullptr ? first : second;
    return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                     "tensor '{}' has no partner, expected both {} and {} or neither", found->name,
                     kFirstDense[0], kSecondDense[0]);
  }
  const auto width = CheckedCast<int64_t>(first->dims[1]);
  if (!width) return BadHparam("the dense layers are {} wide", first->dims[1]);
  for (const std::string_view suffix : {"dense_2_feat_out", "dense_3_feat_in"}) {
    const std::string key = HparamKey(file, suffix);
    RL_ASSIGN_OR_RETURN(const int64_t expected, U32Or(file, key, *width));
    if (expected == *width) continue;
    return BadHparam("key '{}' is {}, expected the {} rows of tensor '{}'", key, expected, *width,
                     first->name);
  }
  return *width;
}

Status ReadEncoder(const GgufFile& file, Gemma3Config& config) {
  config.encodes = IsEmbeddingGemma(file);
  if (!config.encodes) return OkStatus();
  RL_RETURN_IF_ERROR(CheckPooling(file));
  RL_ASSIGN_OR_RETURN(config.dense_width, ReadDenseWidth(file));
  return OkStatus();
}

}  // namespace

float PublishedRopeScaling(int64_t context_length) {
  constexpr int64_t kScaledContext = 131'072;
  return context_length >= kScaledContext ? 8 : 1;
}

bool IsEmbeddingGemma(const GgufFile& file) {
  const auto name = file.FindString("general.architecture");
  return (name && *name == kEmbeddingGemmaArchitecture) || FindAny(file, kFirstDense) != nullptr ||
         FindAny(file, kSecondDense) != nullptr;
}

float Gemma3Config::attention_scale() const {
  const double squared = layers == kLayersOf27B
                             ? static_cast<double>(width) / static_cast<double>(heads)
                             : static_cast<double>(head_dim);
  return static_cast<float>(1.0 / std::sqrt(squared));
}

Result<Gemma3Config> Gemma3Config::FromFile(const GgufFile& file) {
  Gemma3Config config;
  const std::string count_key = HparamKey(file, "block_count");
  RL_ASSIGN_OR_RETURN(config.layers, file.GetU32(count_key));
  if (config.layers == 0 || config.layers > kMaxLayers) {
    return BadHparam("key '{}' is {}, expected 1 to {}", count_key, config.layers, kMaxLayers);
  }
  RL_ASSIGN_OR_RETURN(config.width, file.GetU32(HparamKey(file, "embedding_length")));
  RL_ASSIGN_OR_RETURN(config.context_length, file.GetU32(HparamKey(file, "context_length")));
  RL_ASSIGN_OR_RETURN(config.sliding_window,
                      file.GetU32(HparamKey(file, "attention.sliding_window")));
  RL_ASSIGN_OR_RETURN(config.pattern, ReadPeriod(file, config));
  RL_ASSIGN_OR_RETURN(config.ffn_width, UniformU32(file, HparamKey(file, "feed_forward_length"),
                                                   static_cast<size_t>(config.layers)));
  RL_ASSIGN_OR_RETURN(
      config.rms_eps,
      F32Or(file, HparamKey(file, "attention.layer_norm_rms_epsilon"), config.rms_eps));
  RL_RETURN_IF_ERROR(ReadHeads(file, config));
  RL_RETURN_IF_ERROR(ReadRope(file, config));
  RL_ASSIGN_OR_RETURN(FileVocabulary vocabulary, ReadFileVocabulary(file));
  config.vocabulary = vocabulary.size;
  config.suppress_tokens = std::move(vocabulary.suppress_tokens);
  RL_RETURN_IF_ERROR(ReadEncoder(file, config));
  RL_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

Status ValidateConfig(const Gemma3Config& c) {
  RL_RETURN_IF_ERROR(InRange<int64_t>("layer count", c.layers, 1, kMaxLayers));
  RL_RETURN_IF_ERROR(InRange<int64_t>("model width", c.width, 1, kMaxWidth));
  RL_RETURN_IF_ERROR(InRange<int64_t>("vocabulary size", c.vocabulary, 1, kMaxVocabulary));
  RL_RETURN_IF_ERROR(InRange<int64_t>("context length", c.context_length, 1, kMaxContext));
  RL_RETURN_IF_ERROR(InRange<int64_t>("query head count", c.heads, 1, kMaxHeads));
  RL_RETURN_IF_ERROR(InRange<int64_t>("key/value head count", c.kv_heads, 1, kMaxHeads));
  RL_RETURN_IF_ERROR(InRange<int64_t>("head dim", c.head_dim, 2, kMaxHeadDim));
  RL_RETURN_IF_ERROR(InRange<int64_t>("FFN width", c.ffn_width, 1, kMaxFfnWidth));
  RL_RETURN_IF_ERROR(InRange<int64_t>("sliding window", c.sliding_window, 1, c.context_length));
  RL_RETURN_IF_ERROR(InRange<int64_t>("sliding window pattern", c.pattern, 1, kMaxLayers));
  RL_RETURN_IF_ERROR(InRange("RMS norm epsilon", c.rms_eps, kMinRmsEps, kMaxRmsEps));
  RL_RETURN_IF_ERROR(
      InRange("rope base of sliding layers", c.rope_base_sliding, 1.0F, kMaxRopeBase));
  RL_RETURN_IF_ERROR(InRange("rope base of global layers", c.rope_base_global, 1.0F, kMaxRopeBase));
  RL_RETURN_IF_ERROR(InRange("rope scaling factor", c.rope_scaling_global, 1e-6F, kMaxRopeScaling));
  RL_RETURN_IF_ERROR(InRange<int64_t>("width of the dense layers", c.dense_width, 0, kMaxFfnWidth));
  if (c.head_dim % 2 != 0) {
    return BadHparam("head dim is {}, expected an even number (rotary embedding turns pairs)",
                     c.head_dim);
  }
  if (c.heads % c.kv_heads != 0) {
    return BadHparam("{} query heads and {} key/value heads, expected a multiple", c.heads,
                     c.kv_heads);
  }
  return CheckSuppressed(c.suppress_tokens, c.vocabulary);
}

}  // namespace rullama
