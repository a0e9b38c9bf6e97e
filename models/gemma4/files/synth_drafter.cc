#include "models/gemma4/files/synth_drafter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "models/common/files/synth_file.h"
#include "models/gemma4/drafter/partner.h"
#include "models/gemma4/files/synth_metadata.h"

namespace rullama::gemma4 {
namespace {

// Of the drafters that are published; all have four layers.
struct DrafterShape {
  int64_t target_width, width, ffn_width, heads;
  bool ordered;  // E2B and E4B
};
constexpr std::array<DrafterShape, 5> kShapes = {{{1536, 256, 2048, 4, true},
                                                  {2560, 256, 2048, 4, true},
                                                  {3840, 1024, 8192, 16, false},
                                                  {2816, 1024, 8192, 16, false},
                                                  {5376, 1024, 8192, 32, false}}};
constexpr int64_t kLayers = 4;
constexpr int64_t kClusters = 2048;
constexpr int64_t kChosenClusters = 32;
// Far from 1, as in published files.
constexpr float kOutputScale = 0.25F;

OrderedHead MakeClusters(int64_t vocabulary) {
  // A small vocabulary, as tests have, is divided by the largest number of clusters that fits.
  int64_t clusters = kClusters;
  while (vocabulary % clusters != 0 || clusters > vocabulary) clusters /= 2;
  OrderedHead head{.clusters = clusters, .chosen = std::min(kChosenClusters, clusters)};
  // Each cluster has every `clusters`-th token.
  for (int64_t cluster = 0; cluster < clusters; ++cluster) {
    for (int64_t token = cluster; token < vocabulary; token += clusters) {
      head.ordering.push_back(static_cast<int32_t>(token));
    }
  }
  return head;
}

std::vector<float> DrafterVectors(const TensorSpec& spec, const DrafterConfig& config) {
  if (spec.name == "rope_freqs.weight") return config.network.rope_factors;
  if (spec.name.ends_with("layer_output_scale.weight")) return {kOutputScale};
  if (spec.name != kOrdering) return {};
  // The four bytes of an id are written as they are.
  std::vector<float> ids(config.ordered->ordering.size());
  std::ranges::transform(config.ordered->ordering, ids.begin(),
                         [](int32_t id) { return std::bit_cast<float>(id); });
  return ids;
}

Status WriteDrafterMetadata(const DrafterConfig& config, const SyntheticOptions& options,
                            GgufWriter& writer) {
  const std::string prefix = std::string(kDrafterArchitectures.front()) + ".";
  RL_RETURN_IF_ERROR(WriteMetadata(config.network, kDrafterArchitectures.front(), options, writer));
  const auto layers = static_cast<uint32_t>(config.network.layer_count());
  RL_RETURN_IF_ERROR(writer.Set(prefix + "attention.shared_kv_layers", layers));
  RL_RETURN_IF_ERROR(writer.Set(prefix + "nextn_predict_layers", layers));
  RL_RETURN_IF_ERROR(
      writer.Set(prefix + "embedding_length_out", static_cast<uint32_t>(config.target_width)));
  if (!config.ordered) return OkStatus();
  RL_RETURN_IF_ERROR(
      writer.Set(prefix + "n_centroids", static_cast<uint32_t>(config.ordered->clusters)));
  RL_RETURN_IF_ERROR(writer.Set(prefix + "use_ordered_embeddings", true));
  return writer.Set(prefix + "centroid_top_k", static_cast<uint32_t>(config.ordered->chosen));
}

}  // namespace

Result<DrafterConfig> PublishedDrafter(const Gemma4Config& target) {
  const auto* const shape = std::ranges::find(kShapes, target.width, &DrafterShape::target_width);
  if (shape == kShapes.end() || target.denoises()) {
    return MakeError(ErrorKind::kUsage, "draft.target",
                     "no drafter is published for models of width {}{}, expected the shapes of "
                     "E2B, E4B, 12B, 26B-A4B or 31B",
                     target.width, target.denoises() ? " that denoise" : "");
  }
  DrafterConfig drafter{.network = target, .target_width = target.width, .tells_kv_heads = true};
  Gemma4Config& network = drafter.network;
  network.width = shape->width;
  network.heads = shape->heads;
  network.ple_dim = 0;
  network.final_softcap = 0;
  network.experts = {};
  network.suppress_tokens = {};
  network.layers.assign(kLayers, {.ffn_width = shape->ffn_width});
  for (int64_t i = 0; i < kLayers; ++i) {
    Gemma4Layer& layer = network.layers[static_cast<size_t>(i)];
    layer.kind = i + 1 < kLayers ? LayerKind::kSliding : LayerKind::kGlobal;
    const int64_t owner = CacheForDrafter(target, layer.kind);
    if (owner < 0) continue;
    layer.kv_heads = target.layer(owner).kv_heads;
    layer.head_dim = target.layer(owner).head_dim;
    layer.cache_layer = i;
  }
  if (shape->ordered) drafter.ordered = MakeClusters(network.vocabulary);
  RL_RETURN_IF_ERROR(CheckPartner(drafter, target));
  return drafter;
}

Status WriteSyntheticDrafter(const DrafterConfig& config, const SyntheticOptions& options,
                             const std::filesystem::path& path) {
  SyntheticFile file{
      .architecture = kDrafterArchitectures.front(),
      .file_type = options.mix.file_type,
      .tensors = ExpectedTensors(config),
      .write_metadata =
          [&](GgufWriter& writer) { return WriteDrafterMetadata(config, options, writer); },
      .vector_values = [&](const TensorSpec& spec) { return DrafterVectors(spec, config); }};
  std::erase_if(file.tensors,
                [](const TensorSpec& spec) { return spec.presence == Presence::kOptional; });
  file.dtypes = SyntheticTypes(options.mix, file.tensors, config.network.layer_count(), 0);
  if (config.ordered) {
    file.tensors.push_back({.name = std::string(kOrdering),
                            .alternatives = {},
                            .dims = {std::ssize(config.ordered->ordering)}});
    file.dtypes.push_back(DType::kI32);
  }
  return WriteSyntheticFile(file, options, path);
}

}  // namespace rullama::gemma4
