#include "models/gemma3/files/synth_towers.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "core/config/consistency.h"
#include "models/common/files/synth_file.h"
#include "models/common/files/synth_tower_keys.h"
#include "models/common/graph/architecture.h"
#include "models/common/graph/hparams.h"
#include "models/common/towers.h"

namespace rullama::gemma3 {
namespace {

// Numbers of the published sizes.
constexpr int64_t kPublishedPatch = 14;
constexpr int64_t kPublishedPositions = 4096;

Result<VisionConfig> BuildVision(const VisionArchitecture& a, int64_t text_width) {
  VisionConfig c{.patch = a.patch.value_or(kPublishedPatch),
                 .pool = a.pool.value_or(kDefaultPool),
                 .width = *a.width,
                 .layers = *a.layers,
                 .heads = a.heads.value_or(0),
                 .ffn_width = a.ffn.value_or(0),
                 .text_width = text_width};
  const int64_t positions = a.positions.value_or(kPublishedPositions);
  c.side = std::lround(std::sqrt(static_cast<double>(positions))) * c.patch;
  if (c.layers == 0 || c.patches() != positions) {
    return BadHparam(
        "the image tower has {} layers and {} positions, expected at least one layer "
        "and the positions of a square",
        c.layers, positions);
  }
  RL_RETURN_IF_ERROR(CheckVision(c));
  return c;
}

Status WriteMetadata(const VisionConfig& c, GgufWriter& writer) {
  const std::pair<std::string_view, int64_t> integers[] = {
      {"embedding_length", c.width},      {"feed_forward_length", c.ffn_width},
      {"block_count", c.layers},          {"projection_dim", c.text_width},
      {"attention.head_count", c.heads},  {"image_size", c.side},
      {"projector.scale_factor", c.pool}, {"patch_size", c.patch}};
  RL_RETURN_IF_ERROR(WriteTowerKeys(
      {.kind = "vision", .projector = kVisionProjectorType, .eps = c.eps, .integers = integers},
      writer));
  RL_RETURN_IF_ERROR(writer.Set("clip.use_gelu", true));
  return WriteColours(0.5F, 0.5F, writer);
}

}  // namespace

Result<VisionConfig> VisionFromArchitecture(const ArchitectureConfig& a) {
  RL_RETURN_IF_ERROR(CheckTowersComplete(a));
  const bool foreign = !a.vision.layers || a.audio.layers || a.vision.standardize.value_or(false) ||
                       a.vision.clipped.value_or(false);
  if (foreign) {
    return MakeError(ErrorKind::kUsage, "model.architecture",
                     "a Gemma 3 model has an image tower that is neither clipped nor standardised, "
                     "and no audio tower; change `architecture`");
  }
  return AsArchitectureError(BuildVision(a.vision, *a.width));
}

Status WriteSyntheticTowers(const VisionConfig& config, const SyntheticOptions& options,
                            const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const QuantMix mix,
                      FindQuantMix(options.mix.base == DType::kBF16 ? "BF16" : "F16"));
  SyntheticFile file{
      .architecture = kProjectorArchitecture,
      .type = "mmproj",
      .file_type = mix.file_type,
      .tensors = ExpectedTensors(config),
      .write_metadata = [&](GgufWriter& writer) { return WriteMetadata(config, writer); },
      .vector_values = TowerVector};
  for (const TensorSpec& spec : file.tensors) {
    const bool is_f32 = spec.is_vector() || spec.name == "v.position_embd.weight" ||
                        spec.name == "v.patch_embd.weight";
    file.dtypes.push_back(is_f32 ? DType::kF32 : mix.base);
  }
  return WriteSyntheticFile(file, options, path);
}

}  // namespace rullama::gemma3
