// Several canvases in a sequence, on a random model that denoises: what joins the caches, where
// text ends, and what does not fit.
#include "engine/canvas_generator.h"

#include <gmock/gmock.h>

#include "engine/model_program.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/random/random_support.h"

namespace rullama::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kCanvas = 6;
constexpr uint64_t kSeed = 11;

// Few steps, so that a random model's canvas is finished soon.
EntropyBoundSettings ThreeSteps() { return {.max_steps = 3, .entropy_bound = 4}; }

class CanvasGeneratorTest : public ::testing::Test {
 protected:
  CanvasGeneratorTest() {
    Gemma4Config config = MakeRandomModel(kSeed, {.canvas = true}).config;
    config.canvas.length = kCanvas;
    model_ = MakeRandomModel(kSeed, {.canvas = true}, config);
  }

  std::unique_ptr<Session> Open(int64_t capacity) {
    const EntropyBoundSettings diffusion = ThreeSteps();
    auto program = Must(
        BuildModelProgram(Gemma4Model(model_.config, model_.weights), {.diffusion = &diffusion,
                                                                       .capacity = capacity,
                                                                       .kv_dtype = DType::kF32,
                                                                       .limits = {.max_rows = 8}}));
    weights_ = std::make_unique<RandomWeights>(model_, std::move(program.constants));
    SessionOptions options;
    options.devices = {device_.get()};
    options.limits.max_rows = 8;
    return Must(Session::Create(std::move(program.graphs), *weights_, options));
  }
  [[nodiscard]] CanvasGeneratorOptions Options(int64_t capacity) const {
    return {.capacity = capacity,
            .canvas_length = kCanvas,
            .vocabulary = model_.config.vocabulary,
            .settings = ThreeSteps()};
  }
  // The tokens of all canvases that `max_tokens` takes.
  std::vector<int32_t> Text(CanvasGenerator& generator, int64_t max_tokens,
                            CanvasGenerator::Outcome& outcome) {
    std::vector<int32_t> text;
    CanvasGenerator::Callbacks callbacks;
    callbacks.on_canvas = [&text](std::span<const int32_t> tokens) {
      text.insert(text.end(), tokens.begin(), tokens.end());
      return true;
    };
    outcome = Must(generator.Generate(max_tokens, callbacks));
    return text;
  }

  Backends backends_;
  std::unique_ptr<Device> device_ = backends_.Open("cpu");
  RandomModel model_;
  std::unique_ptr<RandomWeights> weights_;
  std::vector<int32_t> prompt_ = {5, 9, 2, 7, 30, 31, 32, 8, 1, 17};
};

// The second canvas sees the first one exactly as if it had been part of the prompt.
TEST_F(CanvasGeneratorTest, AFinishedCanvasIsLikeAPrompt) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(64));
  ASSERT_TRUE(generator.Feed(prompt_));
  CanvasGenerator::Outcome outcome;
  const auto text = Text(generator, 2 * kCanvas, outcome);
  ASSERT_EQ(std::ssize(text), 2 * kCanvas);
  EXPECT_EQ(outcome.canvases, 2);
  EXPECT_EQ(outcome.steps, 6);
  EXPECT_EQ(outcome.reason, StopReason::kMaxTokens);
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
    CanvasGenerator::Outcome outcome;
    const auto text = Text(generator, kCanvas, outcome);
    if (run == 0) first = text;
    EXPECT_EQ(text, first) << "something of the last run is left";
  }
}

TEST_F(CanvasGeneratorTest, AnEndTokenEndsTheTextInsideACanvas) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator plain(*session, random, Options(64));
  ASSERT_TRUE(plain.Feed(prompt_));
  CanvasGenerator::Outcome outcome;
  const auto text = Text(plain, kCanvas, outcome);

  session->ForgetSlot(0);
  CanvasGeneratorOptions options = Options(64);
  options.end_tokens = {text[2]};
  const auto length = std::ranges::find(text, text[2]) - text.begin();
  PhiloxCanvasRandom again(3);
  CanvasGenerator ending(*session, again, options);
  ASSERT_TRUE(ending.Feed(prompt_));
  const auto cut = Text(ending, -1, outcome);
  EXPECT_THAT(cut, ElementsAreArray(text.begin(), text.begin() + length));
  EXPECT_EQ(outcome.reason, StopReason::kEndOfGeneration);
  EXPECT_EQ(outcome.end_token, text[2]);
  EXPECT_EQ(outcome.canvases, 1);
}

TEST_F(CanvasGeneratorTest, FewerTokensThanACanvas) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(64));
  ASSERT_TRUE(generator.Feed(prompt_));
  CanvasGenerator::Outcome outcome;
  EXPECT_EQ(Text(generator, 2, outcome).size(), 2U);
  EXPECT_EQ(outcome.reason, StopReason::kMaxTokens);
  EXPECT_EQ(Text(generator, 0, outcome).size(), 0U);
  EXPECT_EQ(outcome.canvases, 0);
}

TEST_F(CanvasGeneratorTest, TheContextEndsWithWholeCanvases) {
  const int64_t capacity = std::ssize(prompt_) + 2 * kCanvas + kCanvas / 2;
  auto session = Open(capacity);
  PhiloxCanvasRandom random(3);
  CanvasGenerator generator(*session, random, Options(capacity));
  ASSERT_TRUE(generator.Feed(prompt_));
  CanvasGenerator::Outcome outcome;
  EXPECT_EQ(std::ssize(Text(generator, -1, outcome)), 2 * kCanvas);
  EXPECT_EQ(outcome.reason, StopReason::kContextFull);
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

TEST_F(CanvasGeneratorTest, ACancelledPromptSaysHowFarItCame) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  std::atomic<bool> cancelled = false;
  CanvasGeneratorOptions options = Options(64);
  options.cancelled = &cancelled;
  options.on_prefill = [&cancelled](int64_t, int64_t) { cancelled = true; };
  CanvasGenerator generator(*session, random, options);
  const Status fed = generator.Feed(prompt_);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().id, "run.cancelled");
  EXPECT_EQ(fed.error().message, "stopped after 8 of 10 tokens");
  EXPECT_EQ(generator.position(), 8);
}

TEST_F(CanvasGeneratorTest, ACallbackOrACancellationStopsBetweenSteps) {
  auto session = Open(64);
  PhiloxCanvasRandom random(3);
  std::atomic<bool> cancelled = false;
  CanvasGeneratorOptions options = Options(64);
  options.cancelled = &cancelled;
  CanvasGenerator generator(*session, random, options);
  ASSERT_TRUE(generator.Feed(prompt_));
  CanvasGenerator::Callbacks callbacks;
  callbacks.on_step = [](int64_t, const CanvasStep& step) { return step.index < 1; };
  auto outcome = Must(generator.Generate(-1, callbacks));
  EXPECT_EQ(outcome.reason, StopReason::kStopped);
  EXPECT_EQ(outcome.steps, 2);
  EXPECT_EQ(outcome.tokens, 0);

  callbacks.on_step = [&cancelled](int64_t, const CanvasStep&) { return cancelled = true; };
  outcome = Must(generator.Generate(-1, callbacks));
  EXPECT_EQ(outcome.reason, StopReason::kCancelled);
  EXPECT_EQ(outcome.steps, 1);
}

}  // namespace
}  // namespace rullama::testing
