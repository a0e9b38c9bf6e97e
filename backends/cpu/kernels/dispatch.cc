// Selection of the instruction-set level and of the product kernel, and the functions that do not
// depend on a level.
#if defined(RULLAMA_CPU_X86_KERNELS)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(RULLAMA_CPU_ARM_KERNELS)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cmath>
#include <iterator>

#include "backends/cpu/kernels/decode_row.h"
#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/scratch.h"
#include "backends/cpu/kernels/training_kernels.h"

namespace rullama::cpu {
namespace {

// Whether products with weights of this type take integers.
bool TakesIntegers(DType weight) { return IsBlockType(weight) && !IsDecodedType(weight); }

#if defined(RULLAMA_CPU_X86_KERNELS)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros for a leaf the processor does not have.
Registers Cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// __builtin_cpu_supports also checks that the operating system saves the registers. Features that
// Clang 14 does not know there are read from CPUID; they need no registers beyond those of the
// level below.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         (Cpuid(1, 0).ecx & bit_F16C) != 0;
}
#if defined(RULLAMA_CPU_VNNI_KERNELS)
bool HasAvxVnni() {
  constexpr unsigned kAvxVnniBit = 1u << 4;
  return HasAvx2() && (Cpuid(7, 1).eax & kAvxVnniBit) != 0;
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

// Linux grants the AMX tile registers to a process on request. Kernels without AMX support, or with
// it disabled, refuse.
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
  constexpr unsigned kTileBit = 1u << 24, kInt8Bit = 1u << 25, kBf16Bit = 1u << 22;
  constexpr unsigned kNeeded = kTileBit | kInt8Bit | kBf16Bit;
  return HasAvx512Vnni() && (Cpuid(7, 0).edx & kNeeded) == kNeeded && MayUseTiles();
}
#endif

#elif defined(RULLAMA_CPU_ARM_KERNELS)

bool HasDotProd() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool HasI8mm() { return HasDotProd() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }

#endif

bool Always() { return true; }

struct Level {
  Isa isa;
  const char* name;
  bool (*available)();
  const KernelTable& (*table)();
  const TrainingKernels& (*training)();
};

#if defined(RULLAMA_CPU_WASM_KERNELS)
constexpr const char* kBaseline = "wasm";
#else
constexpr const char* kBaseline = "portable";
#endif

constexpr Level kLevels[] = {
    {Isa::kPortable, kBaseline, Always, TableOf<Isa::kPortable>, TrainingTableOf<Isa::kPortable>},
#if defined(RULLAMA_CPU_X86_KERNELS)
    {Isa::kAvx2, "avx2", HasAvx2, TableOf<Isa::kAvx2>, TrainingTableOf<Isa::kAvx2>},
#if defined(RULLAMA_CPU_VNNI_KERNELS)
    {Isa::kAvxVnni, "avx-vnni", HasAvxVnni, TableOf<Isa::kAvxVnni>, TrainingTableOf<Isa::kAvx2>},
#if defined(RULLAMA_CPU_AVX512_KERNELS)
    {Isa::kAvx512, "avx512", HasAvx512, TableOf<Isa::kAvx512>, TrainingTableOf<Isa::kAvx512>},
#endif
    {Isa::kAvx512Vnni, "avx512-vnni", HasAvx512Vnni, TableOf<Isa::kAvx512Vnni>,
     TrainingTableOf<LevelOfFloatKernels(Isa::kAvx512Vnni)>},
    {Isa::kAmx, "amx", HasAmx, TableOf<Isa::kAmx>,
     TrainingTableOf<LevelOfFloatKernels(Isa::kAvx512Vnni)>},
#endif
#elif defined(RULLAMA_CPU_ARM_KERNELS)
    {Isa::kNeon, "neon", Always, TableOf<Isa::kNeon>, TrainingTableOf<Isa::kNeon>},
    {Isa::kNeonDotProd, "neon-dotprod", HasDotProd, TableOf<Isa::kNeonDotProd>,
     TrainingTableOf<Isa::kNeonDotProd>},
    {Isa::kNeonI8mm, "neon-i8mm", HasI8mm, TableOf<Isa::kNeonI8mm>,
     TrainingTableOf<Isa::kNeonDotProd>},
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
  return level != nullptr ? level->table() : TableOf<Isa::kPortable>();
}

const TrainingKernels& TrainingKernelsFor(Isa isa) {
  const Level* level = FindLevel(isa);
  return level != nullptr ? level->training() : TrainingTableOf<Isa::kPortable>();
}

KernelTable WithOneOrderOfSums(KernelTable table) {
  table.unpacked_gemm_min_batch = SIZE_MAX;
  table.split_min_batch = SIZE_MAX;
  table.add_stored_product = nullptr;
  return table;
}

KernelTable WithKernelsOfLargest(KernelTable table, size_t max_batch) {
  for (size_t* least : {&table.unpacked_gemm_min_batch, &table.split_min_batch}) {
    *least = max_batch >= *least ? 1 : SIZE_MAX;
  }
  return table;
}

const WeightKernels* FindWeight(const KernelTable& table, DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kWeightTypes || table.weights[index].gemv == nullptr) return nullptr;
  return &table.weights[index];
}

ActivationFormat FormatFor(const KernelTable& table, DType weight, size_t batch) {
  const bool can_split = table.weights[static_cast<size_t>(weight)].split_gemm != nullptr;
  if (can_split && batch >= table.split_min_batch) return ActivationFormat::kSplitBf16;
  return TakesIntegers(weight) ? ActivationFormat::kInt8Blocks : ActivationFormat::kFloat32;
}

ActivationBits BitsFor(DType weight, ActivationBits configured) {
  if (TakesIntegers(weight)) return configured;
  return weight == DType::kBF16 ? ActivationBits::k24 : ActivationBits::k16;
}

bool ReadSameRows(const KernelTable& table, DType a, DType b) {
  const ActivationFormat largest = FormatFor(table, a, table.split_min_batch);
  return TakesIntegers(a) == TakesIntegers(b) &&
         largest == FormatFor(table, b, table.split_min_batch) &&
         (largest != ActivationFormat::kSplitBf16 ||
          BitsFor(a, ActivationBits::k16) == BitsFor(b, ActivationBits::k16));
}

void MakeActivationRow(const KernelTable& table, ActivationFormat format, const float* x, size_t k,
                       ActivationBits bits, void* out) {
  (format == ActivationFormat::kInt8Blocks ? table.quantize_row : table.split_row)(x, k, bits, out);
}

size_t MatMulScratchBytes(const KernelTable& table, DType dtype, size_t k, size_t max_batch) {
  if (dtype == DType::kF32) return 0;
  if (max_batch < table.gemm_min_batch && !IsDecodedType(dtype)) return 0;
  const bool block = TakesIntegers(dtype);
  // Calls with a smaller batch may use gemm, so take the larger of both sizes.
  size_t bytes = block ? table.gemm_scratch_bytes : kFloatPanelRows * k * sizeof(float);
  if (max_batch >= table.split_min_batch) bytes = std::max(bytes, table.split_scratch_bytes);
  return bytes + kScratchAlignment;
}

void MatMul(const KernelTable& table, DType dtype, const MatMulArgs& args) {
  const WeightKernels& kernels = table.weights[static_cast<size_t>(dtype)];
  // The format of x decides. The batch size alone would not do: the rows of experts are converted
  // for the average batch of an expert, and an expert may get more or fewer.
  if (args.format == ActivationFormat::kSplitBf16) return kernels.split_gemm(args);
  const size_t gemm_min_batch = args.packed            ? kernels.packed_gemm_min_batch
                                : TakesIntegers(dtype) ? table.unpacked_gemm_min_batch
                                                       : table.gemm_min_batch;
  if (args.batch >= gemm_min_batch) return kernels.gemm(args);
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
