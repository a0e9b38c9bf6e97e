#include "models/common/files/synth_blocks.h"

#include <rullama/sdk/half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/base/check.h"

namespace rullama {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014) as a counter-based generator: one 64-bit word for each
// index.
uint64_t Word(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void StoreHalf(std::byte* to, float value) {
  const uint16_t bits = FloatToHalf(value);
  std::memcpy(to, &bits, sizeof(bits));
}

// Standard deviation of n equally likely consecutive integers.
float UniformDeviation(float n) { return std::sqrt((n * n - 1) / 12); }

// Sub-block scales are drawn from [32, 64): all six bits in use, none near zero.
constexpr float kMeanScale = 47.5f;
uint32_t DrawScale(uint64_t word, size_t index) { return 32 + ((word >> (5 * index)) & 31); }

// The twelve bytes of Q4_K and Q5_K: eight scales and eight minima of six bits. Scale and minimum
// are equal, so that with dmin = d * (levels - 1) / 2 every sub-block is centred.
void PackScales(uint64_t word, std::byte* out) {
  std::array<uint32_t, 8> s{};
  for (size_t j = 0; j < s.size(); ++j) s[j] = DrawScale(word, j);
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t high = (s[j + 4] >> 4) << 6;
    const uint32_t low = s[j + 4] & 15;
    out[j] = static_cast<std::byte>(s[j] | high);
    out[j + 4] = static_cast<std::byte>(s[j] | high);
    out[j + 8] = static_cast<std::byte>(low | (low << 4));
  }
}

void FinishCentred(float levels, float deviation, uint64_t word, std::byte* block) {
  const float d = deviation / (kMeanScale * UniformDeviation(levels));
  StoreHalf(block, d);
  StoreHalf(block + 2, d * (levels - 1) / 2);
  PackScales(word, block + 4);
}

void FinishQ6K(float deviation, uint64_t word, std::byte* block) {
  constexpr size_t kScales = 192;  // after 128 bytes of low and 64 of high bits
  for (size_t i = 0; i < 16; ++i) {
    block[kScales + i] = static_cast<std::byte>(DrawScale(word, i % 12));
  }
  StoreHalf(block + kScales + 16, deviation / (kMeanScale * UniformDeviation(64)));
}

void FinishF32(float deviation, std::byte* data) {
  int32_t code = 0;
  std::memcpy(&code, data, sizeof(code));
  const float value = static_cast<float>(code) * (deviation * std::sqrt(3.0f) * 0x1p-31f);
  std::memcpy(data, &value, sizeof(value));
}

void FinishFloats(DType dtype, float deviation, std::byte* data, size_t count) {
  // Uniform on [-sqrt(3), sqrt(3)) deviations.
  const float step = deviation * std::sqrt(3.0f) / 32768;
  for (size_t i = 0; i < count; ++i) {
    int16_t code = 0;
    std::memcpy(&code, data + 2 * i, sizeof(code));
    const float value = static_cast<float>(code) * step;
    const uint16_t bits = dtype == DType::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
    std::memcpy(data + 2 * i, &bits, sizeof(bits));
  }
}

// Gives a block of random bits its scales.
void FinishBlock(DType dtype, float deviation, uint64_t word, std::byte* block) {
  switch (dtype) {
    case DType::kF32:
      return FinishF32(deviation, block);
    case DType::kQ4_0:
      return StoreHalf(block, deviation / UniformDeviation(16));
    case DType::kQ5_0:
      return StoreHalf(block, deviation / UniformDeviation(32));
    case DType::kQ5_1:
      StoreHalf(block, deviation / UniformDeviation(32));
      return StoreHalf(block + 2, -15.5f * deviation / UniformDeviation(32));
    case DType::kQ8_0:
      return StoreHalf(block, deviation / UniformDeviation(256));
    case DType::kQ4_K:
      return FinishCentred(16, deviation, word, block);
    case DType::kQ5_K:
      return FinishCentred(32, deviation, word, block);
    case DType::kQ6_K:
      return FinishQ6K(deviation, word, block);
    default:
      return FinishFloats(dtype, deviation, block, 1);
  }
}

}  // namespace

bool CanSynthesize(DType dtype) {
  constexpr std::array kTypes = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                                 DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K,
                                 DType::kQ5_K, DType::kQ6_K};
  return std::ranges::find(kTypes, dtype) != kTypes.end();
}

void FillRandomBlocks(DType dtype, uint64_t seed, uint64_t first_block, float deviation,
                      std::span<std::byte> blocks) {
  RL_CHECK(CanSynthesize(dtype));
  const size_t block_bytes = InfoOf(dtype).block_bytes;
  // A block owns a run of words, so that its bytes do not depend on where a piece began.
  const uint64_t words_per_block = block_bytes / 8 + 2;
  for (size_t at = 0; at + block_bytes <= blocks.size(); at += block_bytes, ++first_block) {
    std::byte* block = blocks.data() + at;
    uint64_t index = first_block * words_per_block;
    for (size_t i = 0; i < block_bytes; i += 8) {
      const uint64_t word = Word(seed, index++);
      std::memcpy(block + i, &word, std::min<size_t>(8, block_bytes - i));
    }
    FinishBlock(dtype, deviation, Word(seed, index), block);
  }
}

uint64_t TensorSeed(uint64_t model_seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return Word(model_seed, hash);
}

}  // namespace rullama
