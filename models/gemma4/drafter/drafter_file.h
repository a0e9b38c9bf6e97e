// The file of an assistant of Gemma 4 (general.architecture "gemma4-assistant"), in the spellings
// of three converters: llama.cpp's, an earlier one's ("gemma4_assistant") and ik_llama.cpp's
// ("gemma4_mtp").
//
// Thread safety: pure functions and value types.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/assistant.h"
#include "models/common/graph/tensor_table.h"
#include "models/gemma4/graph/config.h"

namespace rullama::gemma4 {

// Values of general.architecture.
inline constexpr std::array<std::string_view, 3> kDrafterArchitectures = {
    "gemma4-assistant", "gemma4_assistant", "gemma4_mtp"};

// The names of tensors that a text model does not have, as the tensor table has them.
inline constexpr std::string_view kPreProjection = "nextn.pre_projection.weight";
inline constexpr std::string_view kPostProjection = "nextn.post_projection.weight";
inline constexpr std::string_view kCentroids = "masked_embd_centroids.weight";
inline constexpr std::string_view kOrdering = "masked_embd_ordering";

// A head that computes the tokens of the clusters whose centroids score best.
struct OrderedHead {
  int64_t clusters = 0;
  int64_t chosen = 0;                  // of them for each row
  std::vector<int32_t> ordering = {};  // cluster by cluster, the ids of its tokens

  [[nodiscard]] int64_t cluster_size() const { return std::ssize(ordering) / clusters; }
};

struct DrafterConfig {
  // The layers and the head. `cache_layer` says nothing: all caches are the target's.
  Gemma4Config network;
  int64_t target_width = 0;
  bool tells_kv_heads = false;  // whether kv_heads of the layers are those of the file
  std::optional<OrderedHead> ordered = {};
};

struct DrafterFile {
  DrafterConfig config;
  ModelWeights weights;
  AssistantFacts facts;
  std::vector<std::string> warnings;
};

// Every tensor of a drafter, except for the ordering, which is a list of token ids.
std::vector<TensorSpec> ExpectedTensors(const DrafterConfig& config);

// The matrix that makes logits: a tensor of its own, or else the embeddings.
[[nodiscard]] const WeightBinding& HeadOf(const ModelWeights& weights);

// Errors (kModelFile): model.hparam, model.array_length, model.vocabulary, gguf.key_*, those of
// ModelWeights::FromFile; draft.ordering for a damaged head with ordered embeddings, which is a
// warning for a file that was found.
Result<DrafterFile> ReadDrafter(const GgufFile& file, AssistantOrigin origin);

}  // namespace rullama::gemma4
