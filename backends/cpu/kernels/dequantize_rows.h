// Dequantisation of rows of block types; equal bit for bit to the plain float32 formula. Internal
// linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/codebook_decoders.h"
#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

// `elements` is a multiple of 16.
template <DType T>
void DequantizeChunk(const uint8_t* chunk, size_t elements, float* out) {
  using D = Decoder<T>;
  const ScalePair pair = ScalesOf<T>(chunk);
  float scale[16], offset[16];
  Store(scale, pair.scale);
  Store(offset, pair.offset);
  // Unsigned quants are stored less 128, as signed bytes.
  constexpr bool kSigned = D::kWide && kWideQuantsAreSigned;
  const auto signed_bytes = [](const U8x64& quants) {
    return kSigned ? quants : XorByte(quants, 0x80);
  };
  uint8_t quants[kChunk];
  StoreBytes(quants, signed_bytes(D::template Quants<0>(chunk)));
  StoreBytes(quants + 64, signed_bytes(D::template Quants<1>(chunk)));
  StoreBytes(quants + 128, signed_bytes(D::template Quants<2>(chunk)));
  StoreBytes(quants + 192, signed_bytes(D::template Quants<3>(chunk)));
  const F32x16 zero = Set1(static_cast<float>(kSigned ? D::kZero : D::kZero - 128));
  for (size_t group = 0; group < elements / 16; ++group) {
    // The subtraction is exact, so the product is rounded once.
    const F32x16 value = Mul(Set1(scale[group]), Sub(SignedBytes16(quants + group * 16), zero));
    Store(out + group * 16, D::kHasMin ? Add(value, Set1(offset[group])) : value);
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
