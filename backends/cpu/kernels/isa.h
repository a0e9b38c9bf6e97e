// Instruction-set levels of the CPU kernels and the ones this machine can run. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::cpu {

// Each level includes those of its architecture before it.
enum class Isa : uint8_t {
  kPortable,     // plain C++ at the compiler's baseline
  kAvx2,         // AVX2, FMA, F16C
  kAvxVnni,      // AVX-VNNI
  kAvx512,       // AVX-512 F/BW/DQ/VL
  kAvx512Vnni,   // AVX-512 VNNI
  kAmx,          // AMX tiles with bf16
  kNeon,         // AArch64, whose baseline has NEON
  kNeonDotProd,  // dot products of bytes (SDOT)
  kNeonI8mm,     // matrix products of bytes (SMMLA)
};
inline constexpr size_t kIsaCount = 9;

// True if this build contains the level and the processor can run it. Always true for kPortable.
[[nodiscard]] bool IsaAvailable(Isa isa);
// The highest available level.
[[nodiscard]] Isa BestIsa();
[[nodiscard]] const char* IsaName(Isa isa);

}  // namespace rullama::cpu
