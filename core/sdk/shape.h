// The shape of a value, for a plan to keep: the graph it came from is gone after Device::Compile.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace rullama::sdk {

// A dimension at the extents of a step.
inline int64_t DimAt(const rl_dim& dim, int64_t t, int64_t r) {
  return dim.constant + dim.t * t + dim.r * r;
}

class Shape {
 public:
  explicit Shape(const rl_value& value) : rank_(value.rank) {
    std::copy_n(value.dims, RL_MAX_RANK, dims_.begin());
  }
  [[nodiscard]] uint32_t rank() const { return rank_; }
  [[nodiscard]] int64_t dim(uint32_t axis, int64_t t, int64_t r) const {
    return DimAt(dims_[axis], t, r);
  }
  [[nodiscard]] int64_t rows(int64_t t, int64_t r) const { return dim(0, t, r); }
  // Elements of one row: the product of all dimensions but the first.
  [[nodiscard]] int64_t row_elements(int64_t t, int64_t r) const {
    int64_t elements = 1;
    for (uint32_t axis = 1; axis < rank_; ++axis) elements *= dim(axis, t, r);
    return elements;
  }
  [[nodiscard]] int64_t elements(int64_t t, int64_t r) const {
    return rows(t, r) * row_elements(t, r);
  }

 private:
  std::array<rl_dim, RL_MAX_RANK> dims_{};
  uint32_t rank_;
};

// Bytes of a value at the extents of a step; rl_value::bytes is the same at the largest ones. 0 for
// a dtype that these headers do not know.
inline uint64_t ByteSize(const rl_value& value, int64_t t, int64_t r) {
  const DTypeInfo* info = FindDType(value.dtype);
  const auto elements = static_cast<uint64_t>(Shape(value).elements(t, r));
  return info == nullptr ? 0 : elements / info->block_elements * info->block_bytes;
}

}  // namespace rullama::sdk
