#include "engine/scheduling/waiting_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <variant>

namespace rullama {
namespace {

using ::testing::ElementsAre;

constexpr auto kAny = [](const Job& /*job*/) { return true; };

class WaitingJobsTest : public ::testing::Test {
 protected:
  // A job of a client; its prompt is the client's number, and then its own.
  std::unique_ptr<Job> MakeJob(uint64_t client, int32_t number, size_t answers = 1) {
    auto job = std::make_unique<Job>();
    job->space.client = client;
    job->prompt = {static_cast<int32_t>(client), number};
    job->channel = std::make_shared<AnswerChannel>(wakeup_);
    channels_.push_back(job->channel);
    for (size_t i = 1; i < answers; ++i) job->choices.push_back(MakeJob(client, number));
    return job;
  }
  void Add(uint64_t client, int32_t number, size_t answers = 1) {
    std::vector<std::unique_ptr<Job>> jobs;
    jobs.push_back(MakeJob(client, number, answers));
    waiting_.Add(std::move(jobs));
  }
  // Client and number of the next jobs.
  std::vector<std::pair<int32_t, int32_t>> TakeAll() {
    std::vector<std::pair<int32_t, int32_t>> taken;
    while (const auto job = waiting_.TakeNext(/*free_slots=*/8, kAny)) {
      taken.emplace_back(job->prompt[0], job->prompt[1]);
    }
    return taken;
  }

  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::vector<std::shared_ptr<AnswerChannel>> channels_;
  WaitingJobs waiting_;
};

TEST_F(WaitingJobsTest, ClientsTakeTurns) {
  for (int32_t number = 0; number < 3; ++number) Add(/*client=*/1, number);
  Add(2, 0);
  Add(2, 1);
  EXPECT_THAT(TakeAll(), ElementsAre(std::pair(1, 0), std::pair(2, 0), std::pair(1, 1),
                                     std::pair(2, 1), std::pair(1, 2)));
}

TEST_F(WaitingJobsTest, TurnsAreForgottenWhenNobodyWaits) {
  Add(1, 0);
  TakeAll();
  Add(1, 1);
  Add(2, 0);
  EXPECT_THAT(TakeAll(), ElementsAre(std::pair(1, 1), std::pair(2, 0)));
}

TEST_F(WaitingJobsTest, AJobOfManyAnswersIsNotOvertaken) {
  Add(1, 0, /*answers=*/3);
  Add(2, 0);
  EXPECT_EQ(waiting_.answers(), 4);
  EXPECT_EQ(waiting_.TakeNext(/*free_slots=*/2, kAny), nullptr);
  EXPECT_EQ(waiting_.answers(), 4);
  const auto job = waiting_.TakeNext(3, kAny);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(AnswersOf(*job), 3);
  EXPECT_EQ(waiting_.answers(), 1);
}

TEST_F(WaitingJobsTest, AJobThatWaitsForItsSlotIsPassedOver) {
  Add(1, 0);
  Add(1, 1);
  const auto not_the_first = [](const Job& job) { return job.prompt[1] != 0; };
  EXPECT_EQ(waiting_.TakeNext(1, not_the_first)->prompt[1], 1);
  EXPECT_EQ(waiting_.TakeNext(1, not_the_first), nullptr);
  EXPECT_EQ(waiting_.TakeNext(1, kAny)->prompt[1], 0);
}

TEST_F(WaitingJobsTest, OnlyJobsWhoseAnswersAreAllCancelledEnd) {
  Add(1, 0, /*answers=*/2);
  Add(2, 0);
  const auto is_cancelled = [](const Job& job) { return job.channel->cancelled(); };
  channels_[0]->Cancel();
  waiting_.EndCancelled(is_cancelled);
  EXPECT_EQ(waiting_.answers(), 3);
  channels_[1]->Cancel();
  waiting_.EndCancelled(is_cancelled);
  EXPECT_EQ(waiting_.answers(), 1);
  for (size_t i = 0; i < 2; ++i) {
    const ChannelItem item = channels_[i]->Take();
    ASSERT_TRUE(std::holds_alternative<RequestEnd>(item));
    EXPECT_EQ(std::get<RequestEnd>(item).reason, StopReason::kCancelled);
  }
}

}  // namespace
}  // namespace rullama
