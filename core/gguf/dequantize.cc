#include "core/gguf/dequantize.h"

#include <rullama/sdk/half.h>

#include <bit>

#include "core/gguf/dequantize_kernels.h"
#include "core/gguf/gguf_value.h"

namespace rullama {
namespace {

using gguf_internal::DequantizeKernel;

template <typename T>
void ConvertPlain(const std::byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(LoadUnaligned<T>(blocks + i * sizeof(T)));
  }
}

// HalfToFloat without branches, so that compilers vectorise it, and without subnormal floats in
// between, which are slow: a subnormal half m * 2^-24 is (1 + m / 1024) * 2^-14 - 2^-14, exactly.
void ConvertF16(const std::byte* blocks, size_t count, float* out) {
  constexpr uint32_t kHalfExponent = 0x7C00;
  constexpr uint32_t kFloatExponent = 0x7F800000;
  constexpr uint32_t kRebias = (127 - 15) << 23;
  constexpr uint32_t kTwoToMinus14 = (127 - 14) << 23;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t half = LoadUnaligned<uint16_t>(blocks + i * sizeof(uint16_t));
    const uint32_t shifted = (half & 0x7FFFu) << 13;
    const auto subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + kTwoToMinus14) -
                                                   std::bit_cast<float>(kTwoToMinus14));
    uint32_t magnitude = shifted + kRebias;
    magnitude = (half & kHalfExponent) == 0 ? subnormal : magnitude;
    magnitude = (half & kHalfExponent) == kHalfExponent ? shifted | kFloatExponent : magnitude;
    out[i] = std::bit_cast<float>(magnitude | (half & 0x8000u) << 16);
  }
}

void ConvertBF16(const std::byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = BFloat16ToFloat(LoadUnaligned<uint16_t>(blocks + i * sizeof(uint16_t)));
  }
}

DequantizeKernel KernelFor(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ConvertPlain<float>;
    case DType::kF16:
      return ConvertF16;
    case DType::kBF16:
      return ConvertBF16;
    case DType::kF64:
      return ConvertPlain<double>;
    case DType::kI8:
      return ConvertPlain<int8_t>;
    case DType::kI16:
      return ConvertPlain<int16_t>;
    case DType::kI32:
      return ConvertPlain<int32_t>;
    case DType::kI64:
      return ConvertPlain<int64_t>;
    case DType::kQ4_0:
      return gguf_internal::DequantizeQ4_0;
    case DType::kQ4_1:
      return gguf_internal::DequantizeQ4_1;
    case DType::kQ5_0:
      return gguf_internal::DequantizeQ5_0;
    case DType::kQ5_1:
      return gguf_internal::DequantizeQ5_1;
    case DType::kQ8_0:
      return gguf_internal::DequantizeQ8_0;
    case DType::kQ2_K:
      return gguf_internal::DequantizeQ2K;
    case DType::kQ3_K:
      return gguf_internal::DequantizeQ3K;
    case DType::kQ4_K:
      return gguf_internal::DequantizeQ4K;
    case DType::kQ5_K:
      return gguf_internal::DequantizeQ5K;
    case DType::kQ6_K:
      return gguf_internal::DequantizeQ6K;
    case DType::kIQ4_NL:
      return gguf_internal::DequantizeIq4Nl;
    case DType::kIQ4_XS:
      return gguf_internal::DequantizeIq4Xs;
    case DType::kMXFP4:
      return gguf_internal::DequantizeMxfp4;
    case DType::kNVFP4:
      return gguf_internal::DequantizeNvfp4;
    default:
      return nullptr;
  }
}

}  // namespace

bool CanDequantize(DType dtype) { return KernelFor(dtype) != nullptr; }

std::string DequantizableTypes() {
  std::string names;
  for (const DTypeInfo& info : kDTypes) {
    if (!CanDequantize(info.dtype)) continue;
    if (!names.empty()) names += ' ';
    names += info.name;
  }
  return names;
}

Status Dequantize(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const DequantizeKernel kernel = KernelFor(dtype);
  const DTypeInfo& info = InfoOf(dtype);
  if (kernel == nullptr) {
    return MakeError(
        ErrorKind::kModelFile, "gguf.type",
        "weights of type {} cannot be decoded, expected one of: {}; quantise the model "
        "to one of these",
        info.name, DequantizableTypes());
  }
  if (out.size() % info.block_elements != 0 || RowBytes(dtype, out.size()) != blocks.size()) {
    return MakeError(ErrorKind::kRuntime, "gguf.dequantize_size",
                     "{} bytes of type {} do not hold {} values ({} values per {} bytes)",
                     blocks.size(), info.name, out.size(), info.block_elements, info.block_bytes);
  }
  kernel(blocks.data(), out.size() / info.block_elements, out.data());
  return OkStatus();
}

}  // namespace rullama
