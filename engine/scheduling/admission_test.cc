#include "engine/scheduling/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/scheduling/job_slots_test_util.h"
#include "engine/scheduling/prompt_reader.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Channel = std::shared_ptr<AnswerChannel>;

class AdmissionTest : public ::testing::Test {
 protected:
  void Start(int64_t slots) {
    reader_.reset();
    admission_.reset();
    slots_.emplace(slots);
    admission_.emplace(waiting_, slots_->contents, slots_->jobs, slots_->counters);
    reader_.emplace(slots_->batch.session(), slots_->options, slots_->contents, slots_->jobs,
                    /*canvases=*/nullptr, slots_->counters);
  }
  // A job whose prompt is its number, for `answers` answers.
  [[nodiscard]] std::unique_ptr<Job> Numbered(int32_t number, size_t answers = 1) const {
    auto job = slots_->MakeJob({number});
    while (job->choices.size() + 1 < answers) job->choices.push_back(slots_->MakeJob({number}));
    return job;
  }
  Channel Add(std::unique_ptr<Job> job) {
    Channel channel = job->channel;
    std::vector<std::unique_ptr<Job>> jobs;
    jobs.push_back(std::move(job));
    waiting_.Add(std::move(jobs));
    return channel;
  }
  // The first token of the prompt of each slot's job; -1: the slot is free.
  [[nodiscard]] std::vector<int32_t> Running() const {
    std::vector<int32_t> numbers;
    for (int32_t slot = 0; slot < slots_->jobs.size(); ++slot) {
      const RunningJob* running = slots_->jobs.Find(slot);
      numbers.push_back(running == nullptr ? -1 : running->job->prompt.front());
    }
    return numbers;
  }
  // Lets jobs begin, and reads the prompts of all that did; those that want no tokens end then.
  void AdmitAndRead() {
    admission_->Admit();
    ReadingPace pace(std::chrono::milliseconds(250));
    while (reader_->HasWork()) {
      reader_->BeginRound();
      pace.WritesNothing();
      EXPECT_TRUE(reader_->ReadNext(pace));
    }
  }
  // Leaves a prompt of ten tokens, of which two chunks may be reused, in a slot that is free.
  void LeavePrompt(uint64_t client) {
    auto job = slots_->MakeJob(kPrompt, /*max_tokens=*/0);
    job->space.client = client;
    const Channel channel = Add(std::move(job));
    AdmitAndRead();
    EXPECT_TRUE(TakeLast<RequestEnd>(*channel));
  }
  [[nodiscard]] static std::vector<int32_t> LongerPrompt() {
    std::vector<int32_t> longer = kPrompt;
    longer.push_back(11);
    return longer;
  }

  static inline const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

  std::optional<JobSlots> slots_;
  WaitingJobs waiting_;
  std::optional<Admission> admission_;
  std::optional<PromptReader> reader_;
};

TEST_F(AdmissionTest, JobsBeginWhileTheirAnswersHaveSlots) {
  struct Case {
    int64_t slots;
    std::vector<size_t> answers;  // of the jobs 0, 1, ...
    std::vector<int32_t> running;
    int64_t waiting;  // answers
  };
  const Case cases[] = {
      {1, {1, 1}, {0, -1}, 1},
      {2, {1, 1, 1}, {0, 1}, 1},
      {3, {1, 1}, {0, 1, -1}, 0},
      {2, {2, 1}, {0, 0}, 1},
      {3, {1, 2, 1}, {0, 1, 1}, 1},
      {2, {1, 2, 1}, {0, -1}, 3},  // the last one does not overtake
      {4, {2, 2, 1}, {0, 0, 1, 1}, 1},
      {1, {}, {-1}, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.answers) + " in " + std::to_string(c.slots));
    Start(c.slots);
    waiting_ = {};
    for (size_t i = 0; i < c.answers.size(); ++i) {
      Add(Numbered(static_cast<int32_t>(i), c.answers[i]));
    }
    admission_->Admit();
    std::vector<int32_t> running = c.running;
    running.resize(static_cast<size_t>(c.slots), -1);
    EXPECT_EQ(Running(), running);
    EXPECT_EQ(waiting_.answers(), c.waiting);
  }
}

TEST_F(AdmissionTest, ASlotThatIsFreeAgainGoesToTheClientWhoseTurnItIs) {
  Start(1);
  for (const int32_t number : {0, 1, 2, 3}) {
    auto job = Numbered(number);
    job->space.client = number == 3 ? 2 : 1;
    Add(std::move(job));
  }
  std::vector<int32_t> order;
  for (admission_->Admit(); slots_->jobs.Find(0) != nullptr; admission_->Admit()) {
    order.push_back(Running().front());
    slots_->jobs.End(0, StopReason::kEndOfGeneration);
  }
  EXPECT_THAT(order, ElementsAre(0, 3, 1, 2));
}

TEST_F(AdmissionTest, AJobForABusySlotWaitsForItWhileOthersBegin) {
  Start(2);
  Add(Numbered(0));
  admission_->Admit();
  auto picky = Numbered(1);
  picky->slot = 0;
  Add(std::move(picky));
  Add(Numbered(2));
  admission_->Admit();
  EXPECT_THAT(Running(), ElementsAre(0, 2));
  slots_->jobs.End(1, StopReason::kEndOfGeneration);
  admission_->Admit();
  EXPECT_THAT(Running(), ElementsAre(0, -1)) << "slot 1 is not the one";
  slots_->jobs.End(0, StopReason::kEndOfGeneration);
  admission_->Admit();
  EXPECT_THAT(Running(), ElementsAre(1, -1));
}

TEST_F(AdmissionTest, JobsThatWereCancelledGetNoSlot) {
  Start(1);
  Add(Numbered(0))->Cancel();
  Add(Numbered(1));
  waiting_.EndCancelled([this](const Job& job) { return slots_->options.IsCancelled(job); });
  admission_->Admit();
  EXPECT_THAT(Running(), ElementsAre(1));
}

TEST_F(AdmissionTest, AnswersToOnePromptLetTheFirstReadIt) {
  Start(3);
  Add(Numbered(5, /*answers=*/3));
  admission_->Admit();
  EXPECT_EQ(slots_->jobs.At(0).reader, std::nullopt);
  EXPECT_EQ(slots_->jobs.At(1).reader, 0);
  EXPECT_EQ(slots_->jobs.At(2).reader, 0);
  EXPECT_THAT(slots_->jobs.At(0).job->choices, IsEmpty());
  EXPECT_EQ(slots_->counters.ReadSlots()[2].task, 3);
}

TEST_F(AdmissionTest, APromptBeginsWithTheRowsThatASlotHoldsOfItsClient) {
  struct Case {
    uint64_t client;
    bool reuse;
    Job::Kind kind;
    int64_t reused;
  };
  const auto generate = Job::Kind::kGenerate;
  for (const Case& c : {Case{1, true, generate, 8}, Case{2, true, generate, 0},
                        Case{1, false, generate, 0}, Case{1, true, Job::Kind::kSave, 8}}) {
    SCOPED_TRACE(c.client);
    Start(2);
    LeavePrompt(/*client=*/1);
    auto job = slots_->MakeJob(LongerPrompt());
    job->space.client = c.client;
    job->reuse_prefix = c.reuse;
    job->kind = c.kind;
    const Channel channel = Add(std::move(job));
    admission_->Admit();
    const int32_t slot = c.reused > 0 ? 0 : 1;
    const RunningJob* running = slots_->jobs.Find(slot);
    ASSERT_NE(running, nullptr) << "an empty slot comes before one whose rows may be of use";
    EXPECT_EQ(running->reused, c.reused);
    EXPECT_EQ(running->read, c.reused);
    const auto progress = TakeLast<ReadProgress>(*channel);
    ASSERT_TRUE(progress);
    EXPECT_EQ(progress->done, c.reused);
    EXPECT_EQ(progress->total, 11);
    const EngineStats stats = slots_->counters.Read();
    EXPECT_EQ(stats.prefix_hits, c.reused > 0 ? 1U : 0U);
    EXPECT_EQ(stats.prefix_misses, c.reused > 0 ? 1U : 2U) << "the first one, too";
  }
}

TEST_F(AdmissionTest, AllAnswersToAPromptAreToldWhatIsReused) {
  Start(2);
  LeavePrompt(/*client=*/0);
  auto job = slots_->MakeJob(LongerPrompt());
  job->choices.push_back(slots_->MakeJob(LongerPrompt()));
  const Channel second = job->choices.front()->channel;
  Add(std::move(job));
  admission_->Admit();
  EXPECT_EQ(slots_->jobs.At(1).reused, 8);
  const auto progress = TakeLast<ReadProgress>(*second);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->reused, 8);
  EXPECT_EQ(slots_->counters.Read().prefix_hits, 1U) << "a prompt counts once";
}

TEST_F(AdmissionTest, TextsOfEmbeddingsAreReadFromTheirBeginning) {
  Start(1);
  LeavePrompt(/*client=*/0);
  auto job = slots_->MakeJob(LongerPrompt());
  job->kind = Job::Kind::kEmbed;
  const Channel channel = Add(std::move(job));
  admission_->Admit();
  EXPECT_EQ(slots_->jobs.At(0).read, 0);
  EXPECT_THAT(TakeAll(*channel), IsEmpty()) << "the progress of a prompt is that of an answer";
  EXPECT_EQ(slots_->counters.Read().prefix_misses, 1U) << "of the prompt before";
}

TEST_F(AdmissionTest, ASnapshotIsLoadedAndItsSlotGoesToTheNextJob) {
  Start(1);
  auto save = slots_->MakeJob({1, 2, 3, 4});
  save->kind = Job::Kind::kSave;
  const Channel saved = Add(std::move(save));
  AdmitAndRead();
  auto stored = TakeLast<StoredSnapshot>(*saved);
  ASSERT_TRUE(stored);
  auto load = slots_->MakeJob({1, 2, 3, 4});
  load->kind = Job::Kind::kLoad;
  load->stored = std::move(*stored);
  const Channel loaded = Add(std::move(load));
  const Channel next = Add(slots_->MakeJob({1, 2, 3, 4, 5}));
  admission_->Admit();
  const auto end = TakeLast<RequestEnd>(*loaded);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->reason, StopReason::kEndOfGeneration);
  const auto progress = TakeLast<ReadProgress>(*next);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->reused, 4) << "what was loaded";
}

TEST_F(AdmissionTest, AJobThatCannotBeginFailsAndItsSlotGoesToTheNextJob) {
  Start(1);
  SnapshotInfo of_another_model{.position = 4, .parts = std::vector<SnapshotPart>(9)};
  auto load = slots_->MakeJob({1, 2, 3, 4});
  load->kind = Job::Kind::kLoad;
  load->stored = StoredSnapshot{*Snapshot::Allocate(std::move(of_another_model)), {1, 2, 3, 4}};
  const Channel loaded = Add(std::move(load));
  Add(Numbered(7));
  admission_->Admit();
  const auto error = TakeLast<Error>(*loaded);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->id, "snapshot.mismatch");
  EXPECT_THAT(Running(), ElementsAre(7));
}

// Jobs that store, fill or erase a slot.
class SlotJobsTest : public AdmissionTest {
 protected:
  std::unique_ptr<Job> SlotJob(Job::Kind kind, uint64_t client) const {
    auto job = std::make_unique<Job>();
    job->kind = kind;
    job->slot = 0;
    job->space.client = client;
    job->channel = std::make_shared<AnswerChannel>(slots_->wakeup);
    return job;
  }
  // The items that the job gives.
  std::vector<ChannelItem> Do(std::unique_ptr<Job> job) {
    const Channel channel = Add(std::move(job));
    admission_->Admit();
    return TakeAll(*channel);
  }
  // The tokens that slot 0 holds, as the statistics say.
  [[nodiscard]] int64_t Held() const { return slots_->counters.ReadSlots()[0].tokens; }
};

TEST_F(SlotJobsTest, OnlyTheClientOfASlotHasWhatItHolds) {
  Start(1);
  LeavePrompt(/*client=*/1);
  const auto refused = Do(SlotJob(Job::Kind::kStoreSlot, 2));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(std::get<Error>(refused.front()).id, "slot.empty");
  const auto nothing = Do(SlotJob(Job::Kind::kEraseSlot, 2));
  EXPECT_THAT(std::get<SlotResult>(nothing.at(0)).erased, IsEmpty());
  EXPECT_EQ(Held(), 10);
  const auto erased = Do(SlotJob(Job::Kind::kEraseSlot, 1));
  EXPECT_EQ(std::get<SlotResult>(erased.at(0)).erased, kPrompt);
  EXPECT_EQ(std::get<SlotResult>(erased.at(0)).tokens, 10);
  EXPECT_EQ(Held(), 0);
}

TEST_F(SlotJobsTest, WhatWasStoredFillsASlotAgain) {
  Start(1);
  LeavePrompt(/*client=*/1);
  const auto stored = Do(SlotJob(Job::Kind::kStoreSlot, 1));
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(std::get<SlotResult>(stored.front()).tokens, 10);
  Do(SlotJob(Job::Kind::kEraseSlot, 1));
  auto fill = SlotJob(Job::Kind::kFillSlot, 1);
  fill->stored_slot = std::get<SlotResult>(stored.front()).stored;
  const auto filled = Do(std::move(fill));
  EXPECT_EQ(std::get<SlotResult>(filled.at(0)).tokens, 10);
  EXPECT_EQ(Held(), 10);
  auto job = slots_->MakeJob(LongerPrompt());
  job->space.client = 1;
  Add(std::move(job));
  admission_->Admit();
  EXPECT_EQ(slots_->jobs.At(0).reused, 8) << "its chunks, as before";
}

TEST_F(SlotJobsTest, TheyWaitForTheSlotAndTakeNone) {
  Start(2);
  Add(Numbered(3));
  admission_->Admit();
  EXPECT_THAT(Do(SlotJob(Job::Kind::kEraseSlot, 0)), IsEmpty()) << "slot 0 is busy";
  EXPECT_EQ(waiting_.answers(), 1);
  slots_->jobs.End(0, StopReason::kCancelled);
  admission_->Admit();
  EXPECT_EQ(waiting_.answers(), 0);
  EXPECT_THAT(Running(), ElementsAre(-1, -1));
}

}  // namespace
}  // namespace rullama
