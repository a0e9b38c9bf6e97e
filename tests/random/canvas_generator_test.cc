// Several canvases in a sequence, on a random model that denoises: what joins the caches, where
// text ends, and what does not fit; and sequences that take turns.
#include "engine/canvas_generator.h"

#include <gmock/gmock.h>

#include <type_traits>

#include "engine/drafts/cut_points.h"
#include "engine/model_program.h"
#include "engine/scheduling/scheduler.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/random/random_support.h"

namespace rullama::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kCanvas = 6;
constexpr uint64_t kSeed = 11;

// Without the graphs of the session a generator would run whichever is its first.
static_assert(!std::is_default_constructible_v<CanvasGeneratorOptions>);

// Few steps, so that a random model's canvas is finished soon.
EntropyBoundSettings ThreeSteps() { return {.max_steps = 3, .entropy_bound = 4}; }

class CanvasGeneratorTest : public ::testing::Test {
 protected:
  CanvasGeneratorTest() {
    Gemma4Config config = MakeRandomModel(kSeed, {.canvas = true}).config;
    config.canvas.length = kCanvas;
    model_ = MakeRandomModel(kSeed, {.canvas = true}, config);
  }

  std::unique_ptr<Session> Open(int64_t capacity, int64_t slots = 1) {
    const EntropyBoundSettings diffusion = ThreeSteps();
    auto program = Must(
        BuildModelProgram(Gemma4Model(model_.config, model_.weights), {.diffusion = &diffusion,
                                                                       .slots = slots,
                                                                       .capacity = capacity,
                                                                       .kv_dtype = DType::kF32,
                                                                       .limits = {.max_t = 8}}));
    graphs_ = program.handles;
    weights_ = std::make_unique<RandomWeights>(model_, std::move(program.constants));
    SessionOptions options;
    options.devices = {device_.get()};
    options.limits.max_t = 8;
    return Must(Session::Create(std::move(program.graphs), *weights_, options));
  }
  [[nodiscard]] CanvasGeneratorOptions Options(int64_t capacity) const {
    return {.graphs = CanvasGraphs(graphs_),
            .capacity = capacity,
            .canvas_length = kCanvas,
            .vocabulary = model_.config.vocabulary,
            .settings = ThreeSteps()};
  }
  struct Answer {
    std::vector<int32_t> text;
    StopReason reason = StopReason::kStopped;
    int64_t steps = 0;
  };
  // An answer of at most `max_tokens`.
  static Answer Write(CanvasGenerator& generator, int64_t max_tokens) {
    Answer answer;
    for (;;) {
      const CanvasGenerator::Progress progress = Must(generator.Advance(max_tokens));
      ++answer.steps;
      answer.text.insert(answer.text.end(), progress.text.begin(), progress.text.end());
      if (!progress.end) continue;
      answer.reason = *progress.end;
      return answer;
    }
  }

  Backends backends_;
  std::unique_ptr<Device> device_ = backends_.Open("cpu");
  RandomModel model_;
  ProgramGraphs graphs_;
  std::unique_ptr<RandomWeights> weights_;
  std::vector<int32_t> prompt_ = {5, 9, 2, 7, 30, 31, 32, 8, 1, 17};
};

// The second canvas sees the first one exactly as if it had been part of the prompt.
TEST_F(CanvasGeneratorTest, AFinishedCanvasIsLikeAPrompt) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(64));
  ASSERT_TRUE(generator.Feed(prompt_));
  const auto [text, reason, steps] = Write(generator, 2 * kCanvas);
  ASSERT_EQ(std::ssize(text), 2 * kCanvas);
  EXPECT_EQ(generator.canvases(), 2);
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(reason, StopReason::kMaxTokens);
  EXPECT_EQ(generator.position(), std::ssize(prompt_) + kCanvas) << "the last one joins nothing";

  auto other = Open(64);
  PhiloxCanvasRandom same(3);  // its numbers depend on the position, not on what came before
  CanvasGenerator again(*other, same, Options(64));
  std::vector<int32_t> longer = prompt_;
  longer.insert(longer.end(), text.begin(), text.begin() + kCanvas);
  ASSERT_TRUE(again.Feed(longer));
  const auto second = again.Denoise({});
  ASSERT_TRUE(second);
  EXPECT_THAT(second->tokens, ElementsAreArray(text.begin() + kCanvas, text.end()));
}

TEST_F(CanvasGeneratorTest, StartingAgainGivesTheSame) {
  auto session = Open(64);
  std::vector<int32_t> first;
  for (int run = 0; run < 2; ++run) {
    session->ForgetSlot(0);
    PhiloxCanvasRandom random(3);
    CanvasGenerator generator(*session, random, Options(64));
    ASSERT_TRUE(generator.Feed(prompt_));
    const auto text = Write(generator, kCanvas).text;
    if (run == 0) first = text;
    EXPECT_EQ(text, first) << "something of the last run is left";
  }
}

TEST_F(CanvasGeneratorTest, AnEndTokenEndsTheTextInsideACanvas) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator plain(*session, random, Options(64));
  ASSERT_TRUE(plain.Feed(prompt_));
  const auto text = Write(plain, kCanvas).text;

  session->ForgetSlot(0);
  CanvasGeneratorOptions options = Options(64);
  options.end_tokens = {text[2]};
  const auto length = std::ranges::find(text, text[2]) - text.begin();
  PhiloxCanvasRandom again(3);
  CanvasGenerator ending(*session, again, options);
  ASSERT_TRUE(ending.Feed(prompt_));
  const Answer cut = Write(ending, -1);
  EXPECT_THAT(cut.text, ElementsAreArray(text.begin(), text.begin() + length));
  EXPECT_EQ(cut.reason, StopReason::kEndOfGeneration);
  EXPECT_EQ(ending.canvases(), 1);
}

TEST_F(CanvasGeneratorTest, FewerTokensThanACanvas) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(64));
  ASSERT_TRUE(generator.Feed(prompt_));
  const Answer answer = Write(generator, 2);
  EXPECT_EQ(answer.text.size(), 2U);
  EXPECT_EQ(answer.reason, StopReason::kMaxTokens);
}

TEST_F(CanvasGeneratorTest, TheContextEndsWithWholeCanvases) {
  const int64_t capacity = std::ssize(prompt_) + 2 * kCanvas + kCanvas / 2;
  auto session = Open(capacity);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(capacity));
  ASSERT_TRUE(generator.Feed(prompt_));
  const Answer answer = Write(generator, -1);
  EXPECT_EQ(std::ssize(answer.text), 2 * kCanvas);
  EXPECT_EQ(answer.reason, StopReason::kContextFull);
}

TEST_F(CanvasGeneratorTest, ACanvasThatDoesNotFitIsAnError) {
  const int64_t capacity = std::ssize(prompt_) + kCanvas - 1;
  auto session = Open(capacity);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(capacity));
  ASSERT_TRUE(generator.Feed(prompt_));
  const auto canvas = generator.Denoise({});
  ASSERT_FALSE(canvas);
  EXPECT_EQ(canvas.error().id, "context.overflow");
  EXPECT_THAT(canvas.error().message, HasSubstr("shorten the prompt"));

  const EntropyBoundSettings diffusion;
  const auto program = BuildModelProgram(Gemma4Model(model_.config, model_.weights),
                                         {.diffusion = &diffusion, .capacity = kCanvas - 1});
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().id, "context.overflow");
}

TEST_F(CanvasGeneratorTest, NothingIsCompiledOrAllocatedAfterTheFirstCanvas) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(64));
  ASSERT_TRUE(generator.Feed(prompt_));
  const auto first = generator.Denoise({});
  ASSERT_TRUE(first);
  ASSERT_TRUE(generator.Feed(first->tokens));
  const SessionStats before = Must(session->Stats());
  for (int canvas = 0; canvas < 3; ++canvas) {
    const auto next = generator.Denoise({});
    ASSERT_TRUE(next);
    ASSERT_TRUE(generator.Feed(next->tokens));
  }
  const SessionStats after = Must(session->Stats());
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.compilations, before.compilations);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_GT(after.steps, before.steps);
}

TEST_F(CanvasGeneratorTest, ACallbackOrACancellationStopsBetweenSteps) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  std::atomic<bool> cancelled = false;
  CanvasGeneratorOptions options = Options(64);
  options.cancelled = &cancelled;
  CanvasGenerator generator(*session, random, options);
  ASSERT_TRUE(generator.Feed(prompt_));
  auto canvas = Must(generator.Denoise([](const CanvasStep& step) { return step.index < 1; }));
  EXPECT_FALSE(canvas.finished);
  EXPECT_EQ(canvas.steps, 2);

  canvas = Must(generator.Denoise([&cancelled](const CanvasStep&) { return cancelled = true; }));
  EXPECT_FALSE(canvas.finished);
  EXPECT_EQ(canvas.steps, 1);

  const Status fed = generator.Feed(prompt_);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "run.cancelled");
  EXPECT_EQ(generator.position(), std::ssize(prompt_));
}

// The tokens of each request, in the order in which they end.
class Ends final : public EngineObserver {
 public:
  void OnSpan(const StepSpan& /*span*/) override {}
  void OnRequest(const RequestSpan& request) override { tokens.push_back(request.drawn_tokens); }
  std::vector<int64_t> tokens;
};

class CanvasSchedulerTest : public CanvasGeneratorTest {
 protected:
  static constexpr int64_t kCapacity = 512;
  static constexpr int64_t kChunk = 8;

  void Start(int64_t slots) {
    session_ = Open(kCapacity, slots);
    scheduler_ = std::make_unique<Scheduler>(
        *session_,
        SchedulerOptions{.graphs = graphs_,
                         .slots = slots,
                         .capacity = kCapacity,
                         .vocabulary = model_.config.vocabulary,
                         .chunk = kChunk,
                         .prefix_bytes = uint64_t{1} << 20,
                         .canvas = CanvasOptions{.generator = Options(kCapacity)},
                         .observer = &ends_},
        wakeup_);
  }
  std::unique_ptr<Job> MakeJob(int64_t max_tokens, uint32_t stream = 0) {
    auto job = std::make_unique<Job>();
    job->prompt = prompt_;
    job->cuts = CutPoints(std::ssize(prompt_), kChunk, {});
    job->max_tokens = max_tokens;
    job->sampling.seed = 3;
    job->sampling.stream = stream;
    job->channel = std::make_shared<AnswerChannel>(wakeup_);
    return job;
  }
  struct Text {
    std::vector<int32_t> tokens;
    RequestEnd end;
  };
  static Text Read(AnswerChannel& channel) {
    Text text;
    for (;;) {
      ChannelItem item = channel.Take();
      if (const auto* canvas = std::get_if<DrawnCanvas>(&item)) {
        text.tokens.insert(text.tokens.end(), canvas->tokens.begin(), canvas->tokens.end());
      }
      if (const auto* error = std::get_if<Error>(&item)) ADD_FAILURE() << error->ToString();
      const auto* end = std::get_if<RequestEnd>(&item);
      if (end != nullptr) text.end = *end;
      if (end != nullptr || std::holds_alternative<Error>(item)) return text;
    }
  }
  Text Run(std::unique_ptr<Job> job) {
    const auto channel = job->channel;
    scheduler_->Submit(std::move(job));
    return Read(*channel);
  }

  Ends ends_;
  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::unique_ptr<Session> session_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(CanvasSchedulerTest, SlotsTakeTurnsByCanvas) {
  Start(2);
  const Text alone = Run(MakeJob(12 * kCanvas));
  ASSERT_EQ(std::ssize(alone.tokens), 12 * kCanvas);
  EXPECT_EQ(alone.end.reason, StopReason::kMaxTokens);
  auto long_job = MakeJob(12 * kCanvas);
  // Both get their slots in the same round.
  long_job->choices.push_back(MakeJob(kCanvas));
  const auto of_long = long_job->channel;
  const auto of_short = long_job->choices.front()->channel;
  scheduler_->Submit(std::move(long_job));
  EXPECT_EQ(Read(*of_long).tokens, alone.tokens);
  EXPECT_THAT(Read(*of_short).tokens,
              ElementsAreArray(alone.tokens.begin(), alone.tokens.begin() + kCanvas));
  scheduler_.reset();
  EXPECT_THAT(ends_.tokens, ElementsAre(12 * kCanvas, kCanvas, 12 * kCanvas));
}

TEST_F(CanvasSchedulerTest, AnswersToOnePromptReadItOnceAndDiffer) {
  Start(3);
  const Text alone = Run(MakeJob(kCanvas));
  auto job = MakeJob(kCanvas);
  std::vector<std::shared_ptr<AnswerChannel>> channels = {job->channel};
  for (const uint32_t stream : {1U, 2U}) {
    job->choices.push_back(MakeJob(kCanvas, stream));
    channels.push_back(job->choices.back()->channel);
  }
  const EngineStats before = scheduler_->stats();
  scheduler_->Submit(std::move(job));
  std::vector<std::vector<int32_t>> texts;
  for (const auto& channel : channels) texts.push_back(Read(*channel).tokens);
  EXPECT_EQ(texts[0], alone.tokens);
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_NE(texts[1], texts[2]);
  const EngineStats after = scheduler_->stats();
  // Eight of ten rows are found, and the rest is one chunk.
  EXPECT_EQ(after.prompt.rows.sum - before.prompt.rows.sum, 2);
  EXPECT_EQ(after.denoise.rows.sum - before.denoise.rows.sum, 3 * 3 * kCanvas);
}

TEST_F(CanvasSchedulerTest, APromptThatWasReadBeforeGivesTheSameText) {
  Start(1);
  const Text cold = Run(MakeJob(2 * kCanvas));
  EXPECT_EQ(cold.end.costs.cached_tokens, 0);
  const Text warm = Run(MakeJob(2 * kCanvas));
  EXPECT_EQ(warm.end.costs.cached_tokens, kChunk);
  EXPECT_EQ(warm.tokens, cold.tokens);
}

TEST_F(CanvasSchedulerTest, AnAnswerEndsBetweenStepsIfItsReaderLeaves) {
  Start(1);
  auto job = MakeJob(-1);  // waits for its reader before the context is full
  const auto channel = job->channel;
  scheduler_->Submit(std::move(job));
  while (!std::holds_alternative<DrawnCanvas>(channel->Take())) {
  }
  channel->Cancel();
  EXPECT_EQ(Read(*channel).end.reason, StopReason::kCancelled);
  EXPECT_EQ(std::ssize(Run(MakeJob(kCanvas)).tokens), kCanvas) << "its slot and canvas are free";
}

TEST_F(CanvasSchedulerTest, NothingIsWrittenAfterAPromptThatIsOnlyRead) {
  Start(1);
  const Text text = Run(MakeJob(0));
  EXPECT_TRUE(text.tokens.empty());
  EXPECT_EQ(text.end.reason, StopReason::kMaxTokens);
  EXPECT_EQ(scheduler_->stats().denoise.rows.sum, 0);
}

}  // namespace
}  // namespace rullama::testing
