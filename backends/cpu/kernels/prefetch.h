// Prefetch distance of GEMV with block types in GGUF layout, and of the benchmark of memory.
#pragma once

#include <cstddef>

namespace rullama::cpu {

// In bytes of a row of weights: about 100 ns of one thread's share of memory bandwidth.
inline constexpr size_t kPrefetchBytes = 2048;

}  // namespace rullama::cpu
