#include "engine/scheduling/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <variant>

#include "engine/scheduling/job_slots_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> rows;  // of ResultRows
  std::optional<RequestEnd> end;
  std::optional<Error> error;
};

// What a channel gives until its end.
Answer Read(AnswerChannel& channel) {
  Answer answer;
  while (!answer.end && !answer.error) {
    ChannelItem item = channel.Take();
    if (const auto* token = std::get_if<DrawnToken>(&item)) answer.tokens.push_back(token->token);
    if (const auto* rows = std::get_if<ResultRows>(&item)) {
      answer.rows.insert(answer.rows.end(), rows->values.begin(), rows->values.end());
    }
    if (auto* end = std::get_if<RequestEnd>(&item)) answer.end = std::move(*end);
    if (auto* error = std::get_if<Error>(&item)) answer.error = std::move(*error);
  }
  return answer;
}

class SchedulerTest : public ::testing::Test {
 protected:
  void Start(int64_t slots) {
    batch_.emplace(slots, kSlotCapacity, kPromptChunk);
    scheduler_.emplace(batch_->session(),
                       SchedulerOptions{.graphs = batch_->graphs(),
                                        .slots = slots,
                                        .capacity = kSlotCapacity,
                                        .vocabulary = kCountedTokens,
                                        .chunk = kPromptChunk,
                                        .end_tokens = {kEndToken},
                                        .cancelled = cancelled_},
                       wakeup_);
  }
  std::unique_ptr<Job> MakeJob(std::vector<int32_t> prompt, int64_t max_tokens = -1) {
    return CountingJob(wakeup_, std::move(prompt), max_tokens);
  }
  // Submits a job and returns its channel.
  std::shared_ptr<AnswerChannel> Submit(std::unique_ptr<Job> job) {
    auto channel = job->channel;
    scheduler_->Submit(std::move(job));
    return channel;
  }

  std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::optional<CountingBatch> batch_;
  std::optional<Scheduler> scheduler_;  // ends before its session
};

TEST_F(SchedulerTest, AnswersEndAtTheirLimitOrAnEndToken) {
  Start(/*slots=*/2);
  const auto limited = Submit(MakeJob({3, 4, 5}, /*max_tokens=*/3));
  const auto ended = Submit(MakeJob({26, 27, 28}));
  const Answer of_limited = Read(*limited);
  EXPECT_THAT(of_limited.tokens, ElementsAre(6, 7, 8));
  EXPECT_EQ(of_limited.end.value().reason, StopReason::kMaxTokens);
  const Answer of_ended = Read(*ended);
  EXPECT_THAT(of_ended.tokens, ElementsAre(29, 30));
  EXPECT_EQ(of_ended.end.value().reason, StopReason::kEndOfGeneration);
}

TEST_F(SchedulerTest, MoreJobsThanSlotsAllEnd) {
  Start(2);
  std::vector<std::shared_ptr<AnswerChannel>> channels;
  for (int32_t i = 0; i < 7; ++i) {
    channels.push_back(Submit(MakeJob({i, i + 1, i + 2, i + 3, i + 4, i + 5}, 2)));
  }
  for (int32_t i = 0; i < 7; ++i) {
    EXPECT_THAT(Read(*channels[static_cast<size_t>(i)]).tokens, ElementsAre(i + 6, i + 7));
  }
  const EngineStats stats = scheduler_->stats();
  EXPECT_EQ(stats.slots, 2);
  EXPECT_EQ(stats.waiting, 0);
}

TEST_F(SchedulerTest, AnswersToOnePromptReadItOnce) {
  Start(4);
  auto job = MakeJob({1, 2, 3, 4, 5, 6, 7, 8, 9}, 2);
  std::vector<std::shared_ptr<AnswerChannel>> channels = {job->channel};
  for (int i = 0; i < 2; ++i) {
    job->choices.push_back(MakeJob(job->prompt, 2));
    channels.push_back(job->choices.back()->channel);
  }
  scheduler_->Submit(std::move(job));
  for (const auto& channel : channels) EXPECT_THAT(Read(*channel).tokens, ElementsAre(10, 11));
  // Chunks of 4, 4 and 1 rows. The last, of a single row, is read by each of the three.
  const StepStats prompt = scheduler_->stats().prompt;
  EXPECT_EQ(prompt.rows.sum, 4 + 4 + 3 * 1);
}

TEST_F(SchedulerTest, ACommonPromptIsNotReadAgain) {
  Start(2);
  std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(Read(*Submit(MakeJob(prompt, 1))).end.value().costs.cached_tokens, 0);
  prompt.push_back(11);
  const Answer again = Read(*Submit(MakeJob(prompt, 1)));
  EXPECT_EQ(again.end.value().costs.cached_tokens, 8) << "two chunks of four";
  EXPECT_THAT(again.tokens, ElementsAre(12));
}

TEST_F(SchedulerTest, AWrongRowFailsItsOwnJob) {
  Start(2);
  auto banned = MakeJob({3, 4}, 2);
  const std::vector<uint32_t> none(static_cast<size_t>(MaskWords(kCountedTokens)), 0);
  banned->sampling.mask = none;
  const auto wrong = Submit(std::move(banned));
  const auto right = Submit(MakeJob({5, 6}, 4));
  EXPECT_EQ(Read(*wrong).error.value().id, "sampler.empty");
  EXPECT_THAT(Read(*right).tokens, ElementsAre(7, 8, 9, 10));
  EXPECT_THAT(Read(*Submit(MakeJob({3, 4}, 2))).tokens, ElementsAre(5, 6)) << "its slot works";
}

TEST_F(SchedulerTest, EmbeddingsAndLogitsAreOfEveryRow) {
  Start(1);
  auto embed = MakeJob({1, 1, 2, 3, 4, 5});
  embed->kind = Job::Kind::kEmbed;
  const Answer sum = Read(*Submit(std::move(embed)));
  ASSERT_EQ(std::ssize(sum.rows), kCountedTokens);
  EXPECT_EQ(sum.rows[2], 2);  // after 1, twice
  EXPECT_EQ(sum.rows[6], 1);
  auto logits = MakeJob({1, 2, 3, 4, 5, 6});
  logits->kind = Job::Kind::kLogits;
  const Answer rows = Read(*Submit(std::move(logits)));
  ASSERT_EQ(std::ssize(rows.rows), 6 * kCountedTokens);
  for (size_t row = 0; row < 6; ++row) EXPECT_EQ(rows.rows[row * kCountedTokens + row + 2], 1);
}

TEST_F(SchedulerTest, CancelledJobsEndAndOthersFollow) {
  Start(1);
  *cancelled_ = true;
  const auto first = Submit(MakeJob({0}));
  const auto second = Submit(MakeJob({1}));
  for (const auto& channel : {first, second}) {
    EXPECT_EQ(Read(*channel).end.value().reason, StopReason::kCancelled);
  }
  *cancelled_ = false;
  EXPECT_THAT(Read(*Submit(MakeJob({8, 9}, 1))).tokens, ElementsAre(10));
}

TEST_F(SchedulerTest, DestroyingItEndsAllJobs) {
  Start(1);
  std::vector<std::shared_ptr<AnswerChannel>> channels;
  for (int i = 0; i < 3; ++i) channels.push_back(Submit(MakeJob({0})));
  scheduler_.reset();
  for (const auto& channel : channels) EXPECT_TRUE(Read(*channel).end);
}

}  // namespace
}  // namespace rullama
