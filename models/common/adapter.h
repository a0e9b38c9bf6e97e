// Low-rank adapters (LoRA) of a model, read and checked: what a session needs of them. Each family
// reads the files (Model::ReadAdapter).
//
// Thread safety: value types and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/passes/adapt.h"
#include "core/passes/scale_products.h"
#include "models/common/model_graph.h"

namespace rullama {

// The adapter of one weight.
struct AdapterWeight {
  std::string tensor;   // of the model's table: "blk.0.attn_q.weight"
  int64_t experts = 0;  // of a 3-D weight; 0: a matrix
  int64_t rank = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;   // of each expert
  double scale = 1;      // of B (A x), as the file says
  std::vector<float> a;  // [rank, inputs], or [experts, rank, inputs]
  std::vector<float> b;  // [outputs, rank], or [experts, outputs, rank]
};

struct Adapter {
  std::string path;
  std::vector<std::string> files = {};  // that were read
  std::vector<AdapterWeight> weights;   // by name of the tensor
  std::vector<std::string> warnings;

  // "96 tensors on 48 weights, rank 4, scale 2"
  [[nodiscard]] std::string Describe() const;
};

// The names of modules and the form of the factor in the file for PEFT. A value type.
struct AdapterFileOptions {
  std::string base = {};  // name of the model, for people
  AdapterNames names = AdapterNames::kText;
  bool rslora = false;  // the factor is lora_alpha / sqrt(r)
};

// A weight that an adapter can be trained for.
struct AdaptableWeight {
  std::string tensor;  // of the model's table: "blk.0.attn_q.weight"
  std::string name;    // without layer: "attn_q"
  std::string module;  // Hugging Face's name of it: "q_proj"
  int64_t layer = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
};

// An adapter and the user's factor.
struct ScaledAdapter {
  Adapter adapter;
  double scale = 1;
};

// All adapters of a model, for the pass AdaptProducts and a WeightSource: one pair for each adapted
// weight, in which the adapters are concatenated along the rank and all factors are part of B.
struct ModelAdapters {
  std::vector<LowRankPair> pairs;
  std::vector<SyntheticConstant> constants;
};
ModelAdapters JoinAdapters(std::span<const ScaledAdapter> adapters);

// Facts of an adapter that is loaded.
struct AdapterFacts {
  std::string path;
  double scale = 1;      // the user's factor
  int64_t rank = 0;      // the largest of its weights
  double alpha = 0;      // of that weight: its factor times its rank
  uint64_t content = 0;  // a hash of all that it adds to products
};
AdapterFacts FactsOf(const ScaledAdapter& scaled);

// Adapters of which each row of a step has some, with factors of its own, in places of a graph
// (core/passes/adapt.h). A group has the adapters of one rank, so that what an adapter adds to a
// row does not depend on which others are loaded.
struct RowAdapters {
  std::vector<LowRankPair> pairs;  // with one place
  std::vector<SyntheticConstant> constants;
  std::vector<std::vector<int32_t>> groups;  // for each group the adapters, by their number

  [[nodiscard]] bool empty() const { return groups.empty(); }
  // The most adapters in one group.
  [[nodiscard]] int64_t LargestGroup() const;
};
// Whether rows may choose among the adapters: none of them is for experts.
[[nodiscard]] bool CanChoose(std::span<const ScaledAdapter> adapters);
// The user's factors are not part of them. The values of a weight are freed when they are stacked,
// so that not all of them are in memory twice.
RowAdapters StackAdapters(std::vector<ScaledAdapter> adapters);

// A finished graph of a model with the factors of its weights (ModelFacts::weight_scales) and with
// adapters, which the factors do not scale. Errors: those of ScaleProducts and AdaptProducts.
Result<Graph> WithScalesAndAdapters(const Graph& graph, std::span<const WeightScale> scales,
                                    std::span<const LowRankPair> pairs);

}  // namespace rullama
