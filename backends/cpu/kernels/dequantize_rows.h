// Rows of block types as floats, bit for bit the plain float32 formula. Internal linkage
// throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

template <DType T>
void DequantizeChunk(const uint8_t* chunk, size_t elements, float* out) {
  using D = Decoder<T>;
  const ScalePair pair = ScalesOf<T>(chunk);
  float scale[16], offset[16];
  Store(scale, pair.scale);
  Store(offset, pair.offset);
  uint8_t codes[kChunk];
  StoreBytes(codes, D::template Codes<0>(chunk));
  StoreBytes(codes + 64, D::template Codes<1>(chunk));
  StoreBytes(codes + 128, D::template Codes<2>(chunk));
  StoreBytes(codes + 192, D::template Codes<3>(chunk));
  for (size_t i = 0; i < elements; ++i) {
    const int code = D::kWide && kWideCodesAreSigned ? static_cast<int8_t>(codes[i]) : codes[i];
    // Symmetric types subtract the zero from the code, which is exact, and round once.
    const float value = scale[i / 16] * static_cast<float>(code - D::kZero);
    out[i] = D::kHasMin ? value + offset[i / 16] : value;
  }
}

template <DType T>
void DequantizeBlockRow(const void* row, size_t k, float* out) {
  const auto* p = static_cast<const uint8_t*>(row);
  size_t done = 0;
  for (; done + kChunk <= k; done += kChunk, p += kChunkBytes<T>) {
    DequantizeChunk<T>(p, kChunk, out + done);
  }
  if constexpr (kBlockElements<T> < kChunk) {
    if (done < k) {
      const PaddedChunk<T> last(p, k - done);
      DequantizeChunk<T>(last.bytes, k - done, out + done);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu
