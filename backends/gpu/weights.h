// Weights on the device: each row in planes that kernels read sixteen bytes at a time.
//
// A row starts at a multiple of 16 bytes. Plain types lie as in the file, filled up with zeros to a
// multiple of 32 elements where there are several rows. Of block types, q4_k and q5_k lie as in the
// file, whose blocks are multiples of 16 bytes; of the others, first all codes of the row, then
// what else a block has, in the order below (weights.cc; the readers are weights.glsl of vulkan and
// weights.cl of opencl).
//
// Thread safety: pure functions, and values that do not change.
#pragma once

#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace rullama::gpu {

inline uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

struct WeightShape {
  DType dtype = DType::kF32;
  uint64_t rows = 1;      // product of all dimensions but the last
  uint64_t columns = 1;   // elements of a row
  uint64_t blocks = 0;    // of a row
  uint64_t file_row = 0;  // bytes of a row in the file
  uint64_t stride = 0;    // and here
  [[nodiscard]] uint64_t bytes() const { return rows * stride; }
  // Whether rows follow each other as elements do.
  [[nodiscard]] bool contiguous() const { return rows == 1 || stride == file_row; }
};

// Whether matrix products can read this type.
bool IsMatrixType(DType dtype);

WeightShape ShapeOf(DType dtype, std::span<const int64_t> dims);

// Rows [first, first + count) of a weight, from the file's bytes to the device's layout.
void Repack(const WeightShape& shape, const std::byte* file, uint64_t first, uint64_t count,
            std::byte* out);

// Bytes beyond the end of a weight that kernels may read: a single row of a plain type is read in
// whole chunks as well.
inline constexpr uint64_t kWeightSlack = 32 * sizeof(float);

// Rows of a weight that lie one after another in one allocation.
struct WeightRows {
  uint64_t first = 0;
  uint64_t count = 0;
};
// Of the option weight_piece, in bytes: a few rows.
inline constexpr uint64_t kLeastPiece = 4096;
// Bytes a piece may have: what the option says, or if that is 0 an allocation of `max_allocation`,
// which is whole multiples of `granularity` and ends with one that nothing lies in.
inline uint64_t MostPiece(uint64_t option, uint64_t max_allocation, uint64_t granularity) {
  const uint64_t bytes = option > 0 ? option : max_allocation;
  return std::max(bytes / granularity * granularity, 2 * granularity) - granularity;
}
// In how many pieces a weight lies if one may have so many bytes: mostly in one. Where a row alone
// has more, each piece has one.
std::vector<WeightRows> PiecesOf(const WeightShape& shape, uint64_t most_bytes);

// Repacks all rows, on several threads: into `mapped`, or where that is null in pieces of some MiB,
// each of which `write` takes with its offset.
void RepackAll(const WeightShape& shape, const std::byte* file, std::byte* mapped,
               const std::function<void(uint64_t offset, std::span<const std::byte>)>& write);

}  // namespace rullama::gpu
