// Small drafters in memory for tests: for a model as that of Gemma4TestFile::Small(), in each of
// the three spellings.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/gemma4/graph/gemma4_test_file.h"

namespace rullama::gemma4 {

struct SmallDrafter {
  static constexpr uint64_t kWidth = 16;
  static constexpr uint64_t kClusters = 5;
  static constexpr uint64_t kClusterSize = Gemma4TestFile::kVocabulary / kClusters;
  // The tokens of each cluster, cluster by cluster.
  static std::vector<int32_t> Ordering() {
    std::vector<int32_t> ids;
    for (uint64_t cluster = 0; cluster < kClusters; ++cluster) {
      for (uint64_t i = 0; i < kClusterSize; ++i) {
        ids.push_back(static_cast<int32_t>(i * kClusters + cluster));
      }
    }
    return ids;
  }
  // The cluster of each token.
  static std::vector<int32_t> Clusters() {
    std::vector<int32_t> clusters;
    for (uint64_t token = 0; token < Gemma4TestFile::kVocabulary; ++token) {
      clusters.push_back(static_cast<int32_t>(token % kClusters));
    }
    return clusters;
  }

  // A sliding and a global layer, and a head with ordered embeddings.
  static Gemma4TestFile In(std::string_view dialect) {
    Gemma4TestFile file;
    SetMetadata(dialect, file);
    file.Add("token_embd.weight", {kWidth, Gemma4TestFile::kVocabulary});
    file.Add("rope_freqs.weight", {Gemma4TestFile::kGlobalDim / 2});
    AddLayer(file, 0, Gemma4TestFile::kSlidingDim);
    AddLayer(file, 1, Gemma4TestFile::kGlobalDim);
    file.Add("output_norm.weight", {kWidth});
    const Names names = NamesIn(dialect);
    file.Add(names.pre, {2 * Gemma4TestFile::kWidth, kWidth});
    file.Add(names.post, {kWidth, Gemma4TestFile::kWidth});
    file.Add(names.centroids, {kWidth, kClusters});
    AddIds(names.ordering, dialect == "gemma4_mtp" ? Clusters() : Ordering(), file);
    return file;
  }

  template <typename T>
  static void AddIds(std::string name, const std::vector<T>& ids, Gemma4TestFile& file) {
    std::vector<std::byte> bytes(ids.size() * sizeof(T));
    std::memcpy(bytes.data(), ids.data(), bytes.size());
    file.tensors.push_back({.name = std::move(name),
                            .dims = {ids.size()},
                            .dtype = sizeof(T) == 4 ? DType::kI32 : DType::kI64,
                            .bytes = std::move(bytes)});
  }

  struct Names {
    std::string width, pre, post, centroids, ordering;
  };
  static Names NamesIn(std::string_view dialect) {
    if (dialect == "gemma4_assistant") {
      return {"n_embd_backbone", "mtp.pre_projection.weight", "mtp.post_projection.weight",
              "mtp.centroids.weight", "mtp.token_ordering.weight"};
    }
    if (dialect == "gemma4_mtp") {
      return {"backbone_embedding_length", "mtp_pre_proj.weight", "mtp_post_proj.weight",
              "mtp_centroids.weight", "mtp_token_ordering.weight"};
    }
    return {"embedding_length_out", "nextn.pre_projection.weight", "nextn.post_projection.weight",
            "masked_embd_centroids.weight", "masked_embd_ordering"};
  }

 private:
  static void SetMetadata(std::string_view dialect, Gemma4TestFile& file) {
    const auto set = [&](std::string_view suffix, auto value) {
      file.writer.Set(std::string(dialect) + "." + std::string(suffix), value);
    };
    file.writer.Set("general.architecture", dialect);
    set("block_count", uint32_t{2});
    set("embedding_length", uint32_t{kWidth});
    set(NamesIn(dialect).width, static_cast<uint32_t>(Gemma4TestFile::kWidth));
    set("context_length", uint32_t{64});
    set("feed_forward_length", uint32_t{24});
    set("attention.head_count", uint32_t{2});
    set("attention.head_count_kv", uint32_t{1});
    set("attention.key_length", static_cast<uint32_t>(Gemma4TestFile::kGlobalDim));
    set("attention.key_length_swa", static_cast<uint32_t>(Gemma4TestFile::kSlidingDim));
    set("attention.layer_norm_rms_epsilon", 1e-6F);
    set("attention.sliding_window", uint32_t{8});
    set("rope.freq_base", 1e6F);
    set("rope.freq_base_swa", 1e4F);
    set("centroid_top_k", uint32_t{2});
    const bool pattern[] = {true, false};
    file.writer.SetArray(std::string(dialect) + ".attention.sliding_window_pattern",
                         std::span<const bool>(pattern));
  }

  static void AddLayer(Gemma4TestFile& file, uint64_t index, uint64_t dim) {
    const std::string p = "blk." + std::to_string(index) + ".";
    file.Add(p + "attn_norm.weight", {kWidth});
    file.Add(p + "attn_q.weight", {kWidth, 2 * dim});
    file.Add(p + "attn_q_norm.weight", {dim});
    file.Add(p + "attn_output.weight", {2 * dim, kWidth});
    file.Add(p + "post_attention_norm.weight", {kWidth});
    file.Add(p + "ffn_norm.weight", {kWidth});
    file.Add(p + "ffn_gate.weight", {kWidth, 24});
    file.Add(p + "ffn_up.weight", {kWidth, 24});
    file.Add(p + "ffn_down.weight", {24, kWidth});
    file.Add(p + "post_ffw_norm.weight", {kWidth});
    file.Add(p + "layer_output_scale.weight", {1});
  }
};

}  // namespace rullama::gemma4
