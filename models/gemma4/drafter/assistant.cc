#include "models/gemma4/drafter/assistant.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/gguf/loaded_tensor.h"
#include "models/gemma4/drafter/drafter_file.h"
#include "models/gemma4/drafter/drafter_graph.h"
#include "models/gemma4/drafter/partner.h"

namespace rullama::gemma4 {
namespace {

template <typename T>
SyntheticConstant Constant(std::string_view name, const TensorType& type, const T& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = std::string(name), .type = type, .bytes = {bytes.begin(), bytes.end()}};
}

class Gemma4Assistant final : public Assistant {
 public:
  Gemma4Assistant(DrafterFile drafter, Gemma4Config target, ModelWeights target_weights)
      : Assistant(drafter.facts, std::move(drafter.warnings)),
        config_(std::move(drafter.config)),
        file_weights_(std::move(drafter.weights)),
        weights_(file_weights_),
        target_(std::move(target)),
        target_weights_(std::move(target_weights)) {
    weights_.PrefixTensors(kDrafterPrefix);
  }

  [[nodiscard]] Result<ModelGraph> BuildGraph(const BuildOptions& options,
                                              const DraftShape& draft) const override {
    return BuildDraftGraph({config_, weights_, target_, target_weights_}, options, draft);
  }

  [[nodiscard]] std::string_view tensor_prefix() const override { return kDrafterPrefix; }

  [[nodiscard]] Result<std::vector<SyntheticConstant>> MakeConstants(
      const GgufFile& file) const override {
    if (!config_.ordered) return std::vector<SyntheticConstant>();
    const OrderedHead& head = *config_.ordered;
    const int64_t size = head.cluster_size();
    const WeightBinding& rows = HeadOf(file_weights_);
    RL_ASSIGN_OR_RETURN(const LoadedTensor loaded,
                        LoadedTensor::Load(file, *file.FindTensor(rows.tensor)));
    return std::vector<SyntheticConstant>{
        Constant(kClusteredHead, {rows.dtype, {head.clusters, size, config_.network.width}},
                 RowsInOrder(loaded.bytes())),
        Constant(kClusteredTokens, {DType::kI32, {head.clusters, size}}, head.ordering)};
  }

 private:
  // The rows of the head, cluster by cluster.
  [[nodiscard]] std::vector<std::byte> RowsInOrder(std::span<const std::byte> rows) const {
    const std::vector<int32_t>& ordering = config_.ordered->ordering;
    const size_t row_bytes = rows.size() / ordering.size();
    std::vector<std::byte> ordered(rows.size());
    for (size_t i = 0; i < ordering.size(); ++i) {
      std::memcpy(ordered.data() + i * row_bytes,
                  rows.data() + static_cast<size_t>(ordering[i]) * row_bytes, row_bytes);
    }
    return ordered;
  }

  DrafterConfig config_;
  ModelWeights file_weights_;
  ModelWeights weights_;  // as the graph names them
  Gemma4Config target_;
  ModelWeights target_weights_;
};

}  // namespace

Result<AssistantFacts> DescribeAssistant(const GgufFile& file, AssistantOrigin origin) {
  RL_ASSIGN_OR_RETURN(const DrafterFile drafter, ReadDrafter(file, origin));
  return drafter.facts;
}

Result<std::unique_ptr<Assistant>> ReadAssistant(const GgufFile& file, AssistantOrigin origin,
                                                 const Gemma4Config& target,
                                                 const Gemma4Weights& target_weights) {
  RL_ASSIGN_OR_RETURN(DrafterFile drafter, ReadDrafter(file, origin));
  RL_RETURN_IF_ERROR(CheckPartner(drafter.config, target));
  return std::make_unique<Gemma4Assistant>(std::move(drafter), target, target_weights);
}

}  // namespace rullama::gemma4
