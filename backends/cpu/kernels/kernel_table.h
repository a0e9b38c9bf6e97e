// Builds the table of one instruction-set level from the templates, in a source file that
// names the level (see simd.h) and is compiled with its flags.
#pragma once

#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/block_gemm.h"
#include "backends/cpu/kernels/block_gemv.h"
#include "backends/cpu/kernels/float_matmul.h"
#include "backends/cpu/kernels/row_ops.h"

namespace rullama::cpu {
namespace {

template <DType T>
constexpr void AddBlockType(KernelTable& table) {
  table.weights[static_cast<size_t>(T)] = {&BlockGemv<T>, &BlockGemm<T>, &DequantizeBlockRow<T>};
}

#ifdef RULLAMA_SIMD_AMX
template <DType T>
constexpr auto kHalfGemm = &SplitGemm<T>;
#else
template <DType T>
constexpr auto kHalfGemm = &FloatGemm<T>;
#endif
// F16 and BF16.
template <DType T>
constexpr void AddHalfType(KernelTable& table) {
  table.weights[static_cast<size_t>(T)] = {&FloatGemv<T>, kHalfGemm<T>, &DequantizeFloatRow<T>};
}

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = kIsa;
  table.weights[static_cast<size_t>(DType::kF32)] = {
      &FloatGemv<DType::kF32>, &FloatGemm<DType::kF32>, &DequantizeFloatRow<DType::kF32>};
  AddHalfType<DType::kF16>(table);
  AddHalfType<DType::kBF16>(table);
  AddBlockType<DType::kQ4_0>(table);
  AddBlockType<DType::kQ4_1>(table);
  AddBlockType<DType::kQ5_0>(table);
  AddBlockType<DType::kQ5_1>(table);
  AddBlockType<DType::kQ8_0>(table);
  AddBlockType<DType::kQ2_K>(table);
  AddBlockType<DType::kQ3_K>(table);
  AddBlockType<DType::kQ4_K>(table);
  AddBlockType<DType::kQ5_K>(table);
  AddBlockType<DType::kQ6_K>(table);
  AddBlockType<DType::kIQ4_NL>(table);
  AddBlockType<DType::kIQ4_XS>(table);
  AddBlockType<DType::kMXFP4>(table);
  table.gemm_scratch_bytes = kGemmScratchBytes;
  table.quantize_row = &QuantizeRow;
#ifdef RULLAMA_SIMD_AMX
  table.gemm_form = ActivationForm::kBfloats;
  table.gemm_min_columns = 8;
  table.split_row = &SplitRow;
#endif
  table.f32_to_f16 = &FloatRowToHalf;
  table.f16_to_f32 = &HalfRowToFloat;
  table.add = &AddRow;
  table.mul = &MulRow;
  table.affine = &AffineRow;
  table.axpy = &AxpyRow;
  table.add_weighted_rows = &AddWeightedRows;
  table.gelu_tanh = &GeluTanhRow;
  table.geglu = &GegluRow;
  table.softcap = &SoftcapRow;
  table.exp = &ExpRow;
  table.rms_norm = &RmsNormRow;
  table.rms_norm_add = &RmsNormAddRow;
  table.softmax = &SoftmaxRow;
  table.rope_neox = &RopeNeoxRow;
  table.dot = &DotRow;
  table.max = &MaxRow;
  table.sum = &SumRow;
  table.argmax = &ArgmaxRow;
  table.attention = &Attention;
  return table;
}

constexpr KernelTable kTable = MakeTable();

}  // namespace
}  // namespace rullama::cpu
