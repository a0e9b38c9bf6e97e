// Dequantisation of rows of block types; equal bit for bit to the plain float32 formula. Internal
// linkage throughout, see simd_portable.h.
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
  uint8_t quants[kChunk];
  StoreBytes(quants, D::template Quants<0>(chunk));
  StoreBytes(quants + 64, D::template Quants<1>(chunk));
  StoreBytes(quants + 128, D::template Quants<2>(chunk));
  StoreBytes(quants + 192, D::template Quants<3>(chunk));
  for (size_t i = 0; i < elements; ++i) {
    const int quant = D::kWide && kWideQuantsAreSigned ? static_cast<int8_t>(quants[i]) : quants[i];
    // For symmetric types the subtraction is exact, so the value is rounded once.
    const float value = scale[i / 16] * static_cast<float>(quant - D::kZero);
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
