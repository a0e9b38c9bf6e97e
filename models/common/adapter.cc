#include "models/common/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace rullama {
namespace {

std::string Range(double low, double high) {
  return low == high ? fmt::format("{:g}", low) : fmt::format("{:g} to {:g}", low, high);
}

// Appends the rows [rank, inputs] of each adapter's A, expert by expert.
std::vector<float> JoinA(const std::vector<std::pair<const AdapterWeight*, double>>& parts) {
  std::vector<float> joined;
  const int64_t groups = std::max<int64_t>(1, parts.front().first->experts);
  for (int64_t group = 0; group < groups; ++group) {
    for (const auto& [weight, scale] : parts) {
      const auto size = weight->rank * weight->inputs;
      const auto begin = weight->a.begin() + static_cast<std::ptrdiff_t>(group * size);
      joined.insert(joined.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    }
  }
  return joined;
}

// Appends the columns of each adapter's B, with its factors.
std::vector<float> JoinB(const std::vector<std::pair<const AdapterWeight*, double>>& parts) {
  std::vector<float> joined;
  const AdapterWeight& first = *parts.front().first;
  const int64_t rows = std::max<int64_t>(1, first.experts) * first.outputs;
  for (int64_t row = 0; row < rows; ++row) {
    for (const auto& [weight, scale] : parts) {
      for (int64_t k = 0; k < weight->rank; ++k) {
        const double value = weight->b[static_cast<size_t>(row * weight->rank + k)];
        joined.push_back(static_cast<float>(value * weight->scale * scale));
      }
    }
  }
  return joined;
}

SyntheticConstant ConstantOf(const std::string& name, const TensorType& type,
                             const std::vector<float>& values) {
  SyntheticConstant constant{.name = name, .type = type, .bytes = {}};
  const auto bytes = std::as_bytes(std::span(values));
  constant.bytes.assign(bytes.begin(), bytes.end());
  return constant;
}

}  // namespace

std::string Adapter::Describe() const {
  int64_t rank_low = INT64_MAX;
  int64_t rank_high = 0;
  double scale_low = weights.front().scale;
  double scale_high = scale_low;
  for (const AdapterWeight& weight : weights) {
    rank_low = std::min(rank_low, weight.rank);
    rank_high = std::max(rank_high, weight.rank);
    scale_low = std::min(scale_low, weight.scale);
    scale_high = std::max(scale_high, weight.scale);
  }
  return fmt::format("{} tensors on {} weights, rank {}, scale {}", 2 * weights.size(),
                     weights.size(),
                     Range(static_cast<double>(rank_low), static_cast<double>(rank_high)),
                     Range(scale_low, scale_high));
}

ModelAdapters JoinAdapters(std::span<const ScaledAdapter> adapters) {
  std::map<std::string, std::vector<std::pair<const AdapterWeight*, double>>> by_tensor;
  for (const ScaledAdapter& scaled : adapters) {
    for (const AdapterWeight& weight : scaled.adapter.weights) {
      by_tensor[weight.tensor].emplace_back(&weight, scaled.scale);
    }
  }
  ModelAdapters joined;
  for (const auto& [tensor, parts] : by_tensor) {
    const AdapterWeight& first = *parts.front().first;
    LowRankPair pair{.weight = tensor,
                     .experts = first.experts,
                     .inputs = first.inputs,
                     .outputs = first.outputs,
                     .a = tensor + ".lora_a",
                     .b = tensor + ".lora_b"};
    for (const auto& [weight, scale] : parts) pair.rank += weight->rank;
    joined.constants.push_back(ConstantOf(pair.a, pair.AType(), JoinA(parts)));
    joined.constants.push_back(ConstantOf(pair.b, pair.BType(), JoinB(parts)));
    joined.pairs.push_back(std::move(pair));
  }
  return joined;
}

Result<Graph> WithScalesAndAdapters(const Graph& graph, std::span<const WeightScale> scales,
                                    std::span<const LowRankPair> pairs) {
  if (scales.empty()) return AdaptProducts(graph, pairs);
  RL_ASSIGN_OR_RETURN(const Graph scaled, ScaleProducts(graph, scales));
  // The product with an adapter is multiplied by the factor too.
  std::vector<LowRankPair> divided(pairs.begin(), pairs.end());
  for (LowRankPair& pair : divided) {
    const auto found = std::ranges::find(scales, pair.weight, &WeightScale::weight);
    if (found != scales.end()) pair.scale /= found->scale;
  }
  return AdaptProducts(scaled, divided);
}

}  // namespace rullama
