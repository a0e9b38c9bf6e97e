#include "backends/cpu/weight.h"

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

}  // namespace
}  // namespace rullama::cpu
