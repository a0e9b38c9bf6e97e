#include "engine/scheduling/reading_pace.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

using std::chrono::milliseconds;

// A clock that tests set, and a limit of 105 ms.
class ReadingPaceTest : public ::testing::Test {
 protected:
  // Passes time until the next tokens of answers.
  std::optional<ReadingPace::Gap> Tokens(milliseconds after, int64_t answers = 1) {
    now_ += after;
    return pace_.TakeTokens(now_, answers);
  }
  // Reads chunks of this size as long as the pace allows, each in this time. Returns their number.
  int ReadChunks(int64_t rows, milliseconds each) {
    constexpr int kMost = 1'000;
    int chunks = 0;
    while (chunks < kMost && pace_.MayRead(rows, now_)) {
      pace_.TakeChunk(rows);
      now_ += each;
      ++chunks;
    }
    return chunks;
  }

  EngineClock::time_point now_{};
  ReadingPace pace_{milliseconds(105)};
};

TEST_F(ReadingPaceTest, OneChunkIsReadAsLongAsNothingIsKnown) {
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 1) << "no answer is written";
  EXPECT_FALSE(Tokens(milliseconds(5)));
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 1);
}

TEST_F(ReadingPaceTest, ChunksAreReadAsFarAsTheLimitAllows) {
  Tokens(milliseconds(0));
  Tokens(milliseconds(20));
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 1);
  const auto gap = Tokens(milliseconds(20));
  ASSERT_TRUE(gap);
  EXPECT_NEAR(gap->reading, 0.01, 1e-9);
  EXPECT_EQ(gap->rows, 100);
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 8) << "80 ms, and 20 ms of the step";
  const auto next = Tokens(milliseconds(20));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->chunks, 8);
  EXPECT_NEAR(next->reading, 0.08, 1e-9);
}

// Devices that compute a chunk while the next one is prepared.
TEST_F(ReadingPaceTest, ChunksThatRunLaterCount) {
  Tokens(milliseconds(0));
  Tokens(milliseconds(20));
  ReadChunks(100, milliseconds(0));
  Tokens(milliseconds(30));  // 10 ms of these for the chunk
  EXPECT_EQ(ReadChunks(100, milliseconds(0)), 8);
}

TEST_F(ReadingPaceTest, AShortChunkTakesAsLongAsTheWeights) {
  Tokens(milliseconds(0));
  Tokens(milliseconds(20));
  ReadChunks(1, milliseconds(0));
  Tokens(milliseconds(30));
  EXPECT_EQ(ReadChunks(2, milliseconds(0)), 8) << "not by its rows";
}

TEST_F(ReadingPaceTest, SlowRoundsCountAtOnceAndFastOnesByHalf) {
  Tokens(milliseconds(0));
  Tokens(milliseconds(20));
  ReadChunks(100, milliseconds(0));
  Tokens(milliseconds(60));  // 40 ms a chunk
  EXPECT_EQ(ReadChunks(100, milliseconds(0)), 2);
  Tokens(milliseconds(40));  // 10 ms a chunk: 25 ms from now on
  EXPECT_EQ(ReadChunks(100, milliseconds(0)), 3);
  Tokens(milliseconds(140));  // 40 ms a chunk
  EXPECT_EQ(ReadChunks(100, milliseconds(0)), 2);
}

TEST_F(ReadingPaceTest, WhatPassesWithoutAnswersIsNoGap) {
  Tokens(milliseconds(0));
  pace_.WritesNothing();
  EXPECT_FALSE(Tokens(milliseconds(10'000)));
  Tokens(milliseconds(7));
  ReadChunks(100, milliseconds(0));
  const auto gap = Tokens(milliseconds(17));
  ASSERT_TRUE(gap);
  EXPECT_NEAR(gap->reading, 0.01, 1e-9) << "of a step of 7 ms";
}

TEST_F(ReadingPaceTest, AdvisesOnChunksThatAloneTakeMoreThanTheLimit) {
  const auto advice_after = [this](int64_t rows, milliseconds reading) {
    EXPECT_EQ(ReadChunks(rows, reading), 1) << "a chunk may always be read";
    const auto gap = Tokens(milliseconds(300));
    return gap ? pace_.AdviceOn(*gap) : std::nullopt;
  };
  Tokens(milliseconds(0));
  const auto slow_step = Tokens(milliseconds(300));
  ASSERT_TRUE(slow_step);
  EXPECT_FALSE(pace_.AdviceOn(*slow_step)) << "nothing was read";
  EXPECT_FALSE(advice_after(512, milliseconds(90))) << "the step takes as long";
  EXPECT_FALSE(advice_after(32, milliseconds(500))) << "no chunk is shorter";
  EXPECT_EQ(advice_after(512, milliseconds(400)),
            "answers waited 400 ms for a step of 512 tokens of a prompt, longer than "
            "server.max_gap_ms (105): set context.prefill_chunk to 128 or less");
}

TEST_F(ReadingPaceTest, APictureIsTimeAndNotRows) {
  Tokens(milliseconds(0));
  Tokens(milliseconds(20));
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 1);
  Tokens(milliseconds(20));
  pace_.TakeOther();
  now_ += milliseconds(60);
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 2) << "60 ms have passed";
  Tokens(milliseconds(20));
  pace_.TakeOther();
  now_ += milliseconds(5'000);
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 0) << "the limit has passed";
  const auto gap = Tokens(milliseconds(20));
  ASSERT_TRUE(gap);
  EXPECT_EQ(gap->rows, 0);
  EXPECT_EQ(ReadChunks(100, milliseconds(10)), 8) << "a chunk still takes 10 ms";
}

TEST_F(ReadingPaceTest, NoAdviceOnAGapWithAPicture) {
  Tokens(milliseconds(0));
  Tokens(milliseconds(20));
  EXPECT_EQ(ReadChunks(512, milliseconds(10)), 1);
  pace_.TakeOther();
  const auto gap = Tokens(milliseconds(5'000));
  ASSERT_TRUE(gap);
  EXPECT_FALSE(pace_.AdviceOn(*gap));
}

TEST_F(ReadingPaceTest, TheTimeOfMoreAnswersIsNotThatOfReading) {
  Tokens(milliseconds(0), /*answers=*/1);
  Tokens(milliseconds(20), /*answers=*/1);
  EXPECT_EQ(ReadChunks(512, milliseconds(10)), 1);
  const auto more = Tokens(milliseconds(300), /*answers=*/8);
  ASSERT_TRUE(more);
  EXPECT_FALSE(pace_.AdviceOn(*more)) << "how long a step of 8 answers takes is not known";
  Tokens(milliseconds(300), /*answers=*/8);
  EXPECT_EQ(ReadChunks(512, milliseconds(400)), 1);
  const auto known = Tokens(milliseconds(300), /*answers=*/8);
  ASSERT_TRUE(known);
  EXPECT_TRUE(pace_.AdviceOn(*known));
}

}  // namespace
}  // namespace rullama
