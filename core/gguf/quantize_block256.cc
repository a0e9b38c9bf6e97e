// Super-blocks of 256 values. Runs get the scales that suit them best; these are then rounded to
// the grid of 6 or 8 bits that the super-block's f16 scale spans, trying the neighbours on the grid
// too, and the f16 scale is fitted once more to all codes.
#include <rullama/sdk/blocks.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/gguf/quantize_fit.h"
#include "core/gguf/quantize_kernels.h"

namespace rullama::gguf_internal {
namespace {

constexpr int kSuperBlock = 256;
constexpr int kRefits = 2;

int OnGrid(float value, float inverse, int low, int high) {
  return static_cast<int>(
      NearestCode(value * inverse, static_cast<float>(low), static_cast<float>(high)));
}

// --- Q2_K, Q4_K and Q5_K: value = d * scale * code - dmin * min ---

// Runs of a type, and the largest code and scale.
struct AffineType {
  int runs;
  int high;
  int max_scale;
  [[nodiscard]] constexpr int run() const { return kSuperBlock / runs; }
};
constexpr AffineType kQ2K{16, 3, 15}, kQ4K{8, 15, 63}, kQ5K{8, 31, 63};
constexpr int kMaxRuns = 16;

struct AffineCodes {
  uint16_t d = 0;
  uint16_t dmin = 0;
  uint8_t scales[kMaxRuns] = {};
  uint8_t mins[kMaxRuns] = {};
  uint8_t codes[kSuperBlock] = {};
  double error = std::numeric_limits<double>::infinity();
};

// Scale and minimum of run j on the grid of d and dmin, and its codes. Returns the squared error.
float PlaceAffineRun(const AffineType& type, const Weighted& x, AffineFit wanted, int j,
                     AffineCodes& block) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  const int scale = OnGrid(wanted.scale, SafeInverse(d), 0, type.max_scale);
  const int min = OnGrid(-wanted.offset, SafeInverse(dmin), 0, type.max_scale);
  const auto on_grid = [&](int s, int m) {
    return AffineFit{d * static_cast<float>(s), -dmin * static_cast<float>(m)};
  };
  float best = std::numeric_limits<float>::infinity();
  for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, type.max_scale); ++s) {
    for (int m = std::max(min - 1, 0); m <= std::min(min + 1, type.max_scale); ++m) {
      const float error = NearestPoints(x, type.run(), 0, type.high, on_grid(s, m), nullptr);
      if (error >= best) continue;
      best = error;
      block.scales[j] = static_cast<uint8_t>(s);
      block.mins[j] = static_cast<uint8_t>(m);
    }
  }
  return NearestPoints(x, type.run(), 0, type.high, on_grid(block.scales[j], block.mins[j]),
                       block.codes + j * type.run());
}

// d and dmin that suit the codes best; false if the codes do not determine them.
bool RefitAffine(const AffineType& type, const Weighted& x, AffineCodes& block) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // of a = scale * code and b = -min
  for (int i = 0; i < kSuperBlock; ++i) {
    const int run = i / type.run();
    const double a = block.scales[run] * block.codes[i];
    const double b = -static_cast<double>(block.mins[run]);
    const double weight = x.Weight(i), value = weight * static_cast<double>(x[i]);
    aa += weight * a * a;
    ab += weight * a * b;
    bb += weight * b * b;
    ax += a * value;
    bx += b * value;
  }
  const double determinant = aa * bb - ab * ab;
  if (!(determinant > 0)) return false;
  const double d = (ax * bb - bx * ab) / determinant;
  const double dmin = (bx * aa - ax * ab) / determinant;
  if (!(d > 0) || !(dmin >= 0)) return false;
  block.d = FloatToHalf(static_cast<float>(d));
  block.dmin = FloatToHalf(static_cast<float>(dmin));
  return true;
}

AffineCodes EncodeAffine(const AffineType& type, const Weighted& x) {
  AffineFit wanted[kMaxRuns];
  float largest_scale = 0;
  float largest_min = 0;
  for (int j = 0; j < type.runs; ++j) {
    wanted[j] = FitAffine(x.From(j * type.run()), type.run(), type.high, true);
    largest_scale = std::max(largest_scale, wanted[j].scale);
    largest_min = std::max(largest_min, -wanted[j].offset);
  }
  AffineCodes block;
  block.d = FloatToHalf(largest_scale / static_cast<float>(type.max_scale));
  block.dmin = FloatToHalf(largest_min / static_cast<float>(type.max_scale));
  AffineCodes best;
  for (int round = 0; round <= kRefits; ++round) {
    block.error = 0;
    for (int j = 0; j < type.runs; ++j) {
      block.error +=
          static_cast<double>(PlaceAffineRun(type, x.From(j * type.run()), wanted[j], j, block));
    }
    if (block.error >= best.error) break;
    best = block;
    if (!RefitAffine(type, x, block)) break;
  }
  return best;
}

// The twelve bytes of scales and minima; see docs/numerics.md.
void PackScales(const AffineCodes& from, uint8_t (&s)[12]) {
  for (int j = 0; j < 4; ++j) {
    s[j] = static_cast<uint8_t>(from.scales[j] | (from.scales[j + 4] >> 4) << 6);
    s[j + 4] = static_cast<uint8_t>(from.mins[j] | (from.mins[j + 4] >> 4) << 6);
    s[j + 8] = static_cast<uint8_t>((from.scales[j + 4] & 15) | (from.mins[j + 4] & 15) << 4);
  }
}

void PackNibbles(const AffineCodes& from, uint8_t (&qs)[128]) {
  for (int i = 0; i < 128; ++i) {
    const uint8_t* low = from.codes + i / 32 * 64 + i % 32;
    qs[i] = static_cast<uint8_t>((low[0] & 15) | (low[32] & 15) << 4);
  }
}

// Two bits of each code: four planes of 32 values to each 32 bytes.
void PackTwoBits(const uint8_t (&codes)[kSuperBlock], uint8_t (&qs)[64]) {
  for (int i = 0; i < kSuperBlock; ++i) {
    uint8_t& byte = qs[i / 128 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | (codes[i] & 3) << (i % 128 / 32 * 2));
  }
}

// --- Q3_K and Q6_K: sixteen runs of 16, value = d * scale * (code + lowest) ---

constexpr int kSymmetricRuns = 16;
constexpr int kSymmetricRun = kSuperBlock / kSymmetricRuns;

// Codes reach from `lowest` to -lowest - 1, scales from `lowest_scale` likewise.
struct SymmetricType {
  int lowest;
  int lowest_scale;
  [[nodiscard]] constexpr int highest() const { return -lowest - 1; }
  [[nodiscard]] constexpr int highest_scale() const { return -lowest_scale - 1; }
};
constexpr SymmetricType kQ3K{-4, -32}, kQ6K{-32, -128};

struct SymmetricCodes {
  uint16_t d = 0;
  int8_t scales[kSymmetricRuns] = {};
  uint8_t codes[kSuperBlock] = {};
  double error = std::numeric_limits<double>::infinity();
};

float PlaceSymmetricRun(const SymmetricType& type, const Weighted& x, float wanted, int j,
                        SymmetricCodes& block) {
  const float d = HalfToFloat(block.d);
  const int scale = OnGrid(wanted, SafeInverse(d), type.lowest_scale, type.highest_scale());
  const auto on_grid = [&](int s) { return AffineFit{d * static_cast<float>(s), 0}; };
  float best = std::numeric_limits<float>::infinity();
  for (int s = std::max(scale - 1, type.lowest_scale);
       s <= std::min(scale + 1, type.highest_scale()); ++s) {
    const float error =
        NearestPoints(x, kSymmetricRun, type.lowest, type.highest(), on_grid(s), nullptr);
    if (error >= best) continue;
    best = error;
    block.scales[j] = static_cast<int8_t>(s);
  }
  return NearestPoints(x, kSymmetricRun, type.lowest, type.highest(), on_grid(block.scales[j]),
                       block.codes + j * kSymmetricRun);
}

bool RefitSymmetric(const SymmetricType& type, const Weighted& x, SymmetricCodes& block) {
  double aa = 0, ax = 0;  // of a = scale * code
  for (int i = 0; i < kSuperBlock; ++i) {
    const int run = i / kSymmetricRun;
    const double a = block.scales[run] * (block.codes[i] + type.lowest);
    aa += x.Weight(i) * a * a;
    ax += x.Weight(i) * a * static_cast<double>(x[i]);
  }
  if (!(aa > 0)) return false;
  block.d = FloatToHalf(static_cast<float>(ax / aa));
  return true;
}

SymmetricCodes EncodeSymmetric(const SymmetricType& type, const Weighted& x) {
  float wanted[kSymmetricRuns];
  float largest = 0;
  for (int j = 0; j < kSymmetricRuns; ++j) {
    wanted[j] = FitSymmetric(x.From(j * kSymmetricRun), kSymmetricRun, type.lowest, type.highest());
    if (std::fabs(wanted[j]) > std::fabs(largest)) largest = wanted[j];
  }
  SymmetricCodes block;
  block.d = FloatToHalf(largest / static_cast<float>(type.lowest_scale));
  SymmetricCodes best;
  for (int round = 0; round <= kRefits; ++round) {
    block.error = 0;
    for (int j = 0; j < kSymmetricRuns; ++j) {
      block.error += static_cast<double>(
          PlaceSymmetricRun(type, x.From(j * kSymmetricRun), wanted[j], j, block));
    }
    if (block.error >= best.error) break;
    best = block;
    if (!RefitSymmetric(type, x, block)) break;
  }
  return best;
}

}  // namespace

void QuantizeQ2K(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ2K, kSuperBlock>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockQ2K& block) {
        const AffineCodes codes = EncodeAffine(kQ2K, x);
        block.d = codes.d;
        block.dmin = codes.dmin;
        for (int j = 0; j < kQ2K.runs; ++j) {
          block.scales[j] = static_cast<uint8_t>(codes.scales[j] | codes.mins[j] << 4);
        }
        PackTwoBits(codes.codes, block.qs);
      });
}

void QuantizeQ3K(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ3K, kSuperBlock>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockQ3K& block) {
        const SymmetricCodes codes = EncodeSymmetric(kQ3K, x);
        block.d = codes.d;
        PackTwoBits(codes.codes, block.qs);
        for (int i = 0; i < kSuperBlock; ++i) {
          uint8_t& high = block.hmask[i % 32];
          high = static_cast<uint8_t>(high | (codes.codes[i] >> 2) << (i / 32));
        }
        for (int j = 0; j < kSymmetricRuns; ++j) {
          const int scale = codes.scales[j] - kQ3K.lowest_scale;
          uint8_t& low = block.scales[j % 8];
          low = static_cast<uint8_t>(low | (scale & 15) << (j / 8 * 4));
          uint8_t& high = block.scales[8 + j % 4];
          high = static_cast<uint8_t>(high | (scale >> 4) << (2 * (j / 4)));
        }
      });
}

void QuantizeQ4K(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ4K, kSuperBlock>(values, weights, count, blocks,
                                           [](const Weighted& x, sdk::BlockQ4K& block) {
                                             const AffineCodes codes = EncodeAffine(kQ4K, x);
                                             block.d = codes.d;
                                             block.dmin = codes.dmin;
                                             PackScales(codes, block.scales);
                                             PackNibbles(codes, block.qs);
                                           });
}

void QuantizeQ5K(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ5K, kSuperBlock>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockQ5K& block) {
        const AffineCodes codes = EncodeAffine(kQ5K, x);
        block.d = codes.d;
        block.dmin = codes.dmin;
        PackScales(codes, block.scales);
        PackNibbles(codes, block.qs);
        for (int i = 0; i < kSuperBlock; ++i) {
          uint8_t& high = block.qh[i % 32];
          high = static_cast<uint8_t>(high | (codes.codes[i] >> 4) << (i / 32));
        }
      });
}

void QuantizeQ6K(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ6K, kSuperBlock>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockQ6K& block) {
        const SymmetricCodes codes = EncodeSymmetric(kQ6K, x);
        block.d = codes.d;
        std::memcpy(block.scales, codes.scales, sizeof(block.scales));
        for (int i = 0; i < kSuperBlock; ++i) {
          // Halves of 128 in quarters of 32: two quarters share the nibbles of 32 bytes, four their
          // pairs of high bits.
          const int half = i / 128;
          const int quarter = i % 128 / 32;
          const int column = i % 32;
          uint8_t& low = block.ql[half * 64 + quarter % 2 * 32 + column];
          uint8_t& high = block.qh[half * 32 + column];
          low = static_cast<uint8_t>(low | (codes.codes[i] & 15) << (quarter / 2 * 4));
          high = static_cast<uint8_t>(high | (codes.codes[i] >> 4) << (quarter * 2));
        }
      });
}

}  // namespace rullama::gguf_internal
