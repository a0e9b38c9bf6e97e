// Looks for numbers that no trained model has: what a damaged download or a faulty conversion
// leaves behind in weights. Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/gguf/gguf.h"

namespace rullama {

// Magnitudes above this come from damaged scales. Trained weights, norms included, stay far below.
inline constexpr float kLargestUsualWeight = 1e4F;

struct TensorNumbers {
  uint64_t nan = 0;
  uint64_t infinite = 0;
  uint64_t too_large = 0;  // finite, above kLargestUsualWeight; none of rope_freqs.weight
  float largest = 0;       // magnitude of finite numbers
  uint64_t first = 0;      // element of the first of these, in the order of the file

  [[nodiscard]] bool usual() const { return nan == 0 && infinite == 0 && too_large == 0; }
};

// Decodes a whole tensor. Errors: gguf.type for a type that is not decoded, io.mapped_file_changed.
Result<TensorNumbers> NumbersOf(const GgufFile& file, const TensorInfo& tensor);

}  // namespace rullama
