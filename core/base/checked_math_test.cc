#include "core/base/checked_math.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(CheckedMath, SumsAndProductsThatWrapAreNothing) {
  EXPECT_EQ(CheckedAdd<uint64_t>(kMax - 1, 1), kMax);
  EXPECT_FALSE(CheckedAdd<uint64_t>(kMax, 1));
  EXPECT_EQ(CheckedMul<uint64_t>(1ull << 32, (1ull << 32) - 1), 0xFFFFFFFF00000000ull);
  EXPECT_FALSE(CheckedMul<uint64_t>(1ull << 32, 1ull << 32));
  EXPECT_FALSE(CheckedMul<int64_t>(INT64_MIN, -1));
}

TEST(CheckedMath, CastsThatLoseValueAreNothing) {
  EXPECT_EQ(CheckedCast<int32_t>(uint64_t{7}), 7);
  EXPECT_FALSE(CheckedCast<int32_t>(uint64_t{1} << 31));
  EXPECT_FALSE(CheckedCast<uint32_t>(-1));
}

TEST(CheckedMath, AlignUp) {
  EXPECT_EQ(CheckedAlignUp<uint64_t>(0, 32), 0u);
  EXPECT_EQ(CheckedAlignUp<uint64_t>(33, 32), 64u);
  EXPECT_EQ(CheckedAlignUp<uint64_t>(64, 32), 64u);
  EXPECT_FALSE(CheckedAlignUp<uint64_t>(kMax, 32));
}

TEST(CheckedMath, RangeFitsNeverWraps) {
  EXPECT_TRUE(RangeFits(0, 0, 0));
  EXPECT_TRUE(RangeFits(10, 5, 15));
  EXPECT_FALSE(RangeFits(10, 6, 15));
  EXPECT_FALSE(RangeFits(16, 0, 15));
  EXPECT_FALSE(RangeFits(8, kMax - 4, 15));
}

}  // namespace
}  // namespace rullama
