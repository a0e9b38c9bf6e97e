#include "engine/scheduling/text_pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace rullama {
namespace {

using ::testing::ElementsAre;

using Ids = std::vector<int32_t>;

TEST(TextPackTest, TextsFollowOneAnotherInSlotsOfTheirOwn) {
  TextPack pack({.rows = 6, .texts = 8});
  EXPECT_TRUE(pack.Add(Ids{2, 5, 1}));
  EXPECT_TRUE(pack.Add(Ids{2, 1}));
  EXPECT_FALSE(pack.Add(Ids{2, 1})) << "7 rows";
  EXPECT_TRUE(pack.Add(Ids{2}));
  EXPECT_THAT(pack.step().tokens, ElementsAre(2, 5, 1, 2, 1, 2));
  EXPECT_THAT(pack.step().pos, ElementsAre(0, 1, 2, 0, 1, 0));
  EXPECT_THAT(pack.step().slot, ElementsAre(0, 0, 0, 1, 1, 2));
  EXPECT_THAT(pack.first_rows(), ElementsAre(0, 3, 5));
}

TEST(TextPackTest, RowsBetweenAlignedTextsHaveOneSlot) {
  TextPack pack({.rows = 16, .texts = 8, .alignment = 4});
  EXPECT_TRUE(pack.Add(Ids{2, 5, 1}));
  EXPECT_TRUE(pack.Add(Ids{2, 1}));
  EXPECT_TRUE(pack.Add(Ids{2, 6, 7, 1}));
  EXPECT_TRUE(pack.Add(Ids{2, 1}));
  EXPECT_FALSE(pack.Add(Ids{2, 1}));
  EXPECT_THAT(pack.first_rows(), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(pack.step().slot, ElementsAre(0, 0, 0, 1, 2, 2, 1, 1, 3, 3, 3, 3, 4, 4));
  EXPECT_THAT(pack.step().pos, ElementsAre(0, 1, 2, 0, 0, 1, 1, 2, 0, 1, 2, 3, 0, 1));
}

TEST(TextPackTest, TheFirstTextAlwaysFitsAndTextsAreCounted) {
  TextPack pack({.rows = 4, .texts = 2});
  EXPECT_TRUE(pack.Add(Ids(9, 2)));
  EXPECT_FALSE(pack.Add(Ids{2}));
  pack.Clear();
  EXPECT_TRUE(pack.Add(Ids{2}));
  EXPECT_TRUE(pack.Add(Ids{2}));
  EXPECT_FALSE(pack.Add(Ids{2}));
  EXPECT_THAT(pack.step().slot, ElementsAre(0, 1));
}

}  // namespace
}  // namespace rullama
