// Gemma4Weights from a file: what the common checks of tensors do not see.
#include <cmath>
#include <string>
#include <utility>

#include "models/gemma4/graph/weights.h"

namespace rullama {
namespace {

// Per-layer embeddings are read for a few layers at a time, so a layer must begin at a block.
Status CheckPleBlocks(const Gemma4Config& config, const GgufFile& file) {
  const TensorInfo* table = file.FindTensor("per_layer_token_embd.weight");
  if (config.ple_dim == 0 || table == nullptr) return OkStatus();
  const int64_t block = InfoOf(table->dtype).block_elements;
  if (config.ple_dim % block == 0) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "model.tensor_dtype",
                   "tensor '{}' is {} with blocks of {}, expected a block length that divides the "
                   "per-layer width {}",
                   table->name, NameOf(table->dtype), block, config.ple_dim);
}

Status CheckLayerScales(std::string_view suffix, const Gemma4Config& config, const GgufFile& file,
                        const Gemma4Weights& weights, std::vector<std::string>& warnings) {
  int64_t present = 0;
  int64_t absent_layer = 0;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    const WeightBinding* binding = weights.Find(fmt::format("blk.{}.{}", i, suffix));
    if (binding == nullptr) {
      absent_layer = i;
      continue;
    }
    ++present;
    RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(*file.FindTensor(binding->tensor)));
    const float scale = GgufNumbers<float>(bytes)[0];
    if (!std::isfinite(scale) || scale == 0) {
      return MakeError(ErrorKind::kModelFile, "model.layer_scale",
                       "tensor '{}' is {}, expected a finite number other than 0: it multiplies "
                       "everything the layer computes",
                       binding->tensor, scale);
    }
  }
  if (present == 0) {
    warnings.emplace_back(
        "no layer has an output scale (layer_output_scale); 1 is used, which is "
        "not what any published Gemma 4 has");
    return OkStatus();
  }
  if (present == config.layer_count()) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "model.layer_scale",
                   "{} of {} layers have an output scale, layer {} has none; expected "
                   "'blk.{}.{}'",
                   present, config.layer_count(), absent_layer, absent_layer, suffix);
}

}  // namespace

Result<Gemma4Weights> Gemma4Weights::FromFile(const Gemma4Config& config, const GgufFile& file,
                                              CheckOptions options) {
  options.scales = true;
  options.network = config.encodes() ? "EmbeddingGemma 2" : "Gemma 4 text model";
  RL_ASSIGN_OR_RETURN(ModelWeights found,
                      ModelWeights::FromFile(ExpectedTensors(config), file, options));
  Gemma4Weights weights(std::move(found));
  RL_RETURN_IF_ERROR(CheckPleBlocks(config, file));
  RL_RETURN_IF_ERROR(
      CheckLayerScales("layer_output_scale.weight", config, file, weights, weights.warnings_));
  if (config.denoises()) {
    RL_RETURN_IF_ERROR(CheckLayerScales("enc_layer_output_scale.weight", config, file, weights,
                                        weights.warnings_));
  }
  return weights;
}

}  // namespace rullama
