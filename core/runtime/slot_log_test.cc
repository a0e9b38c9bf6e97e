#include "core/runtime/slot_log.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

constexpr int64_t kLogRing = 8;

SlotLog WrittenTo(int32_t end) {
  SlotLog log(kLogRing);
  log.Append(end);
  return log;
}

TEST(SlotLogTest, GoesBackAnywhereUntilTheRingWraps) {
  const SlotLog log = WrittenTo(8);
  for (int32_t p = 0; p <= 8; ++p) EXPECT_TRUE(log.Holds(p)) << p;
  EXPECT_EQ(log.earliest(), 0);
}

TEST(SlotLogTest, GoesBackByOneRowOrToTheStartAfterwards) {
  const SlotLog log = WrittenTo(9);
  EXPECT_TRUE(log.Holds(9));
  EXPECT_TRUE(log.Holds(8));
  for (int32_t p = 1; p < 8; ++p) EXPECT_FALSE(log.Holds(p)) << p;
  EXPECT_TRUE(log.Holds(0));
  EXPECT_EQ(log.earliest(), 8);
}

TEST(SlotLogTest, GoesBackBySpareRowsAsWell) {
  SlotLog log(kLogRing, /*spare=*/3);
  log.Append(20);
  EXPECT_EQ(log.earliest(), 16);
  EXPECT_TRUE(log.Holds(16));
  EXPECT_FALSE(log.Holds(15));
  log.GoBack(17);
  log.Append(19);
  EXPECT_FALSE(log.Holds(15));
}

TEST(SlotLogTest, OneRowIsNotGivenBackTwice) {
  SlotLog log = WrittenTo(20);
  log.GoBack(19);
  EXPECT_TRUE(log.Holds(19));
  EXPECT_FALSE(log.Holds(18));
  log.Append(20);  // the row is written again
  EXPECT_TRUE(log.Holds(19));
  EXPECT_FALSE(log.Holds(18));
}

TEST(SlotLogTest, RowsThatWereGivenUpBeforeTheRingWrappedDoNotCount) {
  SlotLog log = WrittenTo(8);
  log.GoBack(3);
  log.Append(6);
  EXPECT_EQ(log.written(), 6);
  EXPECT_TRUE(log.Holds(2));
}

TEST(SlotLogTest, StartsAnewAtZero) {
  SlotLog log = WrittenTo(20);
  log.GoBack(0);
  log.Append(5);
  EXPECT_TRUE(log.Holds(2));
}

TEST(SlotLogTest, KnowsWhichRowsWereNeverGivenUp) {
  SlotLog log = WrittenTo(5);
  const uint64_t start = log.moment();
  EXPECT_TRUE(log.KeptSince(start, 5));
  log.GoBack(4);
  EXPECT_FALSE(log.KeptSince(start, 5));
  EXPECT_TRUE(log.KeptSince(start, 4));
  const uint64_t middle = log.moment();
  EXPECT_TRUE(log.KeptSince(middle, 5)) << "given up before that moment";
  log.Append(7);
  log.GoBack(6);
  EXPECT_TRUE(log.KeptSince(middle, 6));
  EXPECT_FALSE(log.KeptSince(middle, 7));
  EXPECT_FALSE(log.KeptSince(start, 5)) << "a later, smaller loss hides no earlier one";
  log.GoBack(2);
  EXPECT_TRUE(log.KeptSince(middle, 2));
  EXPECT_FALSE(log.KeptSince(middle, 3));
  EXPECT_FALSE(log.KeptSince(start, 3));
}

TEST(SlotLogTest, ReplacedRowsAreThoseOfAnotherSequence) {
  SlotLog log = WrittenTo(5);
  const uint64_t start = log.moment();
  log.Replace(0, 30);
  EXPECT_FALSE(log.KeptSince(start, 1));
  EXPECT_FALSE(log.Holds(28));
  EXPECT_TRUE(log.Holds(29));
  log.Replace(29, 29);
  EXPECT_TRUE(log.KeptSince(log.moment(), 30));
  EXPECT_FALSE(log.KeptSince(log.moment() - 1, 30));
}

}  // namespace
}  // namespace rullama
