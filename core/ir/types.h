// Shapes of the IR. A dimension is affine in the two symbols a step has: T, its rows, and R, the
// rows whose results are wanted. How much is in the cache is data and never appears in a shape.
// Value types; thread-safe as such.
#pragma once

#include <rullama/sdk/dtype.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/base/status.h"

namespace rullama {

// The values of the symbols in one step.
struct Extents {
  int64_t t = 1;
  int64_t r = 1;
};

// constant + t * T + r * R.
struct Dim {
  int64_t constant = 0;
  int32_t t = 0;
  int32_t r = 0;

  constexpr Dim() = default;
  constexpr Dim(int64_t value) : constant(value) {}  // NOLINT: a number is a dimension
  constexpr Dim(int64_t c, int32_t ct, int32_t cr) : constant(c), t(ct), r(cr) {}

  static constexpr Dim T() { return {0, 1, 0}; }
  static constexpr Dim R() { return {0, 0, 1}; }

  [[nodiscard]] constexpr bool IsConstant() const { return t == 0 && r == 0; }
  [[nodiscard]] constexpr int64_t At(const Extents& extents) const {
    return constant + t * extents.t + r * extents.r;
  }
  friend constexpr bool operator==(const Dim&, const Dim&) = default;
};

inline constexpr int kMaxRank = 4;

// Element type and dims in numpy order: the last is contiguous, block types run along it.
struct TensorType {
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<Dim, kMaxRank> dims{};

  TensorType() = default;
  TensorType(DType type, std::initializer_list<Dim> shape) : dtype(type) {
    for (const Dim& dim : shape) {
      if (rank < kMaxRank) dims[static_cast<size_t>(rank)] = dim;
      ++rank;  // a rank above kMaxRank is reported by Verify
    }
  }

  [[nodiscard]] const Dim& dim(int axis) const { return dims[static_cast<size_t>(axis)]; }
  [[nodiscard]] Dim& dim(int axis) { return dims[static_cast<size_t>(axis)]; }
  [[nodiscard]] const Dim& last() const { return dim(rank - 1); }
  [[nodiscard]] const Dim& rows() const { return dim(0); }

  [[nodiscard]] int64_t ElementsAt(const Extents& extents) const;
  // Bytes at these extents; the last dim is a multiple of the block length (checked by Verify).
  [[nodiscard]] uint64_t BytesAt(const Extents& extents) const;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Bounds that keep every size computed from a type inside 64 bits: rows of a step and positions are
// i32, and a type at the largest extents has at most kMaxElements elements.
inline constexpr int64_t kMaxRows = INT32_MAX;
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Whether a type is well formed: a known dtype, rank 1 to kMaxRank, positive dims (a dimension may
// only vanish with its symbol), whole blocks in the last dimension, unused dims zero, and at most
// kMaxElements elements at `extents`. Error ir.type.
Status CheckType(const TensorType& type, const Extents& extents = {});

std::string ToString(const Dim& dim);          // "T", "64", "T+64"
std::string ToString(const TensorType& type);  // "f32[T,1536]"

}  // namespace rullama
