#include "models/gemma4/files/synth_towers.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/common/files/synth_file.h"
#include "models/common/files/synth_tower_keys.h"
#include "models/common/towers.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {
namespace {

// Wide enough for the values of random weights; a tower without bounds would have fewer ops.
constexpr float kBound = 16;

constexpr std::pair<std::string_view, float> kBounds[] = {{".input_min", -kBound},
                                                          {".input_max", kBound},
                                                          {".output_min", -kBound},
                                                          {".output_max", kBound}};

void AddBounds(const std::vector<std::string>& layers, std::vector<TensorSpec>& specs) {
  LayerTable table(specs, "");
  for (const std::string& layer : layers) {
    for (const auto& [suffix, value] : kBounds) table.Add(layer + std::string(suffix), {1});
  }
}

template <typename TowerConfig>
void AddTower(const TowerConfig& config, bool clipped, std::vector<TensorSpec>& specs) {
  for (TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.presence == Presence::kRequired) specs.push_back(std::move(spec));
  }
  if (clipped) AddBounds(BlockLinears(config), specs);
}

std::vector<float> VectorValues(const TensorSpec& spec) {
  for (const auto& [suffix, value] : kBounds) {
    if (spec.name.ends_with(suffix)) return {value};
  }
  return TowerVector(spec);
}

// The type that the converter writes in a file of `projections`.
DType TypeOf(const TensorSpec& spec, DType projections) {
  const std::string_view name = spec.name;
  const bool is_f32 = spec.is_vector() || name == "v.position_embd.weight" ||
                      name.starts_with("a.conv1d.") || name.ends_with(".conv_dw.weight") ||
                      name == "a.input_projection.weight" ||
                      (name == "v.patch_embd.weight" && projections == DType::kBF16);
  return is_f32 ? DType::kF32 : projections;
}

Status WriteVision(const VisionConfig& c, int64_t pool, GgufWriter& writer) {
  const std::pair<std::string_view, int64_t> integers[] = {
      {"embedding_length", c.width},
      {"feed_forward_length", c.ffn_width},
      {"block_count", c.layers},
      {"projection_dim", c.text_width},
      {"attention.head_count", c.heads},
      {"image_size", 224},  // llama.cpp requires it; the number is not used
      {"patch_size", c.patch * c.pool / pool},
      {"projector.scale_factor", pool}};
  RL_RETURN_IF_ERROR(WriteTowerKeys({.kind = "vision",
                                     .projector = ProjectorName(TowerKind::kVision, c.unified),
                                     .eps = c.eps,
                                     .integers = integers},
                                    writer));
  return WriteColours(0, 1, writer);
}

Status WriteAudio(const AudioConfig& c, GgufWriter& writer) {
  const std::pair<std::string_view, int64_t> integers[] = {
      {"embedding_length", c.unified ? c.inputs : c.width},
      {"feed_forward_length", c.ffn_width},
      {"block_count", c.layers},
      {"projection_dim", c.text_width},
      {"attention.head_count", c.heads},
      {"num_mel_bins", c.inputs}};
  return WriteTowerKeys({.kind = "audio",
                         .projector = ProjectorName(TowerKind::kAudio, c.unified),
                         .eps = c.eps,
                         .integers = integers},
                        writer);
}

}  // namespace

Status WriteSyntheticTowers(const TowerShapes& towers, const SyntheticOptions& options,
                            const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const QuantMix mix,
                      FindQuantMix(options.mix.base == DType::kBF16 ? "BF16" : "F16"));
  SyntheticFile file{.architecture = kProjectorArchitecture,
                     .type = "mmproj",
                     .file_type = mix.file_type,
                     .write_metadata = [&](GgufWriter& writer) -> Status {
                       if (towers.vision) {
                         RL_RETURN_IF_ERROR(WriteVision(*towers.vision, towers.pool, writer));
                       }
                       if (towers.audio) RL_RETURN_IF_ERROR(WriteAudio(*towers.audio, writer));
                       return OkStatus();
                     },
                     .vector_values = VectorValues};
  if (towers.vision) AddTower(*towers.vision, towers.vision_clipped, file.tensors);
  if (towers.audio) AddTower(*towers.audio, towers.audio_clipped, file.tensors);
  for (const TensorSpec& spec : file.tensors) file.dtypes.push_back(TypeOf(spec, mix.base));
  return WriteSyntheticFile(file, options, path);
}

}  // namespace rullama::gemma4
