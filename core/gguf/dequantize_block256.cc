// Super-blocks of 256 values: scales of sub-blocks are themselves quantised against one or two f16
// numbers of the super-block.
#include <rullama/sdk/half.h>

#include <cstring>

#include "core/gguf/block_layouts.h"
#include "core/gguf/dequantize_kernels.h"

namespace rullama::gguf_internal {
namespace {

constexpr int kSuperBlock = 256;

template <typename Block, typename Decode>
void ForEachBlock(const std::byte* blocks, size_t count, float* out, Decode decode) {
  for (size_t i = 0; i < count; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof(Block));
    decode(block, out + i * kSuperBlock);
  }
}

struct ScaleMin {
  float scale;
  float min;
};

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minima into twelve bytes: sub-blocks 0-3
// lie in the low six bits of bytes 0-7; of sub-blocks 4-7, the low nibbles lie in bytes 8-11 and
// the two high bits in the top of bytes 0-7.
ScaleMin SubBlockScale(const uint8_t (&s)[12], int j, float d, float dmin) {
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
  const int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
  return {d * static_cast<float>(scale), dmin * static_cast<float>(min)};
}

// The signed 6-bit scale of group `g` (0-15) of Q3_K.
int Q3Scale(const uint8_t (&s)[12], int g) {
  const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
  const int high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

void DequantizeQ2K(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ2K>(blocks, count, out, [](const BlockQ2K& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float dmin = HalfToFloat(block.dmin);
    for (int g = 0; g < 16; ++g) {
      // Half of the super-block, then two-bit plane, then which 16 of its 32 bytes.
      const uint8_t* q = block.qs + g / 8 * 32 + g % 2 * 16;
      const int shift = g % 8 / 2 * 2;
      const float scale = d * static_cast<float>(block.scales[g] & 15);
      const float min = dmin * static_cast<float>(block.scales[g] >> 4);
      for (int l = 0; l < 16; ++l) {
        y[g * 16 + l] = scale * static_cast<float>(q[l] >> shift & 3) - min;
      }
    }
  });
}

void DequantizeQ3K(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ3K>(blocks, count, out, [](const BlockQ3K& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int g = 0; g < 16; ++g) {
      const uint8_t* q = block.qs + g / 8 * 32 + g % 2 * 16;
      const uint8_t* mask = block.hmask + g % 2 * 16;
      const int shift = g % 8 / 2 * 2;
      const int plane = g / 2;  // the bit of hmask
      const float scale = d * static_cast<float>(Q3Scale(block.scales, g));
      for (int l = 0; l < 16; ++l) {
        const int high = (mask[l] >> plane & 1) << 2;
        y[g * 16 + l] = scale * static_cast<float>(((q[l] >> shift & 3) | high) - 4);
      }
    }
  });
}

void DequantizeQ4K(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ4K>(blocks, count, out, [](const BlockQ4K& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float dmin = HalfToFloat(block.dmin);
    for (int j = 0; j < 8; j += 2) {
      const uint8_t* q = block.qs + j * 16;
      const ScaleMin low = SubBlockScale(block.scales, j, d, dmin);
      const ScaleMin high = SubBlockScale(block.scales, j + 1, d, dmin);
      for (int l = 0; l < 32; ++l) {
        y[j * 32 + l] = low.scale * static_cast<float>(q[l] & 15) - low.min;
      }
      for (int l = 0; l < 32; ++l) {
        y[j * 32 + 32 + l] = high.scale * static_cast<float>(q[l] >> 4) - high.min;
      }
    }
  });
}

void DequantizeQ5K(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ5K>(blocks, count, out, [](const BlockQ5K& block, float* y) {
    const float d = HalfToFloat(block.d);
    const float dmin = HalfToFloat(block.dmin);
    for (int j = 0; j < 8; j += 2) {
      const uint8_t* q = block.qs + j * 16;
      const ScaleMin low = SubBlockScale(block.scales, j, d, dmin);
      const ScaleMin high = SubBlockScale(block.scales, j + 1, d, dmin);
      for (int l = 0; l < 32; ++l) {
        const int fifth = (block.qh[l] >> j & 1) << 4;
        y[j * 32 + l] = low.scale * static_cast<float>((q[l] & 15) | fifth) - low.min;
      }
      for (int l = 0; l < 32; ++l) {
        const int fifth = (block.qh[l] >> (j + 1) & 1) << 4;
        y[j * 32 + 32 + l] = high.scale * static_cast<float>((q[l] >> 4) | fifth) - high.min;
      }
    }
  });
}

void DequantizeQ6K(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockQ6K>(blocks, count, out, [](const BlockQ6K& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int g = 0; g < 16; ++g) {
      // Groups of 16 values; eight groups per half, two per quarter of 32.
      const int half = g / 8;
      const int quarter = g % 8 / 2;
      const int first = g % 2 * 16;
      const uint8_t* ql = block.ql + half * 64 + quarter % 2 * 32 + first;
      const uint8_t* qh = block.qh + half * 32 + first;
      const int low_shift = quarter / 2 * 4;
      const int high_shift = quarter * 2;
      const float scale = d * static_cast<float>(block.scales[g]);
      for (int l = 0; l < 16; ++l) {
        const int q = (ql[l] >> low_shift & 15) | (qh[l] >> high_shift & 3) << 4;
        y[g * 16 + l] = scale * static_cast<float>(q - 32);
      }
    }
  });
}

void DequantizeIq4Xs(const std::byte* blocks, size_t count, float* out) {
  ForEachBlock<BlockIq4Xs>(blocks, count, out, [](const BlockIq4Xs& block, float* y) {
    const float d = HalfToFloat(block.d);
    for (int j = 0; j < 8; ++j) {
      const int low = block.scales_l[j / 2] >> (4 * (j % 2)) & 15;
      const int high = (block.scales_h >> (2 * j) & 3) << 4;
      const float scale = d * static_cast<float>((low | high) - 32);
      const uint8_t* q = block.qs + j * 16;
      for (int l = 0; l < 16; ++l) {
        y[j * 32 + l] = scale * static_cast<float>(kIq4Values[q[l] & 15]);
        y[j * 32 + 16 + l] = scale * static_cast<float>(kIq4Values[q[l] >> 4]);
      }
    }
  });
}

}  // namespace rullama::gguf_internal
