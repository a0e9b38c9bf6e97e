#include "models/gemma4/towers/audio_tower.h"

#include <string>
#include <utility>

#include "models/common/graph/hparams.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {
namespace {

constexpr int64_t kMaxKernel = 31;
constexpr int64_t kMaxChannels = 4096;

constexpr std::array<std::string_view, 10> kAudioLinears = {
    "attn_q",   "attn_k", "attn_v",   "attn_out", "conv_pw1",
    "conv_pw2", "ffn_up", "ffn_up_1", "ffn_down", "ffn_down_1"};

// Dimension `axis` (fastest first) of a tensor, 1 to `high`.
Result<int64_t> DimOf(const GgufFile& file, std::string_view name, size_t axis, int64_t high) {
  RL_ASSIGN_OR_RETURN(const TensorInfo* tensor, TowerTensor(file, name, "it in an audio tower"));
  if (std::cmp_less_equal(tensor->dims[axis], high)) {
    return static_cast<int64_t>(tensor->dims[axis]);
  }
  return MakeError(ErrorKind::kModelFile, "model.tensor_shape",
                   "dimension {} of tensor '{}' is {}, expected at most {}", axis, name,
                   tensor->dims[axis], high);
}

Result<AudioConfig> ReadAudioConfig(const FoundTower& tower, int64_t text_width) {
  AudioConfig c{.unified = tower.unified, .inputs = kSamplesOfToken, .text_width = text_width};
  RL_RETURN_IF_ERROR(CheckProjection(tower, {kAudioProjector}, text_width));
  if (c.unified) return c;
  const GgufFile& file = *tower.file;
  RL_ASSIGN_OR_RETURN(c.inputs, TowerNumber(tower, "num_mel_bins", kMelBins, kMelBins, kMelBins));
  RL_ASSIGN_OR_RETURN(c.layers, TowerNumber(tower, "block_count", 1, kMaxLayers));
  // An even width: sines and cosines of distances fill one half each.
  RL_ASSIGN_OR_RETURN(c.width, TowerNumber(tower, "embedding_length", 4, kMaxWidth));
  RL_ASSIGN_OR_RETURN(c.heads, TowerNumber(tower, "attention.head_count", 1, kMaxHeads));
  RL_ASSIGN_OR_RETURN(c.ffn_width, TowerNumber(tower, "feed_forward_length", 1, kMaxFfnWidth));
  RL_RETURN_IF_ERROR(CheckConformer(c));
  RL_ASSIGN_OR_RETURN(c.conv_channels[0], DimOf(file, "a.conv1d.0.weight", 3, kMaxChannels));
  RL_ASSIGN_OR_RETURN(c.conv_channels[1], DimOf(file, "a.conv1d.1.weight", 3, kMaxChannels));
  RL_ASSIGN_OR_RETURN(c.kernel, DimOf(file, "a.blk.0.conv_dw.weight", 0, kMaxKernel));
  RL_ASSIGN_OR_RETURN(c.out_width, DimOf(file, kAudioProjector, 0, kMaxWidth));
  return c;
}

// A table of tensors of which Ollama calls some by another name. Both spellings have an `ln2`, of
// different layers, so that they cannot be alternatives of one name.
class SpelledTable : public LayerTable {
 public:
  SpelledTable(std::vector<TensorSpec>& specs, std::string prefix, bool ollama)
      : LayerTable(specs, std::move(prefix)), ollama_(ollama) {}

  void AddSpelled(std::string_view name, std::vector<int64_t> dims, std::string_view in_ollama) {
    ollama_ ? AddRenamed(name, std::move(dims), in_ollama) : Add(name, std::move(dims));
  }

 private:
  bool ollama_;
};

// The tensors of a conformer block.
void AddAudioBlock(const AudioConfig& c, bool ollama, int64_t index,
                   std::vector<TensorSpec>& specs) {
  SpelledTable table(specs, fmt::format("a.blk.{}.", index), ollama);
  for (const std::string_view suffix : {"", "_1"}) {
    table.Add(fmt::format("ffn_norm{}.weight", suffix), {c.width});
    table.Add(fmt::format("ffn_up{}.weight", suffix), {c.ffn_width, c.width});
    table.Add(fmt::format("ffn_down{}.weight", suffix), {c.width, c.ffn_width});
    table.Add(fmt::format("ffn_post_norm{}.weight", suffix), {c.width});
  }
  table.AddSpelled("attn_pre_norm.weight", {c.width}, "ln1.weight");
  for (const std::string_view name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
    table.Add(fmt::format("{}.weight", name), {c.width, c.width});
  }
  table.AddSpelled("attn_k_rel.weight", {c.width, c.width}, "linear_pos.weight");
  table.Add("per_dim_scale.weight", {c.head_dim()});
  table.AddSpelled("attn_post_norm.weight", {c.width}, "ln2.weight");
  table.Add("conv_norm.weight", {c.width});
  table.Add("conv_pw1.weight", {2 * c.width, c.width});
  table.Add("conv_dw.weight", {c.width, c.kernel});
  table.Add("norm_conv.weight", {c.width});
  table.Add("conv_pw2.weight", {c.width, c.width});
  table.AddSpelled("ln2.weight", {c.width}, "layer_pre_norm.weight");
}

std::vector<TensorSpec> SpelledTensors(const AudioConfig& c, bool ollama) {
  std::vector<TensorSpec> specs;
  SpelledTable table(specs, "", ollama);
  if (c.unified) {
    table.Add(kAudioProjector, {c.text_width, c.inputs});
    return specs;
  }
  const auto [first, second] = c.conv_channels;
  const int64_t features = c.inputs / 4 * second;
  table.Add("a.conv1d.0.weight", {first, 1, 3, 3});
  table.Add("a.conv1d.0.norm.weight", {first});
  table.Add("a.conv1d.1.weight", {second, first, 3, 3});
  table.Add("a.conv1d.1.norm.weight", {second});
  table.AddSpelled("a.input_projection.weight", {c.width, features}, "a.pre_encode.out.weight");
  for (int64_t i = 0; i < c.layers; ++i) AddAudioBlock(c, ollama, i, specs);
  table.AddSpelled("a.pre_encode.out.weight", {c.out_width, c.width}, "mm.a.fc.weight");
  table.AddSpelled("a.pre_encode.out.bias", {c.out_width}, "mm.a.fc.bias");
  table.Add(kAudioProjector, {c.text_width, c.out_width});
  return specs;
}

}  // namespace

Status CheckConformer(const AudioConfig& c) {
  if (c.width % 2 == 0 && c.width % c.heads == 0 && c.head_dim() <= kMaxHeadDim) return OkStatus();
  return BadHparam(
      "the audio tower has width {} and {} heads, expected an even width that is a multiple of the "
      "heads",
      c.width, c.heads);
}

std::vector<TensorSpec> ExpectedTensors(const AudioConfig& c) { return SpelledTensors(c, false); }

std::vector<std::string> BlockLinears(const AudioConfig& c) {
  return LayersOfBlocks("a.blk.", c.layers, kAudioLinears);
}

Result<std::optional<AudioTower>> ReadAudioTower(const GgufFile& file, int64_t text_width) {
  RL_ASSIGN_OR_RETURN(const auto found, FindTower(file, TowerKind::kAudio));
  if (!found) return std::optional<AudioTower>();
  AudioTower tower;
  RL_ASSIGN_OR_RETURN(tower.config, ReadAudioConfig(*found, text_width));
  // Ollama's converter keeps the names of an older one.
  const bool ollama = file.FindTensor("mm.a.fc.weight") != nullptr;
  RL_ASSIGN_OR_RETURN(tower.weights,
                      ModelWeights::FromFile(SpelledTensors(tower.config, ollama), file,
                                             {.network = "Gemma 4 audio tower", .part = true}));
  RL_ASSIGN_OR_RETURN(tower.bounds, ReadClipBounds(file, BlockLinears(tower.config), ""));
  return std::optional(std::move(tower));
}

}  // namespace rullama::gemma4
