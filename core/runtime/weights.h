// Where the constants of a graph get their bytes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/ir/graph.h"

namespace rullama {

// Thread safety: const methods from any thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The bytes of a constant: rows [first_row, first_row + dim 0) of tensor `source`, checked
  // against the type. They live as long as the WeightSource. Errors: model.missing_tensor,
  // model.tensor_shape.
  [[nodiscard]] virtual Result<std::span<const std::byte>> Bytes(const Value& constant) const = 0;
  // Says that bytes of Bytes() have been copied and are not needed in memory for now.
  virtual void Release(std::span<const std::byte> /*bytes*/) const {}
};

// The tensors of a GGUF file, in place in its mapping, and beside them small f32 vectors that a
// model computes instead of reading (rope frequency factors a file leaves out).
class GgufWeights final : public WeightSource {
 public:
  // `file` outlives this object.
  explicit GgufWeights(const GgufFile& file) : file_(file) {}
  // `bytes` are those of a tensor of `type`; it hides a tensor of the file of the same name.
  void AddConstant(std::string name, TensorType type, std::vector<std::byte> bytes);
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override;
  void Release(std::span<const std::byte> bytes) const override;

 private:
  const GgufFile& file_;
  std::map<std::string, std::pair<TensorType, std::vector<std::byte>>, std::less<>> constants_;
};

}  // namespace rullama
