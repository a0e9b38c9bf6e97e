#include "backends/cpu/kernels/gradients.h"
#include "backends/cpu/kernels/loss.h"
#include "backends/cpu/kernels/training_kernels.h"

namespace rullama::cpu {

template <>
const TrainingKernels& TrainingTableOf<kIsa>() {
  static constexpr TrainingKernels kTable = {.cross_entropy = &CrossEntropyRow,
                                             .cross_entropy_grad = &CrossEntropyGradRow,
                                             .softmax_grad = &SoftmaxGradRow,
                                             .rms_norm_grad = &RmsNormGradRow,
                                             .gelu_tanh_grad = &GeluTanhGradRow,
                                             .geglu_grad = &GegluGradRow,
                                             .sum_squares = &SumSquaresRow};
  return kTable;
}

}  // namespace rullama::cpu
