#include "models/common/files/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace rullama {
namespace {

constexpr std::array<DType, 9> kBlockTypes = {DType::kQ4_K, DType::kQ6_K, DType::kQ5_K,
                                              DType::kQ8_0, DType::kQ5_0, DType::kQ4_0,
                                              DType::kQ5_1, DType::kF16,  DType::kBF16};
constexpr std::array<DType, 2> kFloatTypes = {DType::kF16, DType::kBF16};

bool Fits(DType dtype, int64_t row) {
  return row % static_cast<int64_t>(InfoOf(dtype).block_elements) == 0;
}

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The middle of what a vector's values are drawn from. Weights of norms are near 1, but those of
// queries: random keys give far higher scores than trained ones, and a softmax that is all but an
// arg-max turns a rounding into another text. The scale of a layer is below 1.
float MiddleOf(std::string_view tensor) {
  if (tensor.ends_with("attn_q_norm.weight")) return 0.3F;
  if (tensor.ends_with("layer_output_scale.weight")) return 0.75F;
  return 1.0F;
}

std::vector<std::byte> VectorBytes(uint64_t seed, const WeightBinding& tensor) {
  constexpr float kSpread = 0.5F;
  const float middle = MiddleOf(tensor.tensor);
  std::vector<float> values(static_cast<size_t>(tensor.dims[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto word = static_cast<float>(TensorSeed(seed + i, tensor.tensor) >> 40) * 0x1p-24F;
    values[i] = middle * (1 + kSpread * (word - 0.5F));
  }
  return BytesOf(values);
}

std::vector<std::byte> MatrixBytes(uint64_t seed, const WeightBinding& tensor) {
  const auto row = static_cast<uint64_t>(tensor.dims.back());
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.dims.size(); ++i) rows *= static_cast<uint64_t>(tensor.dims[i]);
  std::vector<std::byte> bytes(static_cast<size_t>(rows * RowBytes(tensor.dtype, row)));
  const float deviation = 1.0F / std::sqrt(static_cast<float>(row));
  FillRandomBlocks(tensor.dtype, TensorSeed(seed, tensor.tensor), 0, deviation, bytes);
  return bytes;
}

}  // namespace

DType DrawType(uint64_t seed, std::string_view tensor, int64_t row, bool quantised) {
  const auto pick = [&](const auto& types) {
    const size_t first = TensorSeed(seed, std::string(tensor) + ".type") % types.size();
    for (size_t i = 0; i < types.size(); ++i) {
      const DType dtype = types[(first + i) % types.size()];
      if (Fits(dtype, row)) return dtype;
    }
    return DType::kF16;
  };
  return quantised ? pick(kBlockTypes) : pick(kFloatTypes);
}

RandomTensors::RandomTensors(const ModelWeights& weights, uint64_t seed,
                             std::map<std::string, std::vector<float>> fixed,
                             std::vector<SyntheticConstant> constants)
    : seed_(seed) {
  for (const auto& [name, binding] : weights.bindings()) tensors_[binding.tensor] = binding;
  for (const auto& [tensor, values] : fixed) made_[tensor] = BytesOf(values);
  for (SyntheticConstant& constant : constants) {
    made_[std::move(constant.name)] = std::move(constant.bytes);
  }
}

Result<std::span<const std::byte>> RandomTensors::Bytes(const Value& constant) const {
  auto made = made_.find(constant.source);
  if (made == made_.end()) {
    const auto tensor = tensors_.find(constant.source);
    if (tensor == tensors_.end()) {
      return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                       "the random model has no tensor '{}'", constant.source);
    }
    const WeightBinding& binding = tensor->second;
    made = made_
               .emplace(constant.source, binding.dims.size() == 1 ? VectorBytes(seed_, binding)
                                                                  : MatrixBytes(seed_, binding))
               .first;
  }
  const uint64_t wanted = constant.type.BytesAt({});
  const auto rows = static_cast<uint64_t>(constant.type.dim(0).constant);
  const uint64_t first = static_cast<uint64_t>(constant.first_row) * (wanted / rows);
  return std::span(made->second).subspan(static_cast<size_t>(first), static_cast<size_t>(wanted));
}

}  // namespace rullama
