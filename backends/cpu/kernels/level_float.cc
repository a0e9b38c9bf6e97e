#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/float_matmul.h"
#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/row_ops.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
void AddFloatKernels<kIsa>(KernelTable& table) {
  table.quantize_row = &QuantizeRow;
  table.f32_to_f16 = &FloatRowToHalf;
  table.f16_to_f32 = &HalfRowToFloat;
  table.add = &AddRow;
  table.mul = &MulRow;
  table.affine = &AffineRow;
  table.clamp = &ClampRow;
  table.axpy = &AxpyRow;
  table.add_weighted_rows = &AddWeightedRows;
  table.gelu_tanh = &GeluTanhRow;
  table.geglu = &GegluRow;
  table.softcap = &SoftcapRow;
  table.exp = &ExpRow;
  table.sigmoid = &SigmoidRow;
  table.silu = &SiluRow;
  table.rms_norm = &RmsNormRow;
  table.rms_norm_add = &RmsNormAddRow;
  table.softmax = &SoftmaxRow;
  table.rope_neox = &RopeNeoxRow;
  table.rotate = &RotateRow;
  table.dot = &DotRow;
  table.max = &MaxRow;
  table.sum = &SumRow;
  table.argmax = &ArgmaxRow;
  table.attention = &Attention;
  ForEachType<DType::kF32, DType::kF16, DType::kBF16>(
      table.weights, []<DType kType>(WeightKernels& kernels) {
        kernels.gemv = &FloatGemv<kType>;
        kernels.gemm = &FloatGemm<kType>;
        kernels.dequantize = &DequantizeFloatRow<kType>;
      });
  ForEachType<DType::kIQ1_S, DType::kIQ1_M, DType::kTQ1_0, DType::kTQ2_0, DType::kNVFP4>(
      table.weights, []<DType kType>(WeightKernels& kernels) {
        static_assert(IsDecodedType(kType));
        kernels.gemv = &FloatGemm<kType>;
        kernels.gemm = &FloatGemm<kType>;
        kernels.dequantize = &DequantizeFloatRow<kType>;
      });
}

}  // namespace rullama::cpu
