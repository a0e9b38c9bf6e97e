// Tensors of random models without a file: everything depends on a seed and on names alone.
// Thread safety: RandomTensors may be shared once every tensor was asked for.
#pragma once

#include <rullama/sdk/dtype.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/weights.h"
#include "models/common/files/synth_blocks.h"
#include "models/common/graph/tensor_table.h"
#include "models/common/model_graph.h"

namespace rullama {

// Numbers from a seed, one after another.
class SeededDraw {
 public:
  explicit SeededDraw(uint64_t seed) : seed_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    const uint64_t word = TensorSeed(seed_ + count_++, "draw");
    return low + static_cast<int64_t>(word % static_cast<uint64_t>(high - low + 1));
  }
  template <size_t n>
  int64_t Of(const std::array<int64_t, n>& choices) {
    return choices[static_cast<size_t>(Int(0, static_cast<int64_t>(n) - 1))];
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

// A type for a matrix with rows of this length, from its name: of block types, or of floats, the
// first, from a drawn place on, whose blocks divide a row.
[[nodiscard]] DType DrawType(uint64_t seed, std::string_view tensor, int64_t row, bool quantised);

// Tensors, made on first use: matrices with a spread that keeps activations near 1, norm weights
// near 1.
class RandomTensors : public WeightSource {
 public:
  // `fixed`: vectors that are not drawn, by tensor.
  RandomTensors(const ModelWeights& weights, uint64_t seed,
                std::map<std::string, std::vector<float>> fixed,
                std::vector<SyntheticConstant> constants);
  // Error model.missing_tensor.
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override;

 private:
  std::map<std::string, WeightBinding, std::less<>> tensors_;
  uint64_t seed_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> made_;
};

}  // namespace rullama
