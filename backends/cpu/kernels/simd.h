// The SIMD vocabulary of the instruction-set level this translation unit is compiled for: exactly
// one of RULLAMA_SIMD_PORTABLE, RULLAMA_SIMD_AVX2, RULLAMA_SIMD_AVX512, RULLAMA_SIMD_NEON,
// RULLAMA_SIMD_WASM is defined before the first include.
#pragma once

#if defined(RULLAMA_SIMD_AVX512)
#include "backends/cpu/kernels/simd_avx512.h"
#elif defined(RULLAMA_SIMD_AVX2)
#include "backends/cpu/kernels/simd_avx2.h"
#elif defined(RULLAMA_SIMD_NEON)
#include "backends/cpu/kernels/simd_neon.h"
#elif defined(RULLAMA_SIMD_PORTABLE)
#include "backends/cpu/kernels/simd_portable.h"
#elif defined(RULLAMA_SIMD_WASM)
#include "backends/cpu/kernels/simd_wasm.h"
#else
#error "define the SIMD level before including kernel templates"
#endif
