// Weights as they lie on the device.
#include "backends/gpu/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rullama::gpu {
namespace {

// Products read whole chunks of a row, also of the last one.
TEST(WeightShape, AMatrixOfOneRowHasRoomForWholeChunks) {
  const std::array<int64_t, 2> one = {1, 70}, two = {2, 70};
  const std::array<int64_t, 1> vector = {70};
  EXPECT_EQ(ShapeOf(DType::kF16, one).stride, ShapeOf(DType::kF16, two).stride);
  EXPECT_GT(ShapeOf(DType::kF16, one).stride, 140U);
  EXPECT_EQ(ShapeOf(DType::kF16, vector).stride, 140U);
}

TEST(Repack, BytesThatNoRowHasAreZeros) {
  struct Row {
    DType dtype;
    int64_t columns;
    size_t bytes;  // that are not padding
  };
  for (const Row& row : {Row{DType::kF16, 70, 140}, Row{DType::kMXFP4, 288, 9 * 18}}) {
    const WeightShape shape = ShapeOf(row.dtype, std::array<int64_t, 2>{1, row.columns});
    ASSERT_GT(shape.stride, row.bytes);
    const std::vector<std::byte> file(shape.file_row, std::byte{1});
    std::vector<std::byte> repacked(shape.stride, std::byte{0xFF});
    RepackAll(shape, file.data(), repacked.data(), {});
    EXPECT_TRUE(std::all_of(repacked.begin() + static_cast<std::ptrdiff_t>(row.bytes),
                            repacked.end(), [](std::byte b) { return b == std::byte{0}; }))
        << NameOf(row.dtype);
  }
}

}  // namespace
}  // namespace rullama::gpu
