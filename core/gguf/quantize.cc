#include "core/gguf/quantize.h"

#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "core/gguf/quantize_kernels.h"

namespace rullama {
namespace {

using gguf_internal::QuantizeKernel;

// The largest number of f16. Scales are f16 and at most the largest value of their block.
constexpr float kHalfMax = 65504.0f;

void StoreF32(const float* values, const float* /*weights*/, size_t count, std::byte* blocks) {
  std::memcpy(blocks, values, count * sizeof(float));
}

void StoreF16(const float* values, const float* /*weights*/, size_t count, std::byte* blocks) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = FloatToHalf(values[i]);
    std::memcpy(blocks + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void StoreBF16(const float* values, const float* /*weights*/, size_t count, std::byte* blocks) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = FloatToBFloat16(values[i]);
    std::memcpy(blocks + i * sizeof(bits), &bits, sizeof(bits));
  }
}

QuantizeKernel KernelFor(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return StoreF32;
    case DType::kF16:
      return StoreF16;
    case DType::kBF16:
      return StoreBF16;
    case DType::kQ4_0:
      return gguf_internal::QuantizeQ4_0;
    case DType::kQ4_1:
      return gguf_internal::QuantizeQ4_1;
    case DType::kQ5_0:
      return gguf_internal::QuantizeQ5_0;
    case DType::kQ5_1:
      return gguf_internal::QuantizeQ5_1;
    case DType::kQ8_0:
      return gguf_internal::QuantizeQ8_0;
    case DType::kQ2_K:
      return gguf_internal::QuantizeQ2K;
    case DType::kQ3_K:
      return gguf_internal::QuantizeQ3K;
    case DType::kIQ4_NL:
      return gguf_internal::QuantizeIq4Nl;
    case DType::kIQ4_XS:
      return gguf_internal::QuantizeIq4Xs;
    case DType::kMXFP4:
      return gguf_internal::QuantizeMxfp4;
    case DType::kQ4_K:
      return gguf_internal::QuantizeQ4K;
    case DType::kQ5_K:
      return gguf_internal::QuantizeQ5K;
    case DType::kQ6_K:
      return gguf_internal::QuantizeQ6K;
    default:
      return nullptr;
  }
}

// The largest magnitude whose encoding is finite. bf16 rounds half a step above its largest number,
// 0x7F7F, up to infinity.
float LimitOf(DType dtype) {
  if (dtype == DType::kF32) return std::numeric_limits<float>::max();
  return dtype == DType::kBF16 ? BFloat16ToFloat(0x7F7F) : kHalfMax;
}

// Weights with a mean of 1 in each block. Columns that no text reached have a small one all the
// same, since they may be reached later, and blocks of such columns alone have equal ones.
std::vector<float> UsableWeights(std::span<const float> importance, size_t block) {
  constexpr double kLeast = 1e-3;  // of the mean
  std::vector<float> weights(importance.size());
  for (size_t first = 0; first < importance.size(); first += block) {
    const auto run = importance.subspan(first, block);
    const double mean = std::accumulate(run.begin(), run.end(), 0.0) / static_cast<double>(block);
    for (size_t i = 0; i < block; ++i) {
      const double relative = mean > 0 ? static_cast<double>(run[i]) / mean : 1;
      weights[first + i] = static_cast<float>(std::max(relative, kLeast));
    }
  }
  return weights;
}

Status CheckValues(DType dtype, std::span<const float> values, uint64_t first_element) {
  const float limit = LimitOf(dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) <= limit) continue;  // false for NaN
    return MakeError(ErrorKind::kModelFile, "gguf.quantize_value",
                     "element {} is {}, expected a finite number of at most {} for type {}; the "
                     "weights are damaged or were converted wrongly",
                     first_element + i, values[i], limit, NameOf(dtype));
  }
  return OkStatus();
}

}  // namespace

bool CanQuantize(DType dtype) { return KernelFor(dtype) != nullptr; }

std::string QuantizableTypes() {
  std::string names;
  for (const DTypeInfo& info : kDTypes) {
    if (!CanQuantize(info.dtype)) continue;
    if (!names.empty()) names += ' ';
    names += info.name;
  }
  return names;
}

Status Quantize(DType dtype, std::span<const float> values, std::span<std::byte> blocks,
                uint64_t first_element, std::span<const float> importance) {
  const QuantizeKernel kernel = KernelFor(dtype);
  const DTypeInfo& info = InfoOf(dtype);
  if (kernel == nullptr) {
    return MakeError(ErrorKind::kRuntime, "gguf.quantize_type",
                     "weights of type {} cannot be written, expected one of: {}", info.name,
                     QuantizableTypes());
  }
  if (values.size() % info.block_elements != 0 || RowBytes(dtype, values.size()) != blocks.size()) {
    return MakeError(ErrorKind::kRuntime, "gguf.quantize_size",
                     "{} values do not fill {} bytes of type {} ({} values per {} bytes)",
                     values.size(), blocks.size(), info.name, info.block_elements,
                     info.block_bytes);
  }
  if (!importance.empty() && importance.size() != values.size()) {
    return MakeError(ErrorKind::kRuntime, "gguf.quantize_size",
                     "{} values have {} weights, expected one each or none", values.size(),
                     importance.size());
  }
  RL_RETURN_IF_ERROR(CheckValues(dtype, values, first_element));
  const float* weights = nullptr;
  std::vector<float> usable;
  if (!importance.empty()) {
    usable = UsableWeights(importance, info.block_elements);
    weights = usable.data();
  }
  kernel(values.data(), weights, values.size() / info.block_elements, blocks.data());
  return OkStatus();
}

}  // namespace rullama
