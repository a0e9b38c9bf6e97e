// Tensors of the reference. Elements are float64 or int64 for every declared dtype, so that results
// are precise enough to check any backend. Value types; a const Tensor may be shared among threads.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ir/types.h"

namespace rullama::reference {

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // numpy order; a dimension of 0 rows is legal
  // Exactly one of the three holds the elements.
  std::vector<double> f;   // float and block types; f32 values may carry more than f32 precision
  std::vector<int64_t> i;  // integer types
  // The bytes of a weight or state in its dtype, little-endian, not owned; decoded when read.
  std::span<const std::byte> packed;

  [[nodiscard]] int64_t rows() const { return dims.empty() ? 1 : dims[0]; }
  [[nodiscard]] int64_t last() const { return dims.empty() ? 1 : dims.back(); }
  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] int64_t row_elements() const;  // elements of one index of dimension 0

  static Tensor F32(std::vector<int64_t> dims, std::vector<double> values);
  static Tensor I32(std::vector<int64_t> dims, const std::vector<int32_t>& values);
};

// i8, i16, i32 and i64; everything else is kept in Tensor::f.
[[nodiscard]] bool IsInteger(DType dtype);

// The dims of a type at the extents of a step.
std::vector<int64_t> DimsAt(const TensorType& type, const Extents& extents);

// A tensor of zeros.
Tensor MakeZeros(DType dtype, std::vector<int64_t> dims);

// The value after a store to this dtype: rounded to nearest even for f16 and bf16, to float for
// f32; unchanged for other types.
[[nodiscard]] double RoundTo(DType dtype, double value);
// The same for values of any type, in whole blocks where it has blocks that a cache may have.
void RoundAll(DType dtype, std::span<double> values);

// Reads elements [first, first + out.size()) in row-major order. For block types both numbers must
// be multiples of the block length. Errors: those of Dequantize.
Status ReadFloats(const Tensor& tensor, int64_t first, std::span<double> out);
[[nodiscard]] int64_t ReadInt(const Tensor& tensor, int64_t index);

// Returns the tensor with its elements in f or i. Error ref.size if `packed` has the wrong length.
Result<Tensor> Unpack(const Tensor& tensor);

// Writes elements [first, first + count) of `tensor` (unpacked) to the bytes of a tensor of
// `dtype`, plain or a block type of caches, starting at its element `at`. Rounds like RoundAll();
// all three numbers are multiples of the block length.
void PackElements(const Tensor& tensor, int64_t first, int64_t count, DType dtype, int64_t at,
                  std::span<std::byte> bytes);

}  // namespace rullama::reference
