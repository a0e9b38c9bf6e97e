#include "models/gemma4/drafter/drafter_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/error_of.h"
#include "core/gguf/loaded_tensor.h"
#include "models/common/graph/hparams.h"
#include "models/gemma4/graph/layer_metadata.h"

namespace rullama::gemma4 {
namespace {

using BadOrdering = ErrorOf<ErrorKind::kModelFile, "draft.ordering">;

// Its ordering names the cluster of each token; those of the others list the tokens by cluster.
constexpr std::string_view kInverseOrdering = "gemma4_mtp";

constexpr std::array<std::string_view, 3> kTargetWidthKeys = {
    "embedding_length_out", "n_embd_backbone", "backbone_embedding_length"};
constexpr std::array<std::string_view, 5> kOrderingNames = {
    kOrdering, "masked_embd_ordering.weight", "mtp.token_ordering.weight",
    "mtp_token_ordering.weight", "nextn.token_ordering.weight"};
constexpr std::array<std::string_view, 3> kCentroidNames = {
    "mtp.centroids.weight", "mtp_centroids.weight", "nextn.centroids.weight"};

constexpr int64_t kUsualChosenClusters = 32;

template <size_t kCount>
const TensorInfo* FindAny(const GgufFile& file, const std::array<std::string_view, kCount>& names) {
  for (const std::string_view name : names) {
    if (const TensorInfo* tensor = file.FindTensor(name)) return tensor;
  }
  return nullptr;
}

const TensorInfo* FindCentroids(const GgufFile& file) {
  const TensorInfo* tensor = file.FindTensor(kCentroids);
  return tensor != nullptr ? tensor : FindAny(file, kCentroidNames);
}

Result<int64_t> ReadTargetWidth(const GgufFile& file) {
  for (const std::string_view suffix : kTargetWidthKeys) {
    const std::string key = HparamKey(file, suffix);
    if (!file.Has(key)) continue;
    RL_ASSIGN_OR_RETURN(const uint32_t width, file.GetU32(key));
    RL_RETURN_IF_ERROR(InRange<int64_t>("width of the target", width, 1, kMaxWidth));
    return int64_t{width};
  }
  return BadHparam("none of the keys '{}', '{}' and '{}' says the width of the target",
                   HparamKey(file, kTargetWidthKeys[0]), HparamKey(file, kTargetWidthKeys[1]),
                   HparamKey(file, kTargetWidthKeys[2]));
}

Status ReadKvHeads(const GgufFile& file, DrafterConfig& config) {
  const std::string key = HparamKey(file, "attention.head_count_kv");
  std::vector<Gemma4Layer>& layers = config.network.layers;
  config.tells_kv_heads = file.Has(key);
  std::vector<uint32_t> counts(layers.size(), 1);
  if (config.tells_kv_heads) {
    RL_ASSIGN_OR_RETURN(counts, file.GetU32PerLayer(key, layers.size()));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].kv_heads = counts[i];
    layers[i].cache_layer = static_cast<int64_t>(i);
  }
  return OkStatus();
}

Result<std::vector<int64_t>> ReadIds(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<int64_t> ids;
  RL_ASSIGN_OR_RETURN(const LoadedTensor loaded, LoadedTensor::Load(file, tensor));
  if (tensor.dtype == DType::kI32) {
    const GgufNumbers<int32_t> stored(loaded.bytes());
    for (size_t i = 0; i < stored.size(); ++i) ids.push_back(stored[i]);
    return ids;
  }
  if (tensor.dtype == DType::kI64) {
    const GgufNumbers<int64_t> stored(loaded.bytes());
    for (size_t i = 0; i < stored.size(); ++i) ids.push_back(stored[i]);
    return ids;
  }
  return BadOrdering("tensor '{}' is {}, expected i32 or i64", tensor.name, NameOf(tensor.dtype));
}

// The tokens by cluster from the cluster of each token.
Result<std::vector<int64_t>> Inverted(const std::vector<int64_t>& cluster_of, int64_t clusters) {
  const auto size = std::ssize(cluster_of) / clusters;
  std::vector<int64_t> next(static_cast<size_t>(clusters));
  for (int64_t cluster = 0; cluster < clusters; ++cluster) {
    next[static_cast<size_t>(cluster)] = cluster * size;
  }
  std::vector<int64_t> ids(cluster_of.size());
  for (size_t token = 0; token < cluster_of.size(); ++token) {
    const int64_t cluster = cluster_of[token];
    if (cluster < 0 || cluster >= clusters) {
      return BadOrdering("token {} is in cluster {}, expected 0 to {}", token, cluster,
                         clusters - 1);
    }
    int64_t& at = next[static_cast<size_t>(cluster)];
    if (at == (cluster + 1) * size) {
      return BadOrdering("cluster {} has more than {} tokens, expected the same number in each",
                         cluster, size);
    }
    ids[static_cast<size_t>(at++)] = static_cast<int64_t>(token);
  }
  return ids;
}

Status CheckPermutation(const std::vector<int64_t>& ids) {
  std::vector<bool> seen(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id >= std::ssize(ids) || seen[static_cast<size_t>(id)]) {
      return BadOrdering("the ordering has token {} twice or outside the vocabulary of {} tokens",
                         id, ids.size());
    }
    seen[static_cast<size_t>(id)] = true;
  }
  return OkStatus();
}

// Nothing if the file has no such head.
Result<std::optional<OrderedHead>> ReadOrderedHead(const GgufFile& file, int64_t vocabulary) {
  const TensorInfo* centroids = FindCentroids(file);
  const TensorInfo* ordering = FindAny(file, kOrderingNames);
  if (centroids == nullptr && ordering == nullptr) return std::nullopt;
  if (centroids == nullptr || ordering == nullptr) {
    return BadOrdering("the file has tensor '{}' only, expected centroids and token ordering",
                       centroids != nullptr ? centroids->name : ordering->name);
  }
  OrderedHead head;
  if (centroids->rank != 2 || std::cmp_greater(centroids->dims[1], vocabulary) ||
      ordering->elements() != static_cast<uint64_t>(vocabulary)) {
    return BadOrdering("{} centroids and {} ordered tokens do not divide {} tokens",
                       centroids->dims[1], ordering->elements(), vocabulary);
  }
  head.clusters = static_cast<int64_t>(centroids->dims[1]);
  RL_ASSIGN_OR_RETURN(head.chosen,
                      U32Or(file, HparamKey(file, "centroid_top_k"), kUsualChosenClusters));
  if (vocabulary % head.clusters != 0 || head.chosen < 1 || head.chosen > head.clusters) {
    return BadOrdering(
        "{} of {} clusters of {} tokens are chosen, expected 1 or more clusters of "
        "the same size",
        head.chosen, head.clusters, vocabulary);
  }
  RL_ASSIGN_OR_RETURN(std::vector<int64_t> ids, ReadIds(file, *ordering));
  RL_ASSIGN_OR_RETURN(const std::string_view dialect, file.GetString("general.architecture"));
  if (dialect == kInverseOrdering) {
    RL_ASSIGN_OR_RETURN(ids, Inverted(ids, head.clusters));
  }
  RL_RETURN_IF_ERROR(CheckPermutation(ids));
  head.ordering.assign(ids.begin(), ids.end());
  return head;
}

Result<DrafterConfig> ReadConfig(const GgufFile& file) {
  DrafterConfig config;
  Gemma4Config& network = config.network;
  RL_RETURN_IF_ERROR(ReadDimensions(file, network));
  if (network.ple_dim != 0) {
    return BadHparam("a drafter has per-layer embeddings of {} dims, expected none",
                     network.ple_dim);
  }
  RL_ASSIGN_OR_RETURN(config.target_width, ReadTargetWidth(file));
  RL_ASSIGN_OR_RETURN(const FileVocabulary vocabulary, ReadFileVocabulary(file));
  network.vocabulary = vocabulary.size;
  RL_RETURN_IF_ERROR(ReadLayerShapes(file, network));
  RL_RETURN_IF_ERROR(ReadKvHeads(file, config));
  RL_RETURN_IF_ERROR(ReadRope(file, network));
  RL_RETURN_IF_ERROR(ValidateConfig(network));
  return config;
}

uint64_t BytesOf(const WeightBinding& binding) {
  uint64_t elements = 1;
  for (const int64_t dim : binding.dims) elements *= static_cast<uint64_t>(dim);
  return RowBytes(binding.dtype, elements);
}

AssistantFacts FactsOf(const DrafterConfig& config, const ModelWeights& weights) {
  AssistantFacts facts{.layers = config.network.layer_count(),
                       .width = config.network.width,
                       .target_width = config.target_width,
                       .vocabulary = config.network.vocabulary};
  for (const auto& [name, binding] : weights.bindings()) {
    uint64_t elements = 1;
    for (const int64_t dim : binding.dims) elements *= static_cast<uint64_t>(dim);
    facts.parameters += elements;
    facts.bytes += BytesOf(binding);
  }
  facts.step_bytes = facts.bytes;
  if (weights.Find("output.weight") != nullptr) {
    facts.step_bytes -= BytesOf(*weights.Find("token_embd.weight"));
  }
  if (!config.ordered) return facts;
  facts.clusters = config.ordered->clusters;
  facts.chosen_clusters = config.ordered->chosen;
  const uint64_t cluster_bytes = BytesOf(HeadOf(weights)) / static_cast<uint64_t>(facts.clusters);
  facts.step_bytes -= cluster_bytes * static_cast<uint64_t>(facts.clusters - facts.chosen_clusters);
  facts.bytes += config.ordered->ordering.size() * sizeof(int32_t);
  return facts;
}

}  // namespace

std::vector<TensorSpec> ExpectedTensors(const DrafterConfig& config) {
  const Gemma4Config& c = config.network;
  std::vector<TensorSpec> specs;
  LayerTable table(specs, "");
  table.Add("token_embd.weight", {c.vocabulary, c.width});
  table.Add("rope_freqs.weight", {c.n_rot_global / 2}, Presence::kUsual);
  table.Add(
      kPreProjection, {c.width, 2 * config.target_width}, Presence::kRequired,
      {"mtp.pre_projection.weight", "mtp_pre_proj.weight", "blk.0.nextn.pre_projection.weight"});
  table.Add(
      kPostProjection, {config.target_width, c.width}, Presence::kRequired,
      {"mtp.post_projection.weight", "mtp_post_proj.weight", "blk.0.nextn.post_projection.weight"});
  if (config.ordered) {
    table.Add(kCentroids, {config.ordered->clusters, c.width}, Presence::kRequired,
              {kCentroidNames[0], kCentroidNames[1], kCentroidNames[2]});
  }
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    LayerTable layer(specs, i);
    const int64_t q_width = c.heads * c.layer(i).head_dim;
    layer.Add("attn_norm.weight", {c.width});
    layer.Add("attn_q.weight", {q_width, c.width});
    layer.Add("attn_q_norm.weight", {c.layer(i).head_dim});
    layer.Add("attn_output.weight", {c.width, q_width});
    layer.Add("post_attention_norm.weight", {c.width}, Presence::kRequired,
              {"attn_post_norm.weight"});
    layer.AddFeedForward(c.width, c.layer(i).ffn_width);
    layer.Add("layer_output_scale.weight", {1}, Presence::kUsual,
              {"layer_scalar.weight", "layer_scalar"});
  }
  table.Add("output_norm.weight", {c.width});
  table.Add("output.weight", {c.vocabulary, c.width}, Presence::kOptional);
  return specs;
}

const WeightBinding& HeadOf(const ModelWeights& weights) {
  const WeightBinding* own = weights.Find("output.weight");
  return own != nullptr ? *own : *weights.Find("token_embd.weight");
}

Result<DrafterFile> ReadDrafter(const GgufFile& file, AssistantOrigin origin) {
  DrafterFile drafter;
  RL_ASSIGN_OR_RETURN(drafter.config, ReadConfig(file));
  auto ordered = ReadOrderedHead(file, drafter.config.network.vocabulary);
  if (ordered) {
    drafter.config.ordered = *std::move(ordered);
  } else if (origin == AssistantOrigin::kNamed) {
    return tl::unexpected(std::move(ordered).error());
  } else {
    drafter.warnings.push_back(
        fmt::format("the drafter computes all tokens: {}", ordered.error().message));
  }
  // Files may have keys and values, which no layer of a drafter uses.
  RL_ASSIGN_OR_RETURN(drafter.weights,
                      ModelWeights::FromFile(ExpectedTensors(drafter.config), file,
                                             {.network = "Gemma 4 drafter", .part = true}));
  drafter.facts = FactsOf(drafter.config, drafter.weights);
  return drafter;
}

}  // namespace rullama::gemma4
