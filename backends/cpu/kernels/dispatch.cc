// Choice of the instruction-set level, and the few functions that do not depend on it.
#ifdef RULLAMA_CPU_X86_KERNELS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cmath>
#include <iterator>

#include "backends/cpu/kernels/tables.h"

namespace rullama::cpu {
namespace {

#ifdef RULLAMA_CPU_X86_KERNELS

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros for a leaf the processor does not have.
Registers Cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// __builtin_cpu_supports asks the operating system's support for the registers as well. What
// Clang 14's does not know is asked of the processor; the registers are those of the level below.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         (Cpuid(1, 0).ecx & bit_F16C) != 0;
}
bool HasAvxVnni() {
  constexpr unsigned kAvxVnniBit = 1u << 4;
  return HasAvx2() && (Cpuid(7, 1).eax & kAvxVnniBit) != 0;
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

// Linux gives the tile registers to a process that asks for them; a kernel that does not know them,
// or has them switched off, refuses.
bool MayUseTiles() {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr long kTileData = 18;               // the component's number in XCR0
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
bool HasAmx() {
  constexpr unsigned kTileBit = 1u << 24;
  constexpr unsigned kBfloatBit = 1u << 22;
  const unsigned features = Cpuid(7, 0).edx;
  return HasAvx512Vnni() && (features & kTileBit) != 0 && (features & kBfloatBit) != 0 &&
         MayUseTiles();
}
#endif

bool Always() { return true; }

struct Level {
  Isa isa;
  const char* name;
  bool (*available)();
  const KernelTable& (*table)();
};

constexpr Level kLevels[] = {
    {Isa::kPortable, "portable", Always, PortableTable},
#ifdef RULLAMA_CPU_X86_KERNELS
    {Isa::kAvx2, "avx2", HasAvx2, Avx2Table},
    {Isa::kAvxVnni, "avx-vnni", HasAvxVnni, AvxVnniTable},
    {Isa::kAvx512, "avx512", HasAvx512, Avx512Table},
    {Isa::kAvx512Vnni, "avx512-vnni", HasAvx512Vnni, Avx512VnniTable},
    {Isa::kAmx, "amx", HasAmx, AmxTable},
#endif
};

// Null for a level that is not in this build or that the processor cannot run.
const Level* FindLevel(Isa isa) {
  for (const Level& level : kLevels) {
    if (level.isa == isa) return level.available() ? &level : nullptr;
  }
  return nullptr;
}

}  // namespace

bool IsaAvailable(Isa isa) { return FindLevel(isa) != nullptr; }

Isa BestIsa() {
  for (size_t i = std::size(kLevels); i-- > 1;) {
    if (kLevels[i].available()) return kLevels[i].isa;
  }
  return Isa::kPortable;
}

const char* IsaName(Isa isa) {
  for (const Level& level : kLevels) {
    if (level.isa == isa) return level.name;
  }
  return "unknown";
}

const KernelTable& KernelsFor(Isa isa) {
  const Level* level = FindLevel(isa);
  return level != nullptr ? level->table() : PortableTable();
}

const WeightKernels* FindWeight(const KernelTable& table, DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kWeightTypes || table.weights[index].gemv == nullptr) return nullptr;
  return &table.weights[index];
}

bool UsesActivationRows(DType dtype) { return IsBlockType(dtype); }

ActivationForm FormFor(const KernelTable& table, size_t columns) {
  return columns < table.split_min_columns ? ActivationForm::kCodes : ActivationForm::kBfloats;
}

void MakeActivationRow(const KernelTable& table, ActivationForm form, const float* x, size_t k,
                       int planes, void* out) {
  (form == ActivationForm::kCodes ? table.quantize_row : table.split_row)(x, k, planes, out);
}

size_t MatMulScratchBytes(const KernelTable& table, DType dtype, size_t k, size_t columns) {
  if (columns < table.gemm_min_columns || dtype == DType::kF32) return 0;
  const bool block = IsBlockType(dtype);
  // Fewer columns than were said may come.
  size_t bytes = block ? table.gemm_scratch_bytes : kFloatPanelRows * k * sizeof(float);
  if (columns >= table.split_min_columns) {
    const size_t rows = block ? 0 : columns * ActivationRowBytes(ActivationForm::kBfloats, k, 2);
    bytes = std::max(bytes, table.split_scratch_bytes + rows);
  }
  return bytes + kScratchAlignment;
}

void MatMul(const KernelTable& table, DType dtype, const MatMulArgs& args) {
  const WeightKernels& kernels = table.weights[static_cast<size_t>(dtype)];
  // Rows of activations were made for one of the kernels; with experts, one may get more or fewer
  // columns than was expected.
  const bool split = IsBlockType(dtype)
                         ? args.form == ActivationForm::kBfloats
                         : args.columns >= table.split_min_columns && kernels.split_gemm != nullptr;
  if (split) return kernels.split_gemm(args);
  if (args.columns >= (args.packed ? kPackedGemmColumns : table.gemm_min_columns)) {
    return kernels.gemm(args);
  }
  (args.packed ? kernels.packed_gemv : kernels.gemv)(args);
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
