#include "backends/cpu/kernels/test_weights.h"

#include <rullama/sdk/dequantize.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/decode_row.h"

namespace rullama::cpu::testing {
namespace {

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

bool HasCodeBook(DType dtype) {
  switch (dtype) {
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return true;
    default:
      return false;
  }
}

double Half(const uint8_t* p) { return HalfToFloat(static_cast<uint16_t>(p[0] | p[1] << 8)); }

// Byte offsets of the f16 fields of a block.
std::vector<size_t> HalfFields(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kTQ1_0:
      return {52};
    case DType::kTQ2_0:
      return {64};
    case DType::kMXFP4:
    case DType::kNVFP4:
    case DType::kIQ1_M:
      return {};
    default:
      return {0};
  }
}

int Nibble(const uint8_t* qs, size_t i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }
int FifthBit(const uint8_t* qh, size_t i) { return qh[i / 8] >> (i % 8) & 1; }

double Element32(DType dtype, const uint8_t* b, size_t i) {
  switch (dtype) {
    case DType::kQ4_0:
      return (Nibble(b + 2, i) - 8) * Half(b);
    case DType::kQ4_1:
      return Nibble(b + 4, i) * Half(b) + Half(b + 2);
    case DType::kQ5_0:
      return (Nibble(b + 6, i) + 16 * FifthBit(b + 2, i) - 16) * Half(b);
    case DType::kQ5_1:
      return (Nibble(b + 8, i) + 16 * FifthBit(b + 4, i)) * Half(b) + Half(b + 2);
    case DType::kQ8_0:
      return static_cast<int8_t>(b[2 + i]) * Half(b);
    case DType::kIQ4_NL:
      return kIq4[Nibble(b + 2, i)] * Half(b);
    default:  // MXFP4
      return kE2M1Doubled[Nibble(b + 1, i)] * std::ldexp(1.0, b[0] - 128);
  }
}

void SixBit(const uint8_t* s, size_t j, int* scale, int* min) {
  if (j < 4) {
    *scale = s[j] & 63;
    *min = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

double Element45K(const uint8_t* b, size_t i, bool five) {
  const size_t j = i / 32, l = i % 32;
  int scale = 0, min = 0;
  SixBit(b + 4, j, &scale, &min);
  const uint8_t* qs = b + (five ? 48 : 16);
  const uint8_t byte = qs[32 * (j / 2) + l];
  int q = j % 2 == 0 ? byte & 15 : byte >> 4;
  if (five) q += (b[16 + l] >> j & 1) << 4;
  return Half(b) * scale * q - Half(b + 2) * min;
}

double Element6K(const uint8_t* b, size_t i) {
  const size_t half = i / 128, in_half = i % 128, quarter = in_half / 32, l = in_half % 32;
  const uint8_t low = b[64 * half + (quarter % 2 == 1 ? 32 : 0) + l];
  const int nibble = quarter < 2 ? low & 15 : low >> 4;
  const int high = b[128 + 32 * half + l] >> (2 * quarter) & 3;
  const int scale = static_cast<int8_t>(b[192 + i / 16]);
  return Half(b + 208) * scale * ((nibble | high << 4) - 32);
}

double Element2K(const uint8_t* b, size_t i) {
  const int q = b[16 + 32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
  const uint8_t scale = b[i / 16];
  return Half(b + 80) * (scale & 15) * q - Half(b + 82) * (scale >> 4);
}

double Element3K(const uint8_t* b, size_t i) {
  const size_t half = i / 128, s = i % 128 / 32, l = i % 32, g = i / 16;
  const uint8_t* scales = b + 96;
  const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
  const int high = scales[8 + g % 4] >> (2 * (g / 4)) & 3;
  const int q = b[32 + 32 * half + l] >> (2 * s) & 3;
  const int missing = (b[l] >> (half * 4 + s) & 1) != 0 ? 0 : 4;
  return Half(b + 108) * ((low | high << 4) - 32) * (q - missing);
}

double ElementIq4Xs(const uint8_t* b, size_t i) {
  const size_t j = i / 32;
  const int high = (b[2] | b[3] << 8) >> (2 * j) & 3;
  const int scale = (b[4 + j / 2] >> (4 * (j % 2)) & 15) | high << 4;
  return Half(b) * (scale - 32) * kIq4[Nibble(b + 8 + 16 * j, i % 32)];
}

double Element(DType dtype, const uint8_t* b, size_t i) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, b, 4);
      return value;
    }
    case DType::kF16:
      return Half(b);
    case DType::kBF16:
      return BFloat16ToFloat(static_cast<uint16_t>(b[0] | b[1] << 8));
    case DType::kQ4_K:
      return Element45K(b, i, false);
    case DType::kQ5_K:
      return Element45K(b, i, true);
    case DType::kQ6_K:
      return Element6K(b, i);
    case DType::kQ2_K:
      return Element2K(b, i);
    case DType::kQ3_K:
      return Element3K(b, i);
    case DType::kIQ4_XS:
      return ElementIq4Xs(b, i);
    default:
      return Element32(dtype, b, i);
  }
}

void RandomBlock(DType dtype, uint8_t* block, size_t bytes, Rng& rng) {
  for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<uint8_t>(rng());
  std::uniform_real_distribution<float> scale(0.25f, 1.0f);
  // Divide by the largest product of quant and integer scale, so that values are of order one.
  const double largest = dtype == DType::kQ8_0 || dtype == DType::kIQ4_NL ? 127
                         : dtype == DType::kIQ4_XS                        ? 127 * 32
                         : dtype == DType::kQ6_K                          ? 128 * 32
                         : dtype == DType::kQ5_K                          ? 63 * 31
                         : dtype == DType::kQ4_K                          ? 63 * 15
                         : dtype == DType::kQ3_K                          ? 32 * 4
                         : dtype == DType::kQ2_K                          ? 15 * 3
                         : HasCodeBook(dtype)                             ? 31 * 15
                                                                          : 16;
  const float signs[2] = {1.0f, -1.0f};
  for (size_t at : HalfFields(dtype)) {
    const float value = signs[rng() % 2] * scale(rng) / static_cast<float>(largest);
    const uint16_t half = FloatToHalf(value);
    std::memcpy(block + at, &half, 2);
  }
  if (dtype == DType::kMXFP4) block[0] = static_cast<uint8_t>(122 + rng() % 4);
  if (dtype == DType::kNVFP4) {
    for (size_t i = 0; i < 4; ++i) block[i] = static_cast<uint8_t>(0x30 + rng() % 8);
  }
  // The sign and the upper bits of the exponent of the f16 scale: 2^-7 to 2^-3.
  if (dtype == DType::kIQ1_M) block[55] = static_cast<uint8_t>(0x20 | (block[55] & 15));
}

}  // namespace

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas;
  for (size_t i = 0; i < kIsaCount; ++i) {
    if (IsaAvailable(static_cast<Isa>(i))) isas.push_back(static_cast<Isa>(i));
  }
  return isas;
}

std::string IsaTestName(const ::testing::TestParamInfo<Isa>& test) {
  std::string name = IsaName(test.param);
  std::erase(name, '-');
  return name;
}

std::vector<float> RandomFloats(size_t n, float deviation, Rng& rng) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

std::vector<uint8_t> RandomWeights(DType dtype, size_t rows, size_t k, Rng& rng) {
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * RowBytes(dtype, k)));
  if (IsBlockType(dtype)) {
    const size_t block = InfoOf(dtype).block_bytes;
    for (size_t at = 0; at < bytes.size(); at += block) RandomBlock(dtype, &bytes[at], block, rng);
    return bytes;
  }
  const std::vector<float> values = RandomFloats(rows * k, 0.5f, rng);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
      continue;
    }
    const uint16_t bits =
        dtype == DType::kF16 ? FloatToHalf(values[i]) : FloatToBFloat16(values[i]);
    std::memcpy(&bytes[2 * i], &bits, 2);
  }
  return bytes;
}

std::vector<double> ReferenceRow(DType dtype, const uint8_t* row, size_t k) {
  const DTypeInfo& info = InfoOf(dtype);
  std::vector<double> values(k);
  if (IsDecodedType(dtype) || HasCodeBook(dtype)) {
    std::vector<float> decoded(k);
    sdk::FindDequantizer(dtype)(reinterpret_cast<const std::byte*>(row), k / info.block_elements,
                                decoded.data());
    std::ranges::copy(decoded, values.begin());
    return values;
  }
  for (size_t i = 0; i < k; ++i) {
    const uint8_t* block = row + i / info.block_elements * info.block_bytes;
    values[i] = Element(dtype, block, i % info.block_elements);
  }
  return values;
}

double ActivationValue(const uint8_t* row, ActivationFormat format, size_t k, ActivationBits bits,
                       size_t i) {
  const size_t padded = PaddedLength(k);
  if (format == ActivationFormat::kSplitBf16) {
    double sum = 0;
    for (size_t part = 0; part < PartCount(bits); ++part) {
      uint16_t bf16;
      std::memcpy(&bf16, row + 2 * (padded * part + i), sizeof(bf16));
      sum += BFloat16ToFloat(bf16);
    }
    return sum;
  }
  float scale;
  std::memcpy(&scale, row + padded * PartCount(bits) + i / kActivationBlock * sizeof(float),
              sizeof(float));
  const int high = static_cast<int8_t>(row[i]);
  return static_cast<double>(scale) *
         (bits == ActivationBits::k8 ? high : 256 * high + static_cast<int8_t>(row[padded + i]));
}

Activations MakeActivations(const KernelTable& table, DType dtype, ActivationFormat format,
                            ActivationBits bits, size_t batch, size_t k, Rng& rng) {
  Activations result;
  result.format = format;
  result.bits = BitsFor(dtype, bits);
  result.values = RandomFloats(batch * k, 1.0f, rng);
  result.stride = ActivationRowBytes(format, k, result.bits);
  result.bytes.resize(batch * result.stride);
  result.seen.resize(batch * k);
  for (size_t m = 0; m < batch; ++m) {
    const float* x = &result.values[m * k];
    uint8_t* out = &result.bytes[m * result.stride];
    if (format == ActivationFormat::kFloat32) {
      std::memcpy(out, x, k * sizeof(float));
      for (size_t i = 0; i < k; ++i) result.seen[m * k + i] = x[i];
      continue;
    }
    MakeActivationRow(table, format, x, k, result.bits, out);
    for (size_t i = 0; i < k; ++i) {
      result.seen[m * k + i] = ActivationValue(out, format, k, result.bits, i);
    }
  }
  return result;
}

}  // namespace rullama::cpu::testing
