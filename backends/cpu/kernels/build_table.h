// Builds the KernelTable of one instruction-set level from the kernel templates. Included by one
// source file per level, which defines the level's macro (see simd.h) and is compiled with its
// flags.
#pragma once

#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/block_gemv.h"
#include "backends/cpu/kernels/dequantize_rows.h"
#include "backends/cpu/kernels/float_matmul.h"
#include "backends/cpu/kernels/packed_gemv.h"
#include "backends/cpu/kernels/row_ops.h"
#include "backends/cpu/kernels/vector_tile.h"

namespace rullama::cpu {
namespace {

template <DType T>
constexpr void AddBlockType(KernelTable& table) {
  WeightKernels& kernels = table.weights[static_cast<size_t>(T)];
  kernels = {&BlockGemv<T>, &BlockGemm<T>, &DequantizeBlockRow<T>};
  if constexpr (kCanBePacked<T>) {
    kernels.packed_gemv = &PackedGemv<T>;
    kernels.pack = &PackRows<T>;
    kernels.dequantize_packed = &DequantizePackedRow<T>;
  }
}

template <DType T>
constexpr void AddFloatType(KernelTable& table) {
  table.weights[static_cast<size_t>(T)] = {&FloatGemv<T>, &FloatGemm<T>, &DequantizeFloatRow<T>};
}

constexpr KernelTable MakeTable() {
  KernelTable table;
  table.isa = kIsa;
  AddFloatType<DType::kF32>(table);
  AddFloatType<DType::kF16>(table);
  AddFloatType<DType::kBF16>(table);
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
  // The size is the same for every weight type.
  table.gemm_scratch_bytes = sizeof(GemmScratch<VectorTile<DType::kQ8_0, 1>>);
  table.quantize_row = &QuantizeRow;
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
