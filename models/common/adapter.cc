#include "models/common/adapter.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
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

int64_t RankOf(const Adapter& adapter) {
  return std::ranges::max_element(adapter.weights, {}, &AdapterWeight::rank)->rank;
}

// The weight of each adapter in a group that has this tensor; null where it has none.
using GroupWeights = std::vector<AdapterWeight*>;

// A of each adapter, f32, filled up with rows of zeros to `rank`.
std::vector<std::byte> StackA(const GroupWeights& weights, const LowRankPair& pair) {
  const size_t bytes = static_cast<size_t>(pair.rank * pair.inputs) * sizeof(float);
  std::vector<std::byte> stacked(weights.size() * bytes);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == nullptr) continue;
    const auto a = std::as_bytes(std::span(weights[i]->a));
    std::ranges::copy(a, stacked.begin() + static_cast<std::ptrdiff_t>(i * bytes));
  }
  return stacked;
}

// B of each adapter with its factor, f32, filled up with columns of zeros to `rank`.
std::vector<std::byte> StackB(const GroupWeights& weights, const LowRankPair& pair) {
  const auto rank = static_cast<size_t>(pair.rank);
  const auto rows = static_cast<size_t>(pair.outputs);
  std::vector<std::byte> stacked(weights.size() * rows * rank * sizeof(float));
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == nullptr) continue;
    const auto own = static_cast<size_t>(weights[i]->rank);
    for (size_t row = 0; row < rows; ++row) {
      std::byte* const to = stacked.data() + (i * rows + row) * rank * sizeof(float);
      for (size_t k = 0; k < own; ++k) {
        const double value = weights[i]->b[row * own + k];
        const auto scaled = static_cast<float>(value * weights[i]->scale);
        std::memcpy(to + k * sizeof(float), &scaled, sizeof(float));
      }
    }
  }
  return stacked;
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

AdapterFacts FactsOf(const ScaledAdapter& scaled) {
  const Adapter& adapter = scaled.adapter;
  AdapterFacts facts{.path = adapter.path, .scale = scaled.scale, .rank = RankOf(adapter)};
  for (const AdapterWeight& weight : adapter.weights) {
    if (facts.alpha == 0 && weight.rank == facts.rank) {
      facts.alpha = weight.scale * static_cast<double>(weight.rank);
    }
    const auto add = [&facts](const void* data, size_t bytes) {
      facts.content = XXH3_64bits_withSeed(data, bytes, facts.content);
    };
    add(weight.tensor.data(), weight.tensor.size());
    add(&weight.rank, sizeof(weight.rank));
    add(&weight.scale, sizeof(weight.scale));
    add(weight.a.data(), weight.a.size() * sizeof(float));
    add(weight.b.data(), weight.b.size() * sizeof(float));
  }
  return facts;
}

int64_t RowAdapters::LargestGroup() const {
  size_t most = 0;
  for (const std::vector<int32_t>& group : groups) most = std::max(most, group.size());
  return static_cast<int64_t>(most);
}

bool CanChoose(std::span<const ScaledAdapter> adapters) {
  return std::ranges::all_of(adapters, [](const ScaledAdapter& scaled) {
    return std::ranges::all_of(scaled.adapter.weights,
                               [](const AdapterWeight& weight) { return weight.experts == 0; });
  });
}

RowAdapters StackAdapters(std::vector<ScaledAdapter> adapters) {
  std::map<int64_t, std::vector<int32_t>> by_rank;
  for (size_t i = 0; i < adapters.size(); ++i) {
    by_rank[RankOf(adapters[i].adapter)].push_back(static_cast<int32_t>(i));
  }
  RowAdapters stacked;
  for (const auto& [rank, ids] : by_rank) {
    std::map<std::string, GroupWeights> by_tensor;
    for (size_t place = 0; place < ids.size(); ++place) {
      for (AdapterWeight& weight : adapters[static_cast<size_t>(ids[place])].adapter.weights) {
        GroupWeights& weights = by_tensor[weight.tensor];
        weights.resize(ids.size());
        weights[place] = &weight;
      }
    }
    for (const auto& [tensor, weights] : by_tensor) {
      const AdapterWeight& any =
          **std::ranges::find_if(weights, [](const auto* one) { return one != nullptr; });
      LowRankPair pair{.weight = tensor,
                       .rank = rank,
                       .inputs = any.inputs,
                       .outputs = any.outputs,
                       .a = fmt::format("{}.lora_a.{}", tensor, rank),
                       .b = fmt::format("{}.lora_b.{}", tensor, rank),
                       .choices = std::ssize(ids),
                       .group = std::ssize(stacked.groups)};
      stacked.constants.push_back({pair.a, pair.AType(), StackA(weights, pair)});
      stacked.constants.push_back({pair.b, pair.BType(), StackB(weights, pair)});
      for (AdapterWeight* weight : weights) {
        if (weight == nullptr) continue;
        weight->a = std::vector<float>();  // {} would keep the memory
        weight->b = std::vector<float>();
      }
      stacked.pairs.push_back(std::move(pair));
    }
    stacked.groups.push_back(ids);
  }
  return stacked;
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
