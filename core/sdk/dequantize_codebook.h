// The decoders of dequantize.h for types whose blocks index code books, and for ternary ones. A
// block becomes codes of 16 levels at most with one scale for each 16 weights, which is also what
// kernels of GPUs read. All products are exact: 11 bits of an f16, at most 5 of a scale and 6 of a
// level.
//
// Thread safety: pure functions.
#pragma once

#include <rullama/sdk/blocks.h>
#include <rullama/sdk/codebooks.h>
#include <rullama/sdk/half.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rullama::sdk {

// Weight i of a block is d * factor * (2 * scales[i / 16] + 1) * levels[codes[i]].
struct LevelBlock {
  uint16_t d = 0;
  uint8_t scales[16] = {};  // at most 15
  uint8_t codes[256] = {};
};
struct Levels {
  float factor;
  int8_t levels[16];
};

// The third bit of a code of iq2 is the sign, that of iq1 says that the offset of an eighth is
// negative. The fourth bit of a code of iq3 is the sign.
inline constexpr Levels kIq1Levels{0.125f, {-7, 1, 9, 0, -9, -1, 7}};
inline constexpr Levels kIq2Levels{0.125f, {8, 25, 43, 0, -8, -25, -43}};
inline constexpr Levels kIq3XxsLevels{
    0.25f, {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}};
inline constexpr Levels kIq3SLevels{1.0f,
                                    {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
inline constexpr Levels kTernaryLevels{1.0f, {-1, 0, 1, 2}};

namespace internal {

// Seven signs are stored; the eighth makes their number even.
constexpr uint32_t EightSigns(uint32_t seven) {
  return seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7;
}

constexpr uint32_t Word32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

// The codes of an entry of eight levels, whose third bits are those of `signs`.
inline void EightCodes(uint32_t entry, uint32_t signs, uint8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    codes[i] = static_cast<uint8_t>((entry >> (2 * i) & 3u) | (signs >> i & 1u) << 2);
  }
}

// The codes of an entry of four levels.
inline void FourCodes(uint32_t entry, uint32_t signs, uint8_t* codes) {
  for (int i = 0; i < 4; ++i) {
    codes[i] = static_cast<uint8_t>((entry >> (4 * i) & 7u) | (signs >> i & 1u) << 3);
  }
}

// Scales of four bits, each of `runs` runs of 16 weights.
inline void NibbleScales(const uint8_t* nibbles, int runs, LevelBlock& out) {
  for (int run = 0; run < 16; ++run) {
    const int i = run / runs;
    out.scales[run] = static_cast<uint8_t>(nibbles[i / 2] >> (i % 2 * 4) & 15);
  }
}

inline void Read(const BlockIq2Xxs& block, LevelBlock& out) {
  out.d = block.d;
  for (int group = 0; group < 8; ++group) {
    const uint8_t* qs = block.qs + group * 8;
    const uint32_t word = Word32(qs + 4);
    out.scales[2 * group] = out.scales[2 * group + 1] = static_cast<uint8_t>(word >> 28);
    for (int j = 0; j < 4; ++j) {
      EightCodes(kIq2XxsGrid[qs[j]], EightSigns(word >> (7 * j) & 127u),
                 out.codes + group * 32 + j * 8);
    }
  }
}

inline void Read(const BlockIq2Xs& block, LevelBlock& out) {
  out.d = block.d;
  NibbleScales(block.scales, 1, out);
  for (int j = 0; j < 32; ++j) {
    EightCodes(kIq2XsGrid[block.qs[j] & 511], EightSigns(block.qs[j] >> 9), out.codes + j * 8);
  }
}

inline void Read(const BlockIq2S& block, LevelBlock& out) {
  out.d = block.d;
  NibbleScales(block.scales, 1, out);
  for (int j = 0; j < 32; ++j) {
    const int high = block.qh[j / 4] >> (j % 4 * 2) & 3;
    EightCodes(kIq2SGrid[block.qs[j] | high << 8], block.signs[j], out.codes + j * 8);
  }
}

inline void Read(const BlockIq3Xxs& block, LevelBlock& out) {
  out.d = block.d;
  for (int group = 0; group < 8; ++group) {
    const uint32_t word = Word32(block.signs_and_scales + group * 4);
    out.scales[2 * group] = out.scales[2 * group + 1] = static_cast<uint8_t>(word >> 28);
    for (int j = 0; j < 8; ++j) {
      const uint32_t signs = EightSigns(word >> (j / 2 * 7) & 127u);
      FourCodes(kIq3XxsGrid[block.qs[group * 8 + j]], signs >> (j % 2 * 4),
                out.codes + group * 32 + j * 4);
    }
  }
}

inline void Read(const BlockIq3S& block, LevelBlock& out) {
  out.d = block.d;
  NibbleScales(block.scales, 2, out);
  for (int j = 0; j < 64; ++j) {
    const int high = block.qh[j / 8] >> (j % 8) & 1;
    const uint32_t signs = static_cast<uint32_t>(block.signs[j / 2]) >> (j % 2 * 4);
    FourCodes(kIq3SGrid[block.qs[j] | high << 8], signs, out.codes + j * 4);
  }
}

inline void Read(const BlockIq1S& block, LevelBlock& out) {
  out.d = block.d;
  for (int j = 0; j < 32; ++j) {
    const int qh = block.qh[j / 4];
    out.scales[j / 2] = static_cast<uint8_t>(qh >> 12 & 7);
    const int high = qh >> (j % 4 * 3) & 7;
    EightCodes(kIq1Grid[block.qs[j] | high << 8], qh >> 15 != 0 ? 255 : 0, out.codes + j * 8);
  }
}

inline void Read(const BlockIq1M& block, LevelBlock& out) {
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) d |= static_cast<uint32_t>(block.scales[i] >> 12) << (4 * i);
  out.d = static_cast<uint16_t>(d);
  for (int j = 0; j < 32; ++j) {
    out.scales[j / 2] = static_cast<uint8_t>(block.scales[j / 8] >> (j % 8 / 2 * 3) & 7);
    const int qh = block.qh[j / 2] >> (j % 2 * 4) & 15;
    EightCodes(kIq1Grid[block.qs[j] | (qh & 7) << 8], (qh & 8) != 0 ? 255 : 0, out.codes + j * 8);
  }
}

// `places` times `width` digits to the base of 3: the first ones of each byte, then the second
// ones. A byte is a fraction in units of 1 / 256; of a multiple by a power of 3 the fraction begins
// with the digit. Returns the end of what was written.
inline uint8_t* Digits(const uint8_t* bytes, int width, int places, uint8_t* codes) {
  int power = 1;
  for (int place = 0; place < places; ++place, power *= 3) {
    for (int i = 0; i < width; ++i) {
      *codes++ = static_cast<uint8_t>((bytes[i] * power & 255) * 3 >> 8);
    }
  }
  return codes;
}

inline void Read(const BlockTq1_0& block, LevelBlock& out) {
  out.d = block.d;
  uint8_t* codes = Digits(block.qs, 32, 5, out.codes);
  codes = Digits(block.qs + 32, 16, 5, codes);
  Digits(block.qh, 4, 4, codes);
}

inline void Read(const BlockTq2_0& block, LevelBlock& out) {
  out.d = block.d;
  for (int i = 0; i < 256; ++i) {
    out.codes[i] = static_cast<uint8_t>(block.qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
  }
}

template <typename Block>
void ReadBytes(const std::byte* bytes, LevelBlock& out) {
  Block block;
  std::memcpy(&block, bytes, sizeof(Block));
  Read(block, out);
}

}  // namespace internal

// Reads one block, which needs no alignment.
using LevelReader = void (*)(const std::byte* block, LevelBlock& out);

// Null for types of other blocks.
[[nodiscard]] constexpr LevelReader FindLevelReader(DType dtype) {
  switch (dtype) {
    case DType::kIQ2_XXS:
      return internal::ReadBytes<BlockIq2Xxs>;
    case DType::kIQ2_XS:
      return internal::ReadBytes<BlockIq2Xs>;
    case DType::kIQ2_S:
      return internal::ReadBytes<BlockIq2S>;
    case DType::kIQ3_XXS:
      return internal::ReadBytes<BlockIq3Xxs>;
    case DType::kIQ3_S:
      return internal::ReadBytes<BlockIq3S>;
    case DType::kIQ1_S:
      return internal::ReadBytes<BlockIq1S>;
    case DType::kIQ1_M:
      return internal::ReadBytes<BlockIq1M>;
    case DType::kTQ1_0:
      return internal::ReadBytes<BlockTq1_0>;
    case DType::kTQ2_0:
      return internal::ReadBytes<BlockTq2_0>;
    default:
      return nullptr;
  }
}

// The floats of `count` blocks.
template <DType kType, const Levels& kLevels>
void DequantizeWithLevels(const std::byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    LevelBlock block;
    FindLevelReader(kType)(blocks + i * InfoOf(kType).block_bytes, block);
    const float d = HalfToFloat(block.d) * kLevels.factor;
    for (int j = 0; j < 256; ++j) {
      const int run = j / 16;
      const float scale = d * static_cast<float>(2 * block.scales[run] + 1);
      *out++ = scale * static_cast<float>(kLevels.levels[block.codes[j]]);
    }
  }
}

}  // namespace rullama::sdk
