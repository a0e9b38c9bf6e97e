// Interface of the matrix-product kernels of one weight type.
//
//   y[m][n] = sum over k of W[n][k] * x[m][k]   for n in [n_begin, n_end), m in [0, batch)
//
// W has one row per output element n; x has one row per batch element m, usually a token.
//
// Arithmetic: with block types and kInt8Blocks, integer dot products are exact in int32, then
// scaled and summed over k in float32. With kSplitBf16, products of parts that lie below the
// precision of the factors are left out and sums are float32. F16, BF16 and F32 weights use float32
// products and sums (fused where the level has FMA), or bf16 parts in split_gemm.
//
// Determinism: y[m][n] of one kernel depends only on W[n], x[m] and k, not on the batch size, the
// other batch rows or the range of n. Different kernels sum in different orders and differ in the
// last bits, except two pairs that give the same bytes: gemv and gemm of F16, BF16 and F32, and
// packed_gemv and gemm of packed rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/activation_format.h"

namespace rullama::cpu {

// Weight rows that are packed together (packed_rows.h).
inline constexpr size_t kPackedRows = 16;
// Callers split [0, n) among threads at multiples of this.
inline constexpr size_t kPanelRows = 32;

struct MatMulArgs {
  const void* weights = nullptr;  // row 0 of W: GGUF bytes or packed rows
  bool packed = false;            // if set, n_begin and n_end are multiples of kPanelRows
  size_t row_bytes = 0;           // distance between rows of W
  size_t k = 0;                   // elements per row, a multiple of the type's block length
  size_t n_begin = 0, n_end = 0;  // rows of W to compute
  const void* x = nullptr;        // rows of `format`: FormatFor()
  size_t x_stride = 0;            // bytes between rows of x
  size_t batch = 0;               // rows of x
  ActivationFormat format = ActivationFormat::kInt8Blocks;
  ActivationBits activation_bits = ActivationBits::k8;
  float* y = nullptr;       // element (m = 0, n = 0)
  size_t y_stride = 0;      // floats between rows of y
  void* scratch = nullptr;  // MatMulScratchBytes(), private to this call
};

struct WeightKernels {
  // Small batches, kInt8Blocks or kFloat32: reads every weight byte once per 4 batch rows. Needs no
  // scratch for block types.
  void (*gemv)(const MatMulArgs&) = nullptr;
  // Large batches, kInt8Blocks or kFloat32: unpacks a block of weight rows once, then runs a
  // register-tiled product.
  void (*gemm)(const MatMulArgs&) = nullptr;
  // out[0..k) = the values of one row, equal bit for bit to the plain float32 formula.
  void (*dequantize)(const void* row, size_t k, float* out) = nullptr;
  // gemv on packed rows. This and the next two are null for types that are never packed.
  void (*packed_gemv)(const MatMulArgs&) = nullptr;
  // Rearranges kPackedRows rows, `row_bytes` apart, into the same number of bytes.
  void (*pack)(const void* rows, size_t row_bytes, size_t k, void* out) = nullptr;
  // dequantize() of elements [first, first + count), whole blocks, of row `row` of a packed group.
  void (*dequantize_packed)(const void* rows, size_t row, size_t k, size_t first, size_t count,
                            float* out) = nullptr;
  // Smallest batch of packed rows for gemm; SIZE_MAX where packed_gemv is faster for any. Both give
  // the same bytes.
  size_t packed_gemm_min_batch = SIZE_MAX;
  // Very large batches: converts a block of weight rows to bf16 parts. Takes kSplitBf16 rows, for
  // F16 and BF16 those of BitsFor(). Null on most levels.
  void (*split_gemm)(const MatMulArgs&) = nullptr;
};

inline constexpr size_t kWeightTypes = 64;  // GGUF type ids are below this
// Indexed by DType; all pointers are null for a type that cannot be a weight.
using WeightTable = WeightKernels[kWeightTypes];

}  // namespace rullama::cpu
