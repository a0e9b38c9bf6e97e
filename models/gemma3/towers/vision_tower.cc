#include "models/gemma3/towers/vision_tower.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "models/common/graph/hparams.h"
#include "models/common/towers/tower_file.h"
#include "models/gemma3/graph/config.h"

namespace rullama::gemma3 {
namespace {

constexpr int64_t kMaxSide = 4096;
constexpr int64_t kMaxPatch = 64;
constexpr int64_t kMaxPool = 8;

constexpr std::array<std::string_view, 1> kTypes = {kVisionProjectorType};
constexpr ProjectorNames kNames = {
    .key = "vision", .has = "clip.has_vision_encoder", .projectors = kTypes, .family = "Gemma 3"};

// The projector in the spellings of llama.cpp and Ollama. Its rows are those of its input: the
// width of the text model is the dimension that runs fastest.
constexpr std::array<Projector, 2> kProjectors = {
    {{.tensor = "mm.input_projection.weight", .axis = 0},
     {.tensor = "mm.mm_input_projection.weight", .axis = 0}}};

const Projector* FindProjector(const GgufFile& file) {
  const auto* const found = std::ranges::find_if(
      kProjectors, [&](const Projector& p) { return file.FindTensor(p.tensor) != nullptr; });
  return found == kProjectors.end() ? nullptr : found;
}

Result<std::optional<TowerFile>> FindVision(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const bool alone, IsProjectorFile(file));
  if (alone) return FindInProjectorFile(file, kNames);
  RL_ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  if (architecture != kGemma3Architecture || FindProjector(file) == nullptr) {
    return std::optional<TowerFile>();
  }
  return std::optional(TowerFile{.file = &file,
                                 .prefix = fmt::format("{}.vision.", kGemma3Architecture),
                                 .ollama = true,
                                 .projector = kVisionProjectorType});
}

// Pixels become numbers from -1 to 1.
Status CheckColours(const TowerFile& tower) {
  constexpr float kHalf = 0.5F;
  for (const std::string_view suffix : {"image_mean", "image_std"}) {
    const std::string key = tower.Key(suffix);
    RL_ASSIGN_OR_RETURN(const auto values, tower.file->FindF32Array(key));
    if (!values) continue;
    for (size_t i = 0; i < values->size(); ++i) {
      if ((*values)[i] != kHalf) {
        return BadHparam("key '{}' has {}, expected {} for each colour", key, (*values)[i], kHalf);
      }
    }
  }
  return OkStatus();
}

// llama.cpp writes the sides of a square, Ollama how many squares there are.
Result<int64_t> ReadPool(const TowerFile& tower, const VisionConfig& c) {
  if (!tower.ollama) {
    return TowerNumber(tower, "projector.scale_factor", 1, kMaxPool, kDefaultPool);
  }
  const std::string key = fmt::format("{}.mm.tokens_per_image", kGemma3Architecture);
  RL_ASSIGN_OR_RETURN(const int64_t tokens, U32Or(*tower.file, key, 0));
  if (tokens == 0) return kDefaultPool;
  for (int64_t pool = 1; pool <= kMaxPool; ++pool) {
    if (c.patches() == tokens * pool * pool) return pool;
  }
  return BadHparam(
      "key '{}' is {}, expected the {} patches of a picture divided by a square of 1 "
      "to {}",
      key, tokens, c.patches(), kMaxPool);
}

Result<VisionConfig> ReadVisionConfig(const TowerFile& tower, int64_t text_width) {
  VisionConfig c{.text_width = text_width};
  const Projector* projector = FindProjector(*tower.file);
  RL_RETURN_IF_ERROR(
      CheckProjection(tower, projector == nullptr ? kProjectors.front() : *projector, text_width));
  RL_ASSIGN_OR_RETURN(c.side, TowerNumber(tower, "image_size", 1, kMaxSide));
  RL_ASSIGN_OR_RETURN(c.patch, TowerNumber(tower, "patch_size", 1, kMaxPatch));
  RL_ASSIGN_OR_RETURN(c.width, TowerNumber(tower, "embedding_length", 1, kMaxWidth));
  RL_ASSIGN_OR_RETURN(c.layers, TowerNumber(tower, "block_count", 1, kMaxLayers));
  RL_ASSIGN_OR_RETURN(c.heads, TowerNumber(tower, "attention.head_count", 1, kMaxHeads));
  RL_ASSIGN_OR_RETURN(c.ffn_width, TowerNumber(tower, "feed_forward_length", 1, kMaxFfnWidth));
  RL_ASSIGN_OR_RETURN(c.eps, TowerEps(tower));
  RL_RETURN_IF_ERROR(CheckColours(tower));
  RL_ASSIGN_OR_RETURN(c.pool, ReadPool(tower, c));
  RL_RETURN_IF_ERROR(CheckVision(c));
  return c;
}

// A matrix or a norm with its bias, under both spellings.
void AddBiased(LayerTable& table, std::string_view name, std::vector<int64_t> dims,
               std::string_view in_ollama) {
  const int64_t rows = dims.front();
  table.Add(fmt::format("{}.weight", name), std::move(dims), Presence::kRequired,
            {fmt::format("{}.weight", in_ollama)});
  table.Add(fmt::format("{}.bias", name), {rows}, Presence::kRequired,
            {fmt::format("{}.bias", in_ollama)});
}

// The feed-forward of a file that has the names of its two layers exchanged.
void AddExchanged(LayerTable& table, std::string_view name, std::vector<int64_t> dims,
                  std::string_view other) {
  const int64_t rows = dims.front();
  table.AddRenamed(fmt::format("{}.weight", name), std::move(dims),
                   fmt::format("{}.weight", other));
  table.AddRenamed(fmt::format("{}.bias", name), {rows}, fmt::format("{}.bias", other));
}

void AddBlock(const VisionConfig& c, bool exchanged, int64_t index,
              std::vector<TensorSpec>& specs) {
  LayerTable table(specs, fmt::format("v.blk.{}.", index));
  AddBiased(table, "ln1", {c.width}, "layer_norm1");
  for (const std::string_view name : {"attn_q", "attn_k", "attn_v"}) {
    AddBiased(table, name, {c.width, c.width}, name);
  }
  AddBiased(table, "attn_out", {c.width, c.width}, "attn_output");
  AddBiased(table, "ln2", {c.width}, "layer_norm2");
  if (exchanged) {
    AddExchanged(table, "ffn_up", {c.ffn_width, c.width}, "ffn_down");
    AddExchanged(table, "ffn_down", {c.width, c.ffn_width}, "ffn_up");
    return;
  }
  AddBiased(table, "ffn_up", {c.ffn_width, c.width}, "mlp.fc1");
  AddBiased(table, "ffn_down", {c.width, c.ffn_width}, "mlp.fc2");
}

std::vector<TensorSpec> TensorsOf(const VisionConfig& c, bool exchanged) {
  std::vector<TensorSpec> specs;
  LayerTable table(specs, "");
  table.Add("v.patch_embd.weight", {c.width, 3, c.patch, c.patch}, Presence::kRequired,
            {"v.patch_embedding.weight"});
  table.Add("v.patch_embd.bias", {c.width}, Presence::kRequired, {"v.patch_embedding.bias"});
  table.Add("v.position_embd.weight", {c.patches(), c.width}, Presence::kRequired,
            {"v.position_embedding.weight"});
  for (int64_t i = 0; i < c.layers; ++i) AddBlock(c, exchanged, i, specs);
  AddBiased(table, "v.post_ln", {c.width}, "v.post_layernorm");
  table.Add("mm.soft_emb_norm.weight", {c.width}, Presence::kRequired,
            {"mm.mm_soft_emb_norm.weight"});
  table.Add(kProjectors[0].tensor, {c.width, c.text_width}, Presence::kRequired,
            {kProjectors[1].tensor});
  return specs;
}

// Files of llama.cpp before the middle of 2025 call the first layer of a feed-forward ffn_down.
bool HasExchangedNames(const GgufFile& file, const VisionConfig& c) {
  const TensorInfo* down = file.FindTensor("v.blk.0.ffn_down.weight");
  return down != nullptr && c.ffn_width != c.width && std::cmp_equal(down->dims[0], c.width);
}

}  // namespace

Result<std::optional<int64_t>> TextWidthOf(const GgufFile& file) {
  const Projector* projector = FindProjector(file);
  if (projector == nullptr) return std::optional<int64_t>();
  return ProjectedWidth(file, *projector);
}

Status CheckVision(const VisionConfig& c) {
  if (c.side % (c.patch * c.pool) != 0) {
    return BadHparam(
        "pictures of the image tower are {} pixels wide, expected a multiple of {}, "
        "the {} patches of {} pixels of a soft token",
        c.side, c.patch * c.pool, c.pool, c.patch);
  }
  if (c.width % c.heads != 0 || c.head_dim() > kMaxHeadDim) {
    return BadHparam(
        "the image tower has width {} and {} heads, expected a multiple of the heads "
        "and heads of at most {} dimensions",
        c.width, c.heads, kMaxHeadDim);
  }
  return OkStatus();
}

std::vector<TensorSpec> ExpectedTensors(const VisionConfig& config) {
  return TensorsOf(config, /*exchanged=*/false);
}

Result<std::optional<VisionTower>> ReadVisionTower(const GgufFile& file, int64_t text_width) {
  RL_ASSIGN_OR_RETURN(const auto found, FindVision(file));
  if (!found) return std::optional<VisionTower>();
  VisionTower tower;
  RL_ASSIGN_OR_RETURN(tower.config, ReadVisionConfig(*found, text_width));
  const bool exchanged = HasExchangedNames(file, tower.config);
  RL_ASSIGN_OR_RETURN(tower.weights,
                      ModelWeights::FromFile(TensorsOf(tower.config, exchanged), file,
                                             {.network = "Gemma 3 image tower", .part = true}));
  return std::optional(std::move(tower));
}

}  // namespace rullama::gemma3
