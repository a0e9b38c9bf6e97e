#include "core/passes/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama {
namespace {

using testing::ElementsAre;

TEST(Bucket, DefaultsAscendToTheChunk) {
  EXPECT_THAT(DefaultBuckets(2048), ElementsAre(1, 8, 32, 128, 512, 2048));
  EXPECT_THAT(DefaultBuckets(600), ElementsAre(1, 8, 32, 128, 512, 600));
  EXPECT_THAT(DefaultBuckets(512), ElementsAre(1, 8, 32, 128, 512));
  EXPECT_THAT(DefaultBuckets(9), ElementsAre(1, 8, 9));
  EXPECT_THAT(DefaultBuckets(8), ElementsAre(1, 8));
  EXPECT_THAT(DefaultBuckets(5), ElementsAre(1, 5));
  EXPECT_THAT(DefaultBuckets(1), ElementsAre(1));
}

TEST(Bucket, TheSmallestThatHoldsTheStepIsChosen) {
  const std::vector<int64_t> buckets = DefaultBuckets(512);
  EXPECT_EQ(*ChooseBucket(buckets, 1), 1);
  EXPECT_EQ(*ChooseBucket(buckets, 2), 8);
  EXPECT_EQ(*ChooseBucket(buckets, 8), 8);
  EXPECT_EQ(*ChooseBucket(buckets, 9), 32);
  EXPECT_EQ(*ChooseBucket(buckets, 129), 512);
  for (const int64_t rows : {int64_t{0}, int64_t{-1}, int64_t{513}}) {
    ASSERT_FALSE(ChooseBucket(buckets, rows).has_value()) << rows;
    EXPECT_EQ(ChooseBucket(buckets, rows).error().id, "passes.bucket");
  }
}

TEST(Bucket, OfDecodingDoubleUpToTheSequences) {
  EXPECT_EQ(DecodeBuckets(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(DecodeBuckets(4), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(DecodeBuckets(6), (std::vector<int64_t>{1, 2, 4, 6}));
  EXPECT_EQ(DecodeBuckets(16), (std::vector<int64_t>{1, 2, 4, 8, 16}));
}

}  // namespace
}  // namespace rullama
