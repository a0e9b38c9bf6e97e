#include "engine/scheduling/canvas_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>

#include "engine/scheduling/job_slots_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int64_t kCanvasLength = 4;
constexpr int64_t kStepsOfCanvas = 3;

// The part of an answer that a finished canvas gives.
struct Finished {
  std::vector<int32_t> text = {21, 22, 23, 24};
  std::optional<StopReason> end = {};
};

// What the writers of all slots were asked for.
struct Asked {
  std::vector<int32_t> slots;  // of each step
  int64_t max_tokens = 0;      // of the last one
};

// Takes three steps for each canvas.
class FakeWriter final : public CanvasWriter {
 public:
  FakeWriter(int32_t slot, Asked& asked, std::deque<Finished> script, std::optional<Error> error)
      : slot_(slot), asked_(asked), script_(std::move(script)), error_(std::move(error)) {
    reply_.best = canvas_;
    reply_.entropy = {1, 2, 3, 4};
    reply_.accepted = {1, 0, 0, 1};
  }

  Result<CanvasGenerator::Progress> Advance(int64_t max_tokens) override {
    asked_.slots.push_back(slot_);
    asked_.max_tokens = max_tokens;
    if (error_) return tl::unexpected(*error_);
    CanvasGenerator::Progress progress{.step = {.index = step_++,
                                                .max_steps = kStepsOfCanvas,
                                                .temperature = 0.5F,
                                                .mean_entropy = 2.5F,
                                                .canvas = canvas_,
                                                .reply = &reply_}};
    if (step_ < kStepsOfCanvas) return progress;
    step_ = 0;
    ++canvases_;
    progress.finished = true;
    progress.text = script_.front().text;
    progress.end = script_.front().end;
    script_.pop_front();
    return progress;
  }
  [[nodiscard]] std::span<const int32_t> canvas() const override { return canvas_; }
  [[nodiscard]] int64_t canvases() const override { return canvases_; }

 private:
  int32_t slot_;
  Asked& asked_;
  std::deque<Finished> script_;
  std::optional<Error> error_;
  std::vector<int32_t> canvas_ = {21, 22, 23, 24};
  CanvasReply reply_;
  int64_t step_ = 0;
  int64_t canvases_ = 0;
};

class CanvasLoopTest : public ::testing::Test {
 protected:
  void Start(int64_t slots) {
    loop_.reset();
    slots_.emplace(slots);
    ProgramGraphs graphs = slots_->batch.graphs();
    graphs.denoise = graphs.read;
    slots_->options.canvas = CanvasOptions{
        .generator = {.graphs = CanvasGraphs(graphs), .canvas_length = kCanvasLength}};
    loop_.emplace(
        slots_->batch.session(),
        [this](int32_t slot, const Job&) -> Result<std::unique_ptr<CanvasWriter>> {
          ++made_;
          if (refusal_) return tl::unexpected(*refusal_);
          return std::make_unique<FakeWriter>(slot, asked_, scripts_[slot], errors_[slot]);
        },
        slots_->options, slots_->contents, slots_->jobs, slots_->counters);
  }
  // Gives a job with a prompt of two tokens the next slot, as if it had read it. Returns its
  // channel.
  std::shared_ptr<AnswerChannel> Begin(int64_t max_tokens = -1) {
    auto job = slots_->MakeJob({1, 2}, max_tokens);
    auto channel = job->channel;
    const SlotTable::Choice choice = slots_->contents.Choose(*job);
    slots_->jobs.Start(choice, std::move(job), std::nullopt);
    slots_->contents.Append(choice.slot, slots_->jobs.At(choice.slot).job->prompt);
    begun_ = loop_->Begin(choice.slot);
    return channel;
  }
  // Takes steps until there is nothing to do. Returns the slots of the steps.
  std::vector<int32_t> Run() {
    asked_.slots.clear();
    while (loop_->Step()) {
    }
    return asked_.slots;
  }
  static void Fill(AnswerChannel& channel) {
    while (!channel.full()) channel.Push(DrawnToken{});
  }

  std::map<int32_t, std::deque<Finished>> scripts_;  // by slot: the canvases of its job
  std::map<int32_t, std::optional<Error>> errors_;
  std::optional<Error> refusal_;
  int made_ = 0;
  Status begun_;  // of the job that began last
  Asked asked_;
  std::optional<JobSlots> slots_;
  std::optional<CanvasLoop> loop_;
};

const Finished kLast{.end = StopReason::kEndOfGeneration};

TEST_F(CanvasLoopTest, ACanvasIsFinishedBeforeThatOfTheNextSlotBegins) {
  Start(3);
  scripts_ = {{0, {{}, kLast}}, {1, {kLast}}, {2, {{}, kLast}}};
  for (int i = 0; i < 3; ++i) Begin();
  EXPECT_THAT(Run(), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 2, 2, 2));
}

TEST_F(CanvasLoopTest, ThereIsNothingToDoWithoutJobs) {
  Start(1);
  EXPECT_FALSE(loop_->Step());
}

TEST_F(CanvasLoopTest, AReaderThatIsSlowPausesItsJobBetweenCanvasesOnly) {
  Start(2);
  scripts_ = {{0, {{}, kLast}}, {1, {kLast}}};
  const auto slow = Begin();
  Begin();
  EXPECT_TRUE(loop_->Step());
  Fill(*slow);
  EXPECT_THAT(Run(), ElementsAre(0, 0, 1, 1, 1)) << "the canvas that was begun is finished";
  TakeAll(*slow);
  EXPECT_THAT(Run(), ElementsAre(0, 0, 0));
}

TEST_F(CanvasLoopTest, AJobThatEndsInItsCanvasLeavesTheTurnToTheNextSlot) {
  Start(2);
  scripts_ = {{0, {kLast}}, {1, {kLast}}};
  Begin();
  Begin();
  EXPECT_TRUE(loop_->Step());
  slots_->jobs.End(0, StopReason::kCancelled);
  Begin();  // another job in the same slot
  EXPECT_THAT(Run(), ElementsAre(1, 1, 1, 0, 0, 0));
}

TEST_F(CanvasLoopTest, AJobThatWantsNoTokensEndsWithoutACanvas) {
  Start(1);
  const auto channel = Begin(/*max_tokens=*/0);
  const auto end = TakeLast<RequestEnd>(*channel);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->reason, StopReason::kMaxTokens);
  EXPECT_EQ(made_, 0);
  EXPECT_EQ(slots_->jobs.Find(0), nullptr);
}

TEST_F(CanvasLoopTest, PlansAreMadeForJobsThatWantTokens) {
  Start(1);
  slots_->options.canvas->generator.canvas_length = 1000;  // more rows than a step has
  EXPECT_FALSE(loop_->Prepare(*slots_->MakeJob({1}, /*max_tokens=*/1)));
  EXPECT_TRUE(loop_->Prepare(*slots_->MakeJob({1}, 0)));
}

TEST_F(CanvasLoopTest, AJobWithoutAWriterHasNoTurn) {
  Start(1);
  refusal_ = Error{ErrorKind::kUsage, "sampler.seed", "not this one"};
  Begin();
  ASSERT_FALSE(begun_);
  EXPECT_EQ(begun_.error().id, "sampler.seed");
  EXPECT_FALSE(loop_->Step());
}

TEST_F(CanvasLoopTest, StepsAreHandedOutAsDraftsAndCanvasesAsText) {
  Start(1);
  scripts_ = {{0, {{}, {.text = {21}, .end = StopReason::kMaxTokens}}}};
  const auto channel = Begin(/*max_tokens=*/5);
  Run();
  std::vector<std::pair<int64_t, int64_t>> drafts;  // canvas and step
  std::vector<int32_t> text;
  std::vector<StopReason> ends;
  for (const ChannelItem& item : TakeAll(*channel)) {
    if (const auto* draft = std::get_if<Draft>(&item)) {
      drafts.emplace_back(draft->canvas.canvas, draft->step);
      EXPECT_EQ(draft->max_steps, kStepsOfCanvas);
      EXPECT_EQ(draft->canvas.temperature, 0.5);
      EXPECT_EQ(draft->canvas.mean_entropy, 2.5);
      EXPECT_THAT(draft->canvas.ids, ElementsAre(21, 22, 23, 24));
      EXPECT_THAT(draft->canvas.entropy, ElementsAre(1, 2, 3, 4));
      EXPECT_THAT(draft->canvas.accepted, ElementsAre(1, 0, 0, 1));
    }
    if (const auto* drawn = std::get_if<DrawnCanvas>(&item)) {
      text.insert(text.end(), drawn->tokens.begin(), drawn->tokens.end());
    }
    if (const auto* end = std::get_if<RequestEnd>(&item)) ends.push_back(end->reason);
  }
  EXPECT_THAT(drafts, ElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(0, 3),
                                  std::pair(1, 1), std::pair(1, 2), std::pair(1, 3)));
  EXPECT_THAT(text, ElementsAre(21, 22, 23, 24, 21));
  EXPECT_THAT(ends, ElementsAre(StopReason::kMaxTokens));
}

TEST_F(CanvasLoopTest, AnAnswerHasTheTextOfItsCanvasesAndItsSlotAllTheirRows) {
  Start(1);
  scripts_ = {{0, {{.text = {21, 22}}, {.text = {}, .end = StopReason::kEndOfGeneration}}}};
  const auto channel = Begin(/*max_tokens=*/7);
  for (int64_t i = 0; i < kStepsOfCanvas; ++i) EXPECT_TRUE(loop_->Step());
  const RunningJob& running = slots_->jobs.At(0);
  EXPECT_EQ(running.drawn, 2);
  EXPECT_EQ(asked_.max_tokens, 7);
  EXPECT_EQ(slots_->contents.tokens(0), 2 + kCanvasLength);
  Run();
  EXPECT_EQ(slots_->contents.tokens(0), 2 + kCanvasLength) << "the last canvas is not appended";
  int texts = 0;
  for (const ChannelItem& item : TakeAll(*channel)) {
    texts += std::holds_alternative<DrawnCanvas>(item) ? 1 : 0;
  }
  EXPECT_EQ(texts, 1) << "none for the canvas without text";
}

TEST_F(CanvasLoopTest, StepsAreCountedWithTheRowsOfACanvas) {
  Start(1);
  scripts_ = {{0, {{}, kLast}}};
  Begin();
  EXPECT_THAT(Run(), SizeIs(2 * kStepsOfCanvas));
  const StepStats denoise = slots_->counters.Read().denoise;
  EXPECT_EQ(denoise.rows.sum, 2 * kStepsOfCanvas * kCanvasLength);
}

TEST_F(CanvasLoopTest, AFailedStepEndsItsOwnJob) {
  struct Case {
    const char* id;
    bool cancelled;
  };
  for (const Case& c : {Case{"backend.nan", false}, Case{"run.cancelled", true}}) {
    SCOPED_TRACE(c.id);
    Start(2);
    scripts_ = {{1, {kLast}}};
    errors_[0] = Error{ErrorKind::kRuntime, c.id, "broken"};
    const auto failed = Begin();
    const auto other = Begin();
    EXPECT_THAT(Run(), ElementsAre(0, 1, 1, 1));
    const std::vector<ChannelItem> items = TakeAll(*failed);
    ASSERT_THAT(items, SizeIs(1));
    EXPECT_EQ(std::holds_alternative<RequestEnd>(items.front()), c.cancelled);
    if (c.cancelled) {
      EXPECT_EQ(std::get<RequestEnd>(items.front()).reason, StopReason::kCancelled);
    } else {
      EXPECT_EQ(std::get<Error>(items.front()).id, c.id);
    }
    EXPECT_TRUE(TakeLast<RequestEnd>(*other));
  }
}

}  // namespace
}  // namespace rullama
