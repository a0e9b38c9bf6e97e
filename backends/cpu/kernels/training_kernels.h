// The kernels of losses and derivatives: a table of function pointers per instruction-set level, to
// which the rules of kernel_table.h apply.
#pragma once

#include <cstddef>

#include "backends/cpu/kernels/isa.h"

namespace rullama::cpu {

struct TrainingKernels {
  // ln(sum exp z) - z[target]; the sum is float64.
  float (*cross_entropy)(const float* z, size_t n, size_t target) = nullptr;
  // factor (softmax(z) - onehot(target)), times 1 - (z / cap)^2 if cap > 0: z is then the result of
  // a soft-cap, and dz the derivative by its operand. The sum is float64. dz may be z.
  void (*cross_entropy_grad)(const float* z, size_t n, size_t target, float factor, float cap,
                             float* dz) = nullptr;
  // y (dy - sum(y dy)), 0 where y is 0; the sum is float64. dx may be dy.
  void (*softmax_grad)(const float* y, const float* dy, size_t n, float* dx) = nullptr;
  // r (g - x r^2 mean(g x)) with g = dy weight and r = 1 / sqrt(mean(x^2) + eps); a null weight
  // means ones. Sums are float64. dx may be dy.
  void (*rms_norm_grad)(const float* x, const float* dy, const float* weight, size_t n, float eps,
                        float* dx) = nullptr;
  // The derivative of gelu_tanh. out may be x.
  void (*gelu_tanh_grad)(const float* x, size_t n, float* out) = nullptr;
  // dgate = dy up gelu_tanh'(gate), dup = dy gelu_tanh(gate).
  void (*geglu_grad)(const float* gate, const float* up, const float* dy, size_t n, float* dgate,
                     float* dup) = nullptr;
  double (*sum_squares)(const float* x, size_t n) = nullptr;  // float64
};

// The table of a level; of the portable level when `isa` is not available.
[[nodiscard]] const TrainingKernels& TrainingKernelsFor(Isa isa);

// As compiled for a level, which the processor may not have; for dispatch.cc.
template <Isa kLevel>
const TrainingKernels& TrainingTableOf();

}  // namespace rullama::cpu
