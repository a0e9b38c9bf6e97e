// Blocks of 32 values: one scale (and minimum) in f16. Codes are chosen for the scale after it was
// rounded to f16.
#include <rullama/sdk/blocks.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/gguf/quantize_fit.h"
#include "core/gguf/quantize_kernels.h"

namespace rullama::gguf_internal {
namespace {

constexpr int kBlock = 32;
constexpr int kHalfBlock = 16;

void PackNibbles(const uint8_t (&codes)[kBlock], uint8_t (&qs)[kHalfBlock]) {
  for (int j = 0; j < kHalfBlock; ++j) {
    qs[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + kHalfBlock] & 15) << 4);
  }
}

void PackFifthBits(const uint8_t (&codes)[kBlock], uint8_t (&qh)[4]) {
  for (int j = 0; j < kBlock; ++j) {
    qh[j / 8] = static_cast<uint8_t>(qh[j / 8] | (codes[j] >> 4 & 1) << (j % 8));
  }
}

// The codes of value = d * code, code in low..-low-1, counted from `low`; d in f16.
uint16_t EncodeSymmetric(const Weighted& x, int low, uint8_t (&codes)[kBlock]) {
  const uint16_t d = FloatToHalf(FitSymmetric(x, kBlock, low, -low - 1));
  NearestPoints(x, kBlock, low, -low - 1, {HalfToFloat(d), 0}, codes);
  return d;
}

struct ScaleMinimum {
  uint16_t d;
  uint16_t m;
};

// The codes of value = d * code + m, code in 0..high.
ScaleMinimum EncodeAffine(const Weighted& x, int high, uint8_t (&codes)[kBlock]) {
  const AffineFit fit = FitAffine(x, kBlock, high, false);
  const ScaleMinimum result{FloatToHalf(fit.scale), FloatToHalf(fit.offset)};
  NearestPoints(x, kBlock, 0, high, {HalfToFloat(result.d), HalfToFloat(result.m)}, codes);
  return result;
}

}  // namespace

void QuantizeQ4_0(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ4_0, kBlock>(values, weights, count, blocks,
                                       [](const Weighted& x, sdk::BlockQ4_0& block) {
                                         uint8_t codes[kBlock];
                                         block.d = EncodeSymmetric(x, -8, codes);
                                         PackNibbles(codes, block.qs);
                                       });
}

void QuantizeQ4_1(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ4_1, kBlock>(values, weights, count, blocks,
                                       [](const Weighted& x, sdk::BlockQ4_1& block) {
                                         uint8_t codes[kBlock];
                                         const ScaleMinimum scale = EncodeAffine(x, 15, codes);
                                         block.d = scale.d;
                                         block.m = scale.m;
                                         PackNibbles(codes, block.qs);
                                       });
}

void QuantizeQ5_0(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ5_0, kBlock>(values, weights, count, blocks,
                                       [](const Weighted& x, sdk::BlockQ5_0& block) {
                                         uint8_t codes[kBlock];
                                         block.d = EncodeSymmetric(x, -16, codes);
                                         PackNibbles(codes, block.qs);
                                         PackFifthBits(codes, block.qh);
                                       });
}

void QuantizeQ5_1(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ5_1, kBlock>(values, weights, count, blocks,
                                       [](const Weighted& x, sdk::BlockQ5_1& block) {
                                         uint8_t codes[kBlock];
                                         const ScaleMinimum scale = EncodeAffine(x, 31, codes);
                                         block.d = scale.d;
                                         block.m = scale.m;
                                         PackNibbles(codes, block.qs);
                                         PackFifthBits(codes, block.qh);
                                       });
}

// A search gains next to nothing with 8 bits, so the scale is the one that covers the range.
void QuantizeQ8_0(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ8_0, kBlock>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockQ8_0& block) {
        float largest = 0;
        for (int j = 0; j < kBlock; ++j) largest = std::max(largest, std::fabs(x[j]));
        block.d = FloatToHalf(largest / 127);
        const float inverse = SafeInverse(HalfToFloat(block.d));
        for (int j = 0; j < kBlock; ++j) {
          block.qs[j] = static_cast<int8_t>(NearestCode(x[j] * inverse, -127, 127));
        }
      });
}

}  // namespace rullama::gguf_internal
