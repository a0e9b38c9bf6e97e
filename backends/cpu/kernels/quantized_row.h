// The view through which products read rows of ActivationFormat::kInt8Blocks. Internal linkage
// throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activation_format.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

// View of one quantised row (layout: activation_format.h).
struct QuantizedRow {
  const int8_t* high;
  const int8_t* low;  // valid with ActivationBits::k16
  const float* scale;
  const float* scaled_sum32;
  const int32_t* quant_sum32;
  const int32_t* quant_sum16;
};

// `parts`: PartCount() of the activations.
RL_INLINE QuantizedRow ViewRow(const void* row, size_t k, int parts) {
  const size_t padded = PaddedLength(k);
  const auto* quants = static_cast<const int8_t*>(row);
  const auto* scale = reinterpret_cast<const float*>(quants + padded * static_cast<size_t>(parts));
  const auto* sums = reinterpret_cast<const int32_t*>(scale + padded / 16);
  return {quants, quants + padded, scale, scale + padded / 32, sums, sums + padded / 32};
}

// The same row starting at element k, a multiple of 32.
RL_INLINE QuantizedRow From(const QuantizedRow& x, size_t k) {
  return {x.high + k,
          x.low + k,
          x.scale + k / 32,
          x.scaled_sum32 + k / 32,
          x.quant_sum32 + k / 32,
          x.quant_sum16 + k / 16};
}

}  // namespace
}  // namespace rullama::cpu
