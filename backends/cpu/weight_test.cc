#include "backends/cpu/weight.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

// Larger than an arena chunk, smaller than a page, and as large as the rest of a chunk.
const std::vector<size_t> kSizes = {1000, 1, size_t{70} << 20, 4096, size_t{60} << 20, 64, 5000};

TEST(WeightArena, PiecesAreAlignedAndApart) {
  WeightArena arena;
  std::vector<std::shared_ptr<std::byte>> pieces;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    pieces.push_back(arena.Allocate(kSizes[i]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces[i].get()) % 64, 0U) << kSizes[i];
    std::memset(pieces[i].get(), static_cast<int>(i + 1), kSizes[i]);
  }
  for (size_t i = 0; i < kSizes.size(); ++i) {
    EXPECT_EQ(pieces[i].get()[0], std::byte(i + 1));
    EXPECT_EQ(pieces[i].get()[kSizes[i] - 1], std::byte(i + 1));
  }
}

TEST(WeightArena, PiecesOutliveIt) {
  std::shared_ptr<std::byte> first, last;
  {
    WeightArena arena;
    first = arena.Allocate(100);
    last = arena.Allocate(100);
  }
  first.reset();
  std::memset(last.get(), 7, 100);
  EXPECT_EQ(last.get()[99], std::byte(7));
}

// The matrices of adapters: with fewer rows than a panel, whole panels, and a rest.
TEST(CpuWeight, CopiesKeepEachNumber) {
  constexpr size_t kColumns = 3;
  for (const size_t rows : {size_t{5}, 2 * kTransposedRows, 2 * kTransposedRows + 9}) {
    std::vector<float> matrix(rows * kColumns);
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i);
    WeightArena arena;
    CpuWeight weight(matrix.data());
    const float* same = weight.StreamedRows({rows, kColumns}, arena);
    EXPECT_EQ(std::vector<float>(same, same + matrix.size()), matrix) << rows;
    const float* panels = weight.TransposedPanels({rows, kColumns}, arena);
    for (size_t row = 0; row < rows; ++row) {
      const size_t in_panel = row % kTransposedRows, panel = row - in_panel;
      const size_t panel_rows = std::min(kTransposedRows, rows - panel);
      for (size_t column = 0; column < kColumns; ++column) {
        EXPECT_EQ(panels[panel * kColumns + column * panel_rows + in_panel],
                  matrix[row * kColumns + column])
            << row << " of " << rows << ", " << column;
      }
    }
    EXPECT_EQ(weight.TransposedPanels({rows, kColumns}, arena), panels);
  }
}

}  // namespace
}  // namespace rullama::cpu
