#include "models/gemma4/towers/vision_tower.h"

#include <array>
#include <string>
#include <utility>

#include "models/common/graph/hparams.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {
namespace {

constexpr std::string_view kPositions = "v.position_embd.weight";
constexpr int64_t kMaxPatch = 64;
constexpr int64_t kMaxPool = 8;

constexpr std::array<std::string_view, 7> kVisionLinears = {
    "attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up", "ffn_down"};

// A file may have bounds of the projector too.
std::vector<std::string> ClippedVisionLayers(const VisionConfig& c) {
  std::vector<std::string> layers = BlockLinears(c);
  layers.emplace_back("mm.input_projection");
  return layers;
}

Result<int64_t> ReadPositions(const GgufFile& file, int64_t width) {
  RL_ASSIGN_OR_RETURN(const TensorInfo* table,
                      TowerTensor(file, kPositions, fmt::format("[{}, positions, 2]", width)));
  const bool fits = table->rank == 3 && table->dims[2] == 2 && table->dims[1] <= kMaxContext &&
                    std::cmp_equal(table->dims[0], width);
  if (fits) return static_cast<int64_t>(table->dims[1]);
  return MakeError(ErrorKind::kModelFile, "model.tensor_shape",
                   "tensor '{}' has shape [{}, {}, {}, {}], expected [{}, positions, 2]",
                   kPositions, table->dims[0], table->dims[1], table->dims[2], table->dims[3],
                   width);
}

Status ReadEncoder(const TowerFile& tower, VisionConfig& c) {
  RL_ASSIGN_OR_RETURN(c.layers, TowerNumber(tower, "block_count", 1, kMaxLayers));
  RL_ASSIGN_OR_RETURN(c.heads, TowerNumber(tower, "attention.head_count", 1, kMaxHeads));
  RL_ASSIGN_OR_RETURN(c.ffn_width, TowerNumber(tower, "feed_forward_length", 1, kMaxFfnWidth));
  RL_ASSIGN_OR_RETURN(c.eps, TowerEps(tower));
  RL_RETURN_IF_ERROR(CheckEncoder(c));
  c.standardize = tower.file->FindTensor("v.std_bias") != nullptr;
  return OkStatus();
}

Result<VisionConfig> ReadVisionConfig(const FoundTower& tower, int64_t text_width) {
  VisionConfig c{.unified = tower.unified, .text_width = text_width};
  RL_RETURN_IF_ERROR(CheckProjection(tower, {kVisionProjector}, text_width));
  RL_ASSIGN_OR_RETURN(c.width, TowerNumber(tower, "embedding_length", 1, kMaxWidth));
  RL_ASSIGN_OR_RETURN(c.patch, TowerNumber(tower, "patch_size", 1, kMaxPatch));
  RL_ASSIGN_OR_RETURN(c.pool,
                      TowerNumber(tower, "projector.scale_factor", 1, kMaxPool, kDefaultPool));
  RL_ASSIGN_OR_RETURN(c.positions, ReadPositions(*tower.file, c.width));
  if (!c.unified) RL_RETURN_IF_ERROR(ReadEncoder(tower, c));
  if (c.unified) c.MergePatches();
  return c;
}

void AddVisionBlock(const VisionConfig& c, int64_t index, std::vector<TensorSpec>& specs) {
  LayerTable table(specs, fmt::format("v.blk.{}.", index));
  table.Add("ln1.weight", {c.width});
  for (const std::string_view name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
    table.Add(fmt::format("{}.weight", name), {c.width, c.width});
  }
  table.Add("attn_q_norm.weight", {c.head_dim()});
  table.Add("attn_k_norm.weight", {c.head_dim()});
  table.Add("attn_post_norm.weight", {c.width});
  table.Add("ln2.weight", {c.width});
  table.Add("ffn_gate.weight", {c.ffn_width, c.width});
  table.Add("ffn_up.weight", {c.ffn_width, c.width});
  table.Add("ffn_down.weight", {c.width, c.ffn_width});
  table.Add("ffn_post_norm.weight", {c.width});
  table.Add("out_scale.weight", {1}, Presence::kOptional);
}

}  // namespace

Status CheckEncoder(const VisionConfig& c) {
  // Half of a head turns by the column of a patch and half by its row, both in pairs.
  constexpr int64_t kTurnedDims = 4;
  if (c.width % (c.heads * kTurnedDims) == 0 && c.head_dim() <= kMaxHeadDim) return OkStatus();
  return BadHparam(
      "the image tower has width {} and {} heads, expected heads of a multiple of {} dimensions, "
      "at most {}",
      c.width, c.heads, kTurnedDims, kMaxHeadDim);
}

std::vector<std::string> BlockLinears(const VisionConfig& c) {
  return LayersOfBlocks("v.blk.", c.layers, kVisionLinears);
}

std::vector<TensorSpec> ExpectedTensors(const VisionConfig& c) {
  std::vector<TensorSpec> specs;
  LayerTable table(specs, "");
  if (c.unified) {
    table.Add("v.patch_embd.weight", {c.width, c.patch_values()});
    table.Add("v.patch_embd.bias", {c.width});
    for (int i = 1; i <= 3; ++i) {
      const int64_t width = i == 1 ? c.patch_values() : c.width;
      table.Add(fmt::format("v.patch_norm.{}.weight", i), {width});
      table.Add(fmt::format("v.patch_norm.{}.bias", i), {width});
    }
  } else {
    table.Add("v.patch_embd.weight", {c.width, 3, c.patch, c.patch});
  }
  table.Add(kPositions, {2, c.positions, c.width});
  for (int64_t i = 0; i < c.layers; ++i) AddVisionBlock(c, i, specs);
  if (c.standardize) {
    table.Add("v.std_bias", {c.width});
    table.Add("v.std_scale", {c.width});
  }
  table.Add(kVisionProjector, {c.text_width, c.width});
  return specs;
}

Result<std::optional<VisionTower>> ReadVisionTower(const GgufFile& file, int64_t text_width) {
  RL_ASSIGN_OR_RETURN(const auto found, FindTower(file, TowerKind::kVision));
  if (!found) return std::optional<VisionTower>();
  VisionTower tower;
  RL_ASSIGN_OR_RETURN(tower.config, ReadVisionConfig(*found, text_width));
  RL_ASSIGN_OR_RETURN(tower.weights,
                      ModelWeights::FromFile(ExpectedTensors(tower.config), file,
                                             {.network = "Gemma 4 image tower", .part = true}));
  RL_ASSIGN_OR_RETURN(tower.bounds, ReadClipBounds(file, ClippedVisionLayers(tower.config),
                                                   found->ollama ? "v.clamp_data" : ""));
  return std::optional(std::move(tower));
}

}  // namespace rullama::gemma4
