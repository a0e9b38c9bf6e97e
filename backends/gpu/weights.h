// The layout of weights on the device. Kernels read it sixteen bytes at a time.
//
// A row starts at a multiple of 16 bytes. Plain types keep the file's layout; rows of matrices are
// padded with zeros to a multiple of 32 elements. q4_k and q5_k keep the file's
// layout too, because their blocks are multiples of 16 bytes. The other block types are split into
// planes: first the quants of all blocks of the row, then the other fields in the order given in
// weights.cc. Kernels decode them. Types with code books get the codes that their indices stand
// for: 3.375 bits a weight in place of 1.56 to 2.56 (iq1, iq2), 4.25 in place of 3.06 or 3.44
// (iq3).
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
  uint64_t blocks = 0;    // blocks of a row
  uint64_t file_row = 0;  // bytes of a row in the file
  uint64_t stride = 0;    // bytes of a row on the device
  [[nodiscard]] uint64_t bytes() const { return rows * stride; }
  // Whether rows have no padding between them.
  [[nodiscard]] bool contiguous() const { return rows == 1 || stride == file_row; }
};

// Whether matrix products can read this type.
bool IsMatrixType(DType dtype);

WeightShape ShapeOf(DType dtype, std::span<const int64_t> dims);

// Rows [first, first + count) of a weight, from the file's bytes to the device's layout.
void Repack(const WeightShape& shape, const std::byte* file, uint64_t first, uint64_t count,
            std::byte* out);

// Bytes beyond the end of a weight that kernels may read: they read whole chunks, and a vector of a
// plain type is not padded to one.
inline constexpr uint64_t kWeightSlack = 32 * sizeof(float);

// Consecutive rows of a weight in one allocation.
struct WeightRows {
  uint64_t first = 0;
  uint64_t count = 0;
};
// The smallest accepted value of the option weight_piece, in bytes.
inline constexpr uint64_t kMinPiece = 4096;
// The maximum size of a piece in bytes: `option`, or `max_allocation` if that is 0, rounded down to
// a multiple of `granularity`. The last `granularity` bytes stay unused.
inline uint64_t MaxPiece(uint64_t option, uint64_t max_allocation, uint64_t granularity) {
  const uint64_t bytes = option > 0 ? option : max_allocation;
  return std::max(bytes / granularity * granularity, 2 * granularity) - granularity;
}
// Splits a weight into pieces of at most `max_bytes`; most weights need one. If a single row is
// larger than that, each piece holds one row.
std::vector<WeightRows> PiecesOf(const WeightShape& shape, uint64_t max_bytes);

// Repacks all rows on several threads, into `mapped`. If `mapped` is null, the result is passed to
// `write` in parts of some MiB with the offset of each.
void RepackAll(const WeightShape& shape, const std::byte* file, std::byte* mapped,
               const std::function<void(uint64_t offset, std::span<const std::byte>)>& write);

}  // namespace rullama::gpu
