// A small three-layer decoder for the tests of this folder, with every feature that the passes
// treat specially: layers 0 and 1 write a cache, layer 2 reads that of layer 1, layer 1 has a
// window; there is a per-layer embedding, a sampler and a token history.
#pragma once

#include "core/ir/builder.h"
#include "core/ir/graph.h"

namespace rullama {

struct MiniModel {
  static constexpr int64_t kVocabulary = 32;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kHeads = 2;
  static constexpr int64_t kHeadDim = 4;
  static constexpr int64_t kFeedForward = 16;
  static constexpr int64_t kPleWidth = 4;
  static constexpr int64_t kLayers = 3;
  static constexpr int64_t kLayersWithCache = 2;
  static constexpr int64_t kSlots = 2;
  static constexpr int64_t kCapacity = 6;

  // Outputs "logits" and "token", both of the wanted rows. 1 <= T <= 5, 0 <= R <= 2.
  static Graph Build();
};

// Index of the op that computes the value of this name. Fails the test if there is none.
OpIndex OpOf(const Graph& graph, std::string_view value_name);

// Number of ops of a kind.
size_t CountOps(const Graph& graph, OpKind kind);

}  // namespace rullama
