// Interface of the kernel for products with weights as they are stored:
//
//   y[m][n] (+)= sum over k of x[m][k] * W[k][n]   for n < columns, m < batch
//
// The caller dequantises the rows of W, kStoredStep at a time, and leaves out steps in which x has
// only zeros.
//
// Arithmetic: with AMX both factors are split into two bf16 numbers each, so they keep at least 16
// bits, and the product of the two low parts is left out. Otherwise, with VNNI, they are 16-bit
// integers with a scale for each step, of a row of x or of a column of W. Sums are float32 in
// rising order of k.
//
// Determinism: a row of y depends only on its row of x and on `rows`: a step that is left out would
// have added zeros. Where the kernel rounds W (KernelTable::stored_product_rounds), it does so by
// all 32 rows of a step.
#pragma once

#include <cstddef>

namespace rullama::cpu {

inline constexpr size_t kStoredSpan = 256;     // most columns of W of one call
inline constexpr size_t kStoredStep = 32;      // rows of W that are left out or not
inline constexpr size_t kMaxStoredSteps = 8;   // of one call
inline constexpr size_t kStoredColumns = 32;   // `columns` is a multiple of this
inline constexpr size_t kMinStoredBatch = 32;  // faster from here on, measured with AMX

struct StoredProductArgs {
  const float* rows = nullptr;     // [steps][kStoredStep][kStoredSpan]: rows of W, f32
  const size_t* begins = nullptr;  // [steps]: the first k of each step
  size_t steps = 0;                // 1 to kMaxStoredSteps
  size_t columns = 0;              // of W and y
  size_t k = 0;              // elements of a row of x; a step may end after them, in zeros of W
  const float* x = nullptr;  // [batch][k]
  size_t batch = 0;
  float* y = nullptr;
  size_t y_stride = 0;      // floats between rows of y
  bool add = false;         // to what y has; otherwise y is overwritten
  void* scratch = nullptr;  // KernelTable::stored_scratch_bytes, private to this call
};

}  // namespace rullama::cpu
