// A transposed copy of a narrow matrix, such as some rows of the B of an adapter. Pure.
#pragma once

#include <cstddef>
#include <cstring>

namespace rullama::cpu {

using TransposedFour = float __attribute__((vector_size(16)));

// out[j][i] = rows[i][j] of four rows, `stride` floats apart, and four columns.
inline void TransposeFour(const float* rows, size_t stride, float* out, size_t out_stride) {
  TransposedFour in[4];
  for (size_t i = 0; i < 4; ++i) std::memcpy(&in[i], rows + i * stride, sizeof(in[i]));
  const auto low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const auto low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const auto high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const auto high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  const TransposedFour columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                                     __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                     __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                                     __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (size_t j = 0; j < 4; ++j) {
    std::memcpy(out + j * out_stride, &columns[j], sizeof(columns[j]));
  }
}

// out[j][i] = rows[i][j] for i < count, j < columns; both are stored without gaps.
inline void Transpose(const float* rows, size_t count, size_t columns, float* out) {
  const size_t whole_count = count / 4 * 4, whole_columns = columns / 4 * 4;
  for (size_t i = 0; i < whole_count; i += 4) {
    for (size_t j = 0; j < whole_columns; j += 4) {
      TransposeFour(rows + i * columns + j, columns, out + j * count + i, count);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i < whole_count ? whole_columns : 0; j < columns; ++j) {
      out[j * count + i] = rows[i * columns + j];
    }
  }
}

}  // namespace rullama::cpu
