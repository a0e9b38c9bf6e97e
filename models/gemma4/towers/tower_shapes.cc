#include "models/gemma4/towers/tower_shapes.h"

#include <utility>

#include "core/config/consistency.h"
#include "models/common/graph/architecture.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {
namespace {

// Numbers of the published sizes.
constexpr int64_t kPublishedPatch = 16;
constexpr int64_t kPublishedPositions = 10'240;
constexpr int64_t kPublishedOutput = 1536;
constexpr FirstSecond kPublishedChannels = {128, 32};
constexpr int64_t kPublishedKernel = 5;

Result<VisionConfig> BuildVision(const VisionArchitecture& a, int64_t text_width) {
  VisionConfig c{.unified = *a.layers == 0,
                 .patch = a.patch.value_or(kPublishedPatch),
                 .pool = a.pool.value_or(kDefaultPool),
                 .width = *a.width,
                 .positions = a.positions.value_or(kPublishedPositions),
                 .text_width = text_width};
  if (c.unified) {
    c.MergePatches();
    return c;
  }
  c.layers = *a.layers;
  c.heads = *a.heads;
  c.ffn_width = *a.ffn;
  c.standardize = a.standardize.value_or(false);
  RL_RETURN_IF_ERROR(CheckEncoder(c));
  return c;
}

Result<AudioConfig> BuildAudio(const AudioArchitecture& a, int64_t text_width) {
  AudioConfig c{.unified = *a.layers == 0, .text_width = text_width};
  c.inputs = c.unified ? kSamplesOfToken : kMelBins;
  if (c.unified) return c;
  const FirstSecond channels = a.conv_channels.value_or(kPublishedChannels);
  c.layers = *a.layers;
  c.width = *a.width;
  c.heads = *a.heads;
  c.ffn_width = *a.ffn;
  c.out_width = a.output.value_or(kPublishedOutput);
  c.conv_channels = {channels.first, channels.second};
  c.kernel = a.kernel.value_or(kPublishedKernel);
  RL_RETURN_IF_ERROR(CheckConformer(c));
  return c;
}

}  // namespace

Result<TowerShapes> TowersFromArchitecture(const ArchitectureConfig& a) {
  RL_RETURN_IF_ERROR(CheckTowersComplete(a));
  TowerShapes shapes{.pool = a.vision.pool.value_or(kDefaultPool),
                     .vision_clipped = a.vision.clipped.value_or(false),
                     .audio_clipped = a.audio.clipped.value_or(false)};
  if (a.vision.layers) {
    RL_ASSIGN_OR_RETURN(shapes.vision, AsArchitectureError(BuildVision(a.vision, *a.width)));
  }
  if (a.audio.layers) {
    RL_ASSIGN_OR_RETURN(shapes.audio, AsArchitectureError(BuildAudio(a.audio, *a.width)));
  }
  return shapes;
}

}  // namespace rullama::gemma4
