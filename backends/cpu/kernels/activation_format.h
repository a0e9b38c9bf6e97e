// Memory layouts of the activation rows that products read. A float row of K values is converted
// once and read by every product that uses it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::cpu {

// kFloat32: the K values.
//
// The other layouts pad the row with zeros to P elements, P = K rounded up to 256.
//
// kInt8Blocks: blocks of 32 integers with one float scale each. With ActivationBits::k16:
//
//   int8_t  high[P], low[P]     quants: x / scale is about 256 * high + low; both in [-127, 127]
//   float   scale[P / 32]       largest magnitude of the block / (127 * 257)
//   float   scaled_sum32[P / 32]   scale * quant_sum32
//   int32_t quant_sum32[P / 32]    sum of the 32 quants of a block
//   int32_t quant_sum16[P / 16]    sums of 16 quants
//
// With k8, `low` is absent, the quant is `high` rounded to nearest even, and the scale is 257 times
// as large. With k16, one in 257 quants is off by one unit, because a low byte of 128 is stored as
// 127. A block with a NaN or an infinity gets a NaN scale, so that the product is NaN as well.
//
// kSplitBf16: bf16 numbers, uint16_t part[parts][P]; x is the sum of its parts to a relative error
// of 2^-8 with one, 2^-16 with two, and exactly with three. NaN and infinity become NaN.
enum class ActivationFormat : uint8_t { kFloat32, kInt8Blocks, kSplitBf16 };

// Precision of activations. The value is the number of parts of a converted activation: int8 quants
// in kInt8Blocks, which has no k24, bf16 numbers in kSplitBf16.
enum class ActivationBits : int { k8 = 1, k16 = 2, k24 = 3 };

static inline constexpr size_t PartCount(ActivationBits bits) { return static_cast<size_t>(bits); }

inline constexpr size_t kActivationBlock = 32;
// Elements per K-quant block. Rows of weights and activations are processed in such chunks.
inline constexpr size_t kChunk = 256;

static inline constexpr size_t PaddedLength(size_t k) { return (k + kChunk - 1) / kChunk * kChunk; }

// Size of a row of k elements in bytes. That of a converted row is a multiple of 64. A row of
// kSplitBf16 has an odd number of chunks of 512 bytes, the last one unused where one was added:
// rows a multiple of 4 KiB apart would begin in the same sets of L1.
static inline constexpr size_t ActivationRowBytes(ActivationFormat format, size_t k,
                                                  ActivationBits bits) {
  if (format == ActivationFormat::kFloat32) return k * sizeof(float);
  const size_t padded = PaddedLength(k);
  const size_t bytes = padded * PartCount(bits);
  if (format == ActivationFormat::kSplitBf16) return (bytes / kChunk | 1) * kChunk * 2;
  return (bytes + padded / 2 + padded / 8 + 63) / 64 * 64;
}

}  // namespace rullama::cpu
