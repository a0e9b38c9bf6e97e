// Weights on the device: each row in planes that shaders read sixteen bytes at a time.
//
// A row starts at a multiple of 16 bytes. Plain types lie as in the file, filled up with zeros to a
// multiple of 32 elements where there are several rows. Of block types, q4_k and q5_k lie as in the
// file, whose blocks are multiples of 16 bytes; of the others, first all codes of the row, then
// what else a block has, in the order below (weights.cc; the reader is shaders/weights.glsl).
//
// Thread safety: pure functions, and values that do not change.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/vulkan/gpu.h"

namespace rullama::vulkan {

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

class VulkanWeight final : public sdk::Weight {
 public:
  VulkanWeight(Gpu& gpu, const rl_weight_desc& desc);
  ~VulkanWeight() override;
  [[nodiscard]] const WeightShape& shape() const { return shape_; }
  [[nodiscard]] VkDeviceAddress address() const { return memory_.address(); }
  // The bytes as in the file; they stay valid.
  [[nodiscard]] const std::byte* file() const { return file_; }

 private:
  void Upload();

  Gpu& gpu_;
  WeightShape shape_;
  const std::byte* file_;
  Allocation memory_;
};

}  // namespace rullama::vulkan
