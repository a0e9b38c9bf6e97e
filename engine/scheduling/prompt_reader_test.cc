#include "engine/scheduling/prompt_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "engine/scheduling/job_slots_test_util.h"

namespace rullama {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using ::testing::ElementsAre;

// Four slots, whose prompts are read in chunks of kPromptChunk tokens.
class PromptReaderTest : public ::testing::Test {
 protected:
  // Gives a job with this prompt the next slot.
  void Start(std::vector<int32_t> prompt) {
    auto job = slots_.MakeJob(std::move(prompt));
    const SlotTable::Choice choice = slots_.contents.Choose(*job);
    slots_.jobs.Start(choice, std::move(job), std::nullopt);
  }
  // A pace that has learned that a chunk takes a millisecond.
  static ReadingPace KnownPace(EngineClock::duration most) {
    ReadingPace pace(most);
    const EngineClock::time_point begin = EngineClock::now() - milliseconds(1);
    (void)pace.TakeTokens(begin, 1);
    pace.TakeChunk(kPromptChunk);
    (void)pace.TakeTokens(begin + milliseconds(1), 1);
    return pace;
  }
  // Reads what the pace allows in a round. Returns the tokens that each slot has read of its
  // prompt.
  std::vector<int64_t> Round(ReadingPace& pace) {
    reader_.BeginRound();
    while (reader_.ReadNext(pace)) {
    }
    std::vector<int64_t> read;
    for (int32_t slot = 0; slot < slots_.jobs.size(); ++slot) {
      read.push_back(slots_.jobs.At(slot).read);
    }
    return read;
  }

  JobSlots slots_{4};
  PromptReader reader_{
      slots_.batch.session(), slots_.options, slots_.contents, slots_.jobs, nullptr,
      slots_.counters};
};

TEST_F(PromptReaderTest, ARoundReadsAChunkOfEachPrompt) {
  Start({1, 2, 3});
  Start({2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  Start({3, 4, 5, 6});
  Start({4, 5, 6, 7, 8, 9});
  ReadingPace pace = KnownPace(hours(1));
  EXPECT_THAT(Round(pace), ElementsAre(3, 4, 4, 4));
  EXPECT_TRUE(slots_.jobs.At(0).writes());
  EXPECT_FALSE(slots_.jobs.At(1).writes());
  EXPECT_TRUE(slots_.jobs.At(2).writes());
  EXPECT_TRUE(reader_.HasWork());
  EXPECT_THAT(Round(pace), ElementsAre(3, 8, 4, 6));
  EXPECT_THAT(Round(pace), ElementsAre(3, 10, 4, 6));
  EXPECT_FALSE(reader_.HasWork());
  const StepStats steps = slots_.counters.Read().prompt;
  EXPECT_EQ(steps.rows.sum, 3 + 10 + 4 + 6);
}

TEST_F(PromptReaderTest, ATightLimitReadsOnePromptAfterAnother) {
  for (int32_t first = 0; first < 4; ++first) Start({first, first + 1, first + 2, 4, 5});
  ReadingPace pace = KnownPace(nanoseconds(1));
  const auto next_round = [&] {
    (void)pace.TakeTokens(EngineClock::now(), 1);
    return Round(pace);
  };
  EXPECT_THAT(next_round(), ElementsAre(4, 0, 0, 0));
  EXPECT_THAT(next_round(), ElementsAre(4, 4, 0, 0));
  EXPECT_THAT(next_round(), ElementsAre(4, 4, 4, 0));
  EXPECT_THAT(next_round(), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(next_round(), ElementsAre(5, 4, 4, 4));
}

TEST_F(PromptReaderTest, WithoutAnswersAChunkIsARound) {
  for (int32_t first = 0; first < 4; ++first) Start({first, first + 1});
  ReadingPace pace = KnownPace(hours(1));
  pace.WritesNothing();
  EXPECT_THAT(Round(pace), ElementsAre(2, 0, 0, 0)) << "its answer begins before others are read";
}

}  // namespace
}  // namespace rullama
