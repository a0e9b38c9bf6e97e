// Types whose codes stand for the points of a table: iq4_nl and iq4_xs, and mxfp4. The scale is
// searched as for symmetric types (quantize_fit.h); the nearest points follow from the midpoints
// between neighbours.
#include <rullama/sdk/blocks.h>
#include <rullama/sdk/dequantize.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/gguf/quantize_fit.h"
#include "core/gguf/quantize_kernels.h"

namespace rullama::gguf_internal {
namespace {

constexpr int kIq4Run = 32;
constexpr int kIq4HalfRun = 16;
constexpr int kIq4Block = 256;
constexpr int kIq4Runs = kIq4Block / kIq4Run;

// The index of the point next to `value`, in a table whose points rise.
int NearestIq4(float value) {
  int index = 0;
  for (int i = 0; i + 1 < 16; ++i) {
    const float middle = 0.5f * static_cast<float>(sdk::kIq4Values[i] + sdk::kIq4Values[i + 1]);
    index += value > middle ? 1 : 0;
  }
  return index;
}

// The codes of a run for a scale, and their squared error.
float NearestIq4Codes(const Weighted& x, float scale, uint8_t* codes) {
  const float inverse = SafeInverse(scale);
  float error = 0;
  for (int i = 0; i < kIq4Run; ++i) {
    const int code = NearestIq4(x[i] * inverse);
    const float distance = x[i] - scale * static_cast<float>(sdk::kIq4Values[code]);
    error += x.weights[i] * distance * distance;
    if (codes != nullptr) codes[i] = static_cast<uint8_t>(code);
  }
  return error;
}

// The scale, of either sign, for which a run is nearest to the points.
float FitIq4(const Weighted& x) {
  float peak = 0;
  for (int i = 0; i < kIq4Run; ++i) peak = std::fabs(x[i]) > std::fabs(peak) ? x[i] : peak;
  const float per_peak = SafeInverse(peak);
  if (per_peak == 0) return 0;
  double best_gain = 0;
  double best_scale = 0;
  const auto try_inverse = [&](float inverse) {
    double square = 0, product = 0;
    for (int i = 0; i < kIq4Run; ++i) {
      const double point = sdk::kIq4Values[NearestIq4(x[i] * inverse)];
      square += x.Weight(i) * point * point;
      product += x.Weight(i) * point * static_cast<double>(x[i]);
    }
    const double gain = square > 0 ? product * product / square : 0;
    if (gain <= best_gain) return;
    best_gain = gain;
    best_scale = product / square;
  };
  // The largest value goes to one end of the table, or beyond it.
  constexpr int kIq4Starts = 9;
  constexpr float kIq4Step = 1.5f;
  for (const int8_t end : {sdk::kIq4Values[0], sdk::kIq4Values[15]}) {
    for (int start = -kIq4Starts; start <= kIq4Starts; ++start) {
      try_inverse((static_cast<float>(end) + kIq4Step * static_cast<float>(start)) * per_peak);
    }
  }
  try_inverse(SafeInverse(static_cast<float>(best_scale)));
  return static_cast<float>(best_scale);
}

void PackIq4Nibbles(const uint8_t* codes, uint8_t* qs) {
  for (int j = 0; j < kIq4HalfRun; ++j) {
    qs[j] = static_cast<uint8_t>(codes[j] | codes[j + kIq4HalfRun] << 4);
  }
}

// The codes of iq4_xs: value = d * (scale - 32) * point.
struct Iq4Codes {
  uint16_t d = 0;
  int scales[kIq4Runs] = {};  // -32 to 31
  uint8_t codes[kIq4Block] = {};
  double error = std::numeric_limits<double>::infinity();
};

// The scale of run j on the grid of d, and its codes. Returns the squared error.
float PlaceIq4Run(const Weighted& x, float wanted, int j, Iq4Codes& block) {
  const float d = HalfToFloat(block.d);
  const auto near = static_cast<int>(NearestCode(wanted * SafeInverse(d), -32, 31));
  float best = std::numeric_limits<float>::infinity();
  for (int s = std::max(near - 1, -32); s <= std::min(near + 1, 31); ++s) {
    const float error = NearestIq4Codes(x, d * static_cast<float>(s), nullptr);
    if (error >= best) continue;
    best = error;
    block.scales[j] = s;
  }
  return NearestIq4Codes(x, d * static_cast<float>(block.scales[j]), block.codes + j * kIq4Run);
}

bool RefitIq4(const Weighted& x, Iq4Codes& block) {
  double square = 0, product = 0;
  for (int i = 0; i < kIq4Block; ++i) {
    const int run = i / kIq4Run;
    const double point = block.scales[run] * sdk::kIq4Values[block.codes[i]];
    square += x.Weight(i) * point * point;
    product += x.Weight(i) * point * static_cast<double>(x[i]);
  }
  if (!(square > 0)) return false;
  block.d = FloatToHalf(static_cast<float>(product / square));
  return true;
}

Iq4Codes EncodeIq4Xs(const Weighted& x) {
  float wanted[kIq4Runs];
  float largest = 0;
  for (int j = 0; j < kIq4Runs; ++j) {
    wanted[j] = FitIq4(x.From(j * kIq4Run));
    if (std::fabs(wanted[j]) > std::fabs(largest)) largest = wanted[j];
  }
  Iq4Codes block;
  block.d = FloatToHalf(largest / -32);
  Iq4Codes best;
  constexpr int kIq4Refits = 2;
  for (int round = 0; round <= kIq4Refits; ++round) {
    block.error = 0;
    for (int j = 0; j < kIq4Runs; ++j) {
      block.error += static_cast<double>(PlaceIq4Run(x.From(j * kIq4Run), wanted[j], j, block));
    }
    if (block.error >= best.error) break;
    best = block;
    if (!RefitIq4(x, block)) break;
  }
  return best;
}

// The code of e2m1 next to `value`, a number of units of one half.
int NearestE2M1(float value) {
  int best = 0;
  for (int code = 1; code < 16; ++code) {
    const auto distance = [value](int of) {
      return std::fabs(value - static_cast<float>(sdk::kE2M1TimesTwo[of]));
    };
    if (distance(code) < distance(best)) best = code;
  }
  return best;
}

// The squared error of a run for an exponent, and its codes.
double EncodeMxfp4(const Weighted& x, int exponent, uint8_t (&codes)[kIq4Run]) {
  const float scale = sdk::internal::HalfE8M0(static_cast<uint8_t>(exponent));
  const float inverse = SafeInverse(scale);
  double error = 0;
  for (int i = 0; i < kIq4Run; ++i) {
    codes[i] = static_cast<uint8_t>(NearestE2M1(x[i] * inverse));
    const double distance =
        static_cast<double>(x[i]) -
        static_cast<double>(scale * static_cast<float>(sdk::kE2M1TimesTwo[codes[i]]));
    error += x.Weight(i) * distance * distance;
  }
  return error;
}

}  // namespace

void QuantizeIq4Nl(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockQ4_0, kIq4Run>(values, weights, count, blocks,
                                        [](const Weighted& x, sdk::BlockQ4_0& block) {
                                          uint8_t codes[kIq4Run];
                                          block.d = FloatToHalf(FitIq4(x));
                                          NearestIq4Codes(x, HalfToFloat(block.d), codes);
                                          PackIq4Nibbles(codes, block.qs);
                                        });
}

void QuantizeIq4Xs(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockIq4Xs, kIq4Block>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockIq4Xs& block) {
        const Iq4Codes codes = EncodeIq4Xs(x);
        block.d = codes.d;
        for (int j = 0; j < kIq4Runs; ++j) {
          const int scale = codes.scales[j] + 32;
          block.scales_l[j / 2] =
              static_cast<uint8_t>(block.scales_l[j / 2] | (scale & 15) << (j % 2 * 4));
          block.scales_h = static_cast<uint16_t>(block.scales_h | (scale >> 4) << (2 * j));
          PackIq4Nibbles(codes.codes + j * kIq4Run, block.qs + j * kIq4HalfRun);
        }
      });
}

void QuantizeMxfp4(const float* values, const float* weights, size_t count, std::byte* blocks) {
  ForEachBlock<sdk::BlockMxfp4, kIq4Run>(
      values, weights, count, blocks, [](const Weighted& x, sdk::BlockMxfp4& block) {
        float peak = 0;
        for (int i = 0; i < kIq4Run; ++i) peak = std::max(peak, std::fabs(x[i]));
        // The largest value goes to the last binade of e2m1, whose exponent is 2, or the one next
        // to it.
        const int usual = peak > 0 ? std::ilogb(peak) - 2 + 127 : 0;
        double best = std::numeric_limits<double>::infinity();
        uint8_t codes[kIq4Run];
        for (int e = std::max(usual - 1, 0); e <= std::min(std::max(usual + 1, 0), 254); ++e) {
          const double error = EncodeMxfp4(x, e, codes);
          if (error >= best) continue;
          best = error;
          block.e = static_cast<uint8_t>(e);
          PackIq4Nibbles(codes, block.qs);
        }
      });
}

}  // namespace rullama::gguf_internal
