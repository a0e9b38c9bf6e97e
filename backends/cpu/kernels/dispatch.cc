// Choice of the instruction-set level, and the few functions that do not depend on it.
#ifdef RULLAMA_CPU_X86_KERNELS
#include <cpuid.h>
#endif

#include <cmath>

#include "backends/cpu/kernels/tables.h"

namespace rullama::cpu {

#ifdef RULLAMA_CPU_X86_KERNELS
namespace {

// Clang 14's __builtin_cpu_supports does not know this one.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace
#endif

bool IsaAvailable(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
#ifdef RULLAMA_CPU_X86_KERNELS
    // These ask the operating system's support for the registers as well.
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
    case Isa::kAvx512Vnni:
      return IsaAvailable(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#else
    case Isa::kAvx2:
    case Isa::kAvx512Vnni:
      return false;
#endif
  }
  return false;
}

Isa BestIsa() {
  if (IsaAvailable(Isa::kAvx512Vnni)) return Isa::kAvx512Vnni;
  return IsaAvailable(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable;
}

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512Vnni:
      return "avx512-vnni";
  }
  return "unknown";
}

const KernelTable& KernelsFor(Isa isa) {
#ifdef RULLAMA_CPU_X86_KERNELS
  if (isa == Isa::kAvx512Vnni && IsaAvailable(isa)) return Avx512VnniTable();
  if (isa == Isa::kAvx2 && IsaAvailable(isa)) return Avx2Table();
#else
  static_cast<void>(isa);
#endif
  return PortableTable();
}

const WeightKernels* FindWeight(const KernelTable& table, DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kWeightTypes || table.weights[index].gemv == nullptr) return nullptr;
  return &table.weights[index];
}

bool UsesQuantizedActivations(DType dtype) { return IsBlockType(dtype); }

size_t MatMulScratchBytes(DType dtype, size_t k, size_t columns) {
  if (columns < kGemmMinColumns || dtype == DType::kF32) return 0;
  if (!IsBlockType(dtype)) return kFloatPanelRows * k * sizeof(float) + kScratchAlignment;
  // One panel (codes, scales, offsets) and the running sums of a block of columns.
  constexpr size_t kPanelBytes = kPanelRows * kPanelDepth + 2 * kPanelRows * kPanelDepth / 16 * 4;
  const size_t block = columns < kColumnBlock ? columns : kColumnBlock;
  return kPanelBytes + block * kPanelRows * sizeof(float) + kScratchAlignment;
}

void MatMul(const KernelTable& table, DType dtype, const MatMulArgs& args) {
  const WeightKernels& kernels = table.weights[static_cast<size_t>(dtype)];
  (args.columns < kGemmMinColumns ? kernels.gemv : kernels.gemm)(args);
}

void AttentionMerge(const float* acc, size_t acc_stride, const float* max, const float* sum,
                    size_t parts, size_t head_dim, float* out) {
  float largest = -INFINITY;
  for (size_t p = 0; p < parts; ++p) largest = max[p] > largest ? max[p] : largest;
  const auto weight = [&](size_t p) {
    return max[p] == -INFINITY ? 0.0f : std::exp(max[p] - largest);
  };
  float total = 0.0f;
  for (size_t p = 0; p < parts; ++p) total += weight(p) * sum[p];
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  for (size_t p = 0; p < parts; ++p) {
    const float factor = weight(p) * inverse;
    const float* part = acc + p * acc_stride;
    for (size_t i = 0; i < head_dim; ++i) {
      const float value = factor * part[i];
      out[i] = p == 0 ? value : out[i] + value;
    }
  }
}

}  // namespace rullama::cpu
