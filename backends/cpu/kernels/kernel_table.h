// The table of CPU kernels: one table of function pointers per instruction-set level, selected at
// run time, and the functions that select a kernel from it.
//
// Ownership: kernels allocate and keep nothing; the caller owns inputs, outputs and scratch.
// Thread safety: kernels are pure functions; calls with disjoint outputs and scratch may run at the
// same time. No kernel starts threads: callers split the work over their own pool.
// Alignment: that of the element type; activations aligned to 64 bytes are fastest. Kernels never
// read outside the ranges they are given. Inputs and outputs must not overlap unless stated.
// Determinism: with one table, the same inputs give the same bytes; see matmul.h for products.
// Errors: none. Preconditions are the caller's; shapes were verified before.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/attention_args.h"
#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/stored_product.h"
#include "backends/cpu/kernels/weighted_rows.h"

namespace rullama::cpu {

struct KernelTable {
  Isa isa = Isa::kPortable;

  WeightTable weights = {};  // use FindWeight()

  // Smallest batches for which gemm is faster than gemv: of F16, BF16 and F32, and of block types
  // that are not packed (see WeightKernels::packed_gemm_min_batch for others).
  size_t gemm_min_batch = 5;
  size_t unpacked_gemm_min_batch = 5;
  size_t gemm_scratch_bytes = 0;  // for block types
  // Smallest batch for which split_gemm is faster than gemm; SIZE_MAX on levels without it.
  size_t split_min_batch = SIZE_MAX;
  size_t split_scratch_bytes = 0;

  // Convert one row of activations to kInt8Blocks or kSplitBf16; `out` has ActivationRowBytes() and
  // is 64-byte aligned. split_row is null on levels without split_gemm.
  void (*quantize_row)(const float* x, size_t k, ActivationBits bits, void* out) = nullptr;
  void (*split_row)(const float* x, size_t k, ActivationBits bits, void* out) = nullptr;

  // Row conversions; round to nearest even.
  void (*f32_to_f16)(const float* x, size_t n, uint16_t* out) = nullptr;
  void (*f16_to_f32)(const uint16_t* x, size_t n, float* out) = nullptr;

  // Pointwise float32; out may be an input.
  void (*add)(const float* a, const float* b, size_t n, float* out) = nullptr;
  void (*mul)(const float* a, const float* b, size_t n, float* out) = nullptr;
  void (*affine)(const float* x, size_t n, float scale, float offset, float* out) = nullptr;
  void (*axpy)(float a, const float* x, size_t n, float* y) = nullptr;  // y += a * x
  void (*add_weighted_rows)(const WeightedRowsArgs&) = nullptr;
  // Products with weights as they are stored; null on levels that multiply float32 as fast.
  void (*add_stored_product)(const StoredProductArgs&) = nullptr;
  // True if it rounds weights too, with scales that depend on all rows of a step of W.
  bool stored_product_rounds = false;
  size_t stored_scratch_bytes = 0;
  // min(max(x, lo), hi); NaN stays NaN.
  void (*clamp)(const float* x, size_t n, float lo, float hi, float* out) = nullptr;
  void (*gelu_tanh)(const float* x, size_t n, float* out) = nullptr;
  void (*geglu)(const float* gate, const float* up, size_t n, float* out) = nullptr;
  void (*softcap)(const float* x, size_t n, float cap,
                  float* out) = nullptr;  // cap * tanh(x / cap)
  void (*exp)(const float* x, size_t n, float* out) = nullptr;
  void (*sigmoid)(const float* x, size_t n, float* out) = nullptr;  // 1 / (1 + exp(-x))
  void (*silu)(const float* x, size_t n, float* out) = nullptr;     // x * sigmoid(x)

  // out = x / sqrt(mean(x^2) + eps) * weight; a null weight means ones. Squares and their sum are
  // float64, mean and eps float32. out may be x.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* out) = nullptr;
  // out = residual + rms_norm(x); out may be x or residual.
  void (*rms_norm_add)(const float* x, const float* weight, const float* residual, size_t n,
                       float eps, float* out) = nullptr;
  // Subtracts the maximum; the sum is float64. out may be x. A row of -inf gives zeros.
  void (*softmax)(const float* x, size_t n, float* out) = nullptr;
  // NeoX pairs (i, i + half): out[i] = x[i] cos[i] - x[i+half] sin[i],
  // out[i+half] = x[i] sin[i] + x[i+half] cos[i]. out may be x.
  void (*rope_neox)(const float* x, const float* cos, const float* sin, size_t half,
                    float* out) = nullptr;
  // The Walsh-Hadamard transform of x * scale; n is a power of two. out may be x.
  void (*rotate)(const float* x, size_t n, float scale, float* out) = nullptr;

  float (*dot)(const float* a, const float* b, size_t n) = nullptr;
  float (*max)(const float* x, size_t n) = nullptr;   // -inf for n = 0; NaN never wins
  double (*sum)(const float* x, size_t n) = nullptr;  // float64
  // Index of the largest value, the lowest one among equals; NaN never wins; 0 for n = 0.
  size_t (*argmax)(const float* x, size_t n) = nullptr;

  void (*attention)(const AttentionArgs&) = nullptr;
  // For steps of split_min_batch rows or more; its scratch is SplitAttentionScratchBytes().
  // Values and weights of the softmax are rounded to a relative error of 2^-16. Null on levels
  // without a matrix unit.
  void (*split_attention)(const AttentionArgs&) = nullptr;
};

// The table of a level; of the portable level when `isa` is not available.
[[nodiscard]] const KernelTable& KernelsFor(Isa isa);

// The table for plans in which a row of activations has to get the same bytes in batches of any
// size: batches of any size meet kernels that sum in one order (matmul.h).
[[nodiscard]] KernelTable WithOneOrderOfSums(KernelTable table);

// The table for plans of up to `max_batch` rows in which a row has to get the same bytes in each
// step: one with fewer rows meets the kernels of the largest.
[[nodiscard]] KernelTable WithKernelsOfLargest(KernelTable table, size_t max_batch);

// Null when `dtype` cannot be a weight of a matrix product.
[[nodiscard]] const WeightKernels* FindWeight(const KernelTable& table, DType dtype);
// The format that products with weights of this type read at this batch size.
[[nodiscard]] ActivationFormat FormatFor(const KernelTable& table, DType weight, size_t batch);
// The precision of converted rows for weights of this type: `configured` for block types that
// products read as integers. Others round as little as costs nothing: an F16 weight takes two bf16
// numbers and leaves two to the activation, a BF16 weight one and leaves three.
[[nodiscard]] ActivationBits BitsFor(DType weight, ActivationBits configured);
// Whether products with weights of both types read the same rows at every batch size.
[[nodiscard]] bool ReadSameRows(const KernelTable& table, DType a, DType b);
// Calls quantize_row or split_row, as `format` asks, which is not kFloat32.
void MakeActivationRow(const KernelTable& table, ActivationFormat format, const float* x, size_t k,
                       ActivationBits bits, void* out);
// Scratch size of one product with up to `max_batch` batch rows and any number of weight rows.
[[nodiscard]] size_t MatMulScratchBytes(const KernelTable& table, DType dtype, size_t k,
                                        size_t max_batch);
// Runs the kernel that fits the format and the batch size. `dtype` must have kernels.
void MatMul(const KernelTable& table, DType dtype, const MatMulArgs& args);

}  // namespace rullama::cpu
