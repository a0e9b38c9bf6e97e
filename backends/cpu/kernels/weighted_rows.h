// Interface of the kernel for weighted sums of rows, which is a product of two float32 matrices:
//
//   y[o][j] += sum over i of factors[o][i] * rows[i][j]   for o < outputs, j < columns, i ascending
//
// Determinism: the bytes of y[o] depend on what it held, its factors and the rows alone.
#pragma once

#include <cstddef>

namespace rullama::cpu {

struct WeightedRowsArgs {
  const float* factors = nullptr;
  size_t output_stride = 0;  // floats between the factors of two outputs
  size_t factor_stride = 1;  // floats between the factors of two rows
  const float* rows = nullptr;
  size_t row_stride = 0;
  size_t count = 0;  // of rows
  size_t columns = 0;
  float* y = nullptr;
  size_t y_stride = 0;
  size_t outputs = 1;
};

}  // namespace rullama::cpu
