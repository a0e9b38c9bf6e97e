// Tests of the entropy-bound sampler without a model: its ops run in the float64 interpreter on
// invented logits.
#include "samplers/entropy_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Logits of a canvas: rows of `vocabulary` numbers, from the request.
using LogitsOf = std::function<std::vector<double>(const CanvasRequest&)>;

class InterpretedModel final : public CanvasModel {
 public:
  InterpretedModel(int64_t rows, int64_t vocabulary, float bound, LogitsOf logits)
      : rows_(rows), vocabulary_(vocabulary), logits_(std::move(logits)) {
    Graph empty;
    empty.name = "sampler";
    empty.max_t = rows;
    empty.max_r = rows;
    GraphBuilder builder(std::move(empty));
    const ValueId input = builder.Input("logits", {DType::kF32, {Dim::T(), vocabulary}});
    AppendEntropyBound(builder, input, bound);
    auto graph = std::move(builder).Finish();
    EXPECT_TRUE(graph) << graph.error().ToString();
    auto interpreter = Interpreter::Create(*std::move(graph), nullptr);
    EXPECT_TRUE(interpreter) << interpreter.error().ToString();
    interpreter_.emplace(*std::move(interpreter));
  }

  Status Denoise(const CanvasRequest& request, CanvasReply& reply) override {
    requests.push_back(request.self_conditioned);
    const auto floats = [](std::span<const float> values) {
      return std::vector<double>(values.begin(), values.end());
    };
    const std::vector<int32_t> noise(request.noise.begin(), request.noise.end());
    RL_RETURN_IF_ERROR(
        interpreter_->Bind("logits", Tensor::F32({rows_, vocabulary_}, logits_(request))));
    RL_RETURN_IF_ERROR(interpreter_->Bind(canvas_names::kInverseTemperature,
                                          Tensor::F32({1}, {request.inverse_temperature})));
    RL_RETURN_IF_ERROR(interpreter_->Bind(canvas_names::kUniforms,
                                          Tensor::F32({rows_}, floats(request.uniforms))));
    RL_RETURN_IF_ERROR(interpreter_->Bind(canvas_names::kNoise, Tensor::I32({rows_}, noise)));
    RL_RETURN_IF_ERROR(interpreter_->Run({.t = rows_, .r = 1}));
    const auto integers = [&](std::string_view name) {
      const Tensor& tensor = *interpreter_->GetOutput(name);
      return std::vector<int32_t>(tensor.i.begin(), tensor.i.end());
    };
    const auto reals = [&](std::string_view name) {
      const Tensor& tensor = *interpreter_->GetOutput(name);
      return std::vector<float>(tensor.f.begin(), tensor.f.end());
    };
    reply = {.best = integers(canvas_names::kBest),
             .sampled = integers(canvas_names::kSampled),
             .next = integers(canvas_names::kNext),
             .entropy = reals(canvas_names::kEntropy),
             .accepted = reals(canvas_names::kAccepted)};
    return OkStatus();
  }

  std::vector<bool> requests;  // self_conditioned of each

 private:
  int64_t rows_, vocabulary_;
  LogitsOf logits_;
  std::optional<Interpreter> interpreter_;
};

LogitsOf Constant(std::vector<double> logits) {
  return [logits = std::move(logits)](const CanvasRequest&) { return logits; };
}

std::vector<double> OneHot(const std::vector<int32_t>& targets, int64_t vocabulary, double height) {
  std::vector<double> logits(targets.size() * static_cast<size_t>(vocabulary), 0.0);
  for (size_t row = 0; row < targets.size(); ++row) {
    logits[row * static_cast<size_t>(vocabulary) + static_cast<size_t>(targets[row])] = height;
  }
  return logits;
}

XorShiftCanvasRandom XorShift(uint64_t seed) { return *XorShiftCanvasRandom::Create(seed); }

EntropyBoundLoop Begin(const EntropyBoundSettings& settings, int64_t vocabulary, int64_t rows,
                       CanvasRandom& random) {
  auto loop = EntropyBoundLoop::Begin(settings, vocabulary, rows, 0, random);
  EXPECT_TRUE(loop) << loop.error().ToString();
  return *std::move(loop);
}

TEST(EntropyBoundTest, SureLogitsConvergeAtOnce) {
  const std::vector<int32_t> target = {3, 1, 4, 1, 5, 9, 2, 6};
  const EntropyBoundSettings settings;
  InterpretedModel model(8, 11, settings.entropy_bound, Constant(OneHot(target, 11, 50)));
  auto random = XorShift(0x5EED);
  auto loop = Begin(settings, 11, 8, random);
  ASSERT_TRUE(loop.Run(model, {}));
  EXPECT_EQ(loop.best(), target);
  EXPECT_LE(model.requests.size(), 4U);
  EXPECT_FALSE(model.requests.front()) << "the first step has nothing to be conditioned on";
  for (size_t i = 1; i < model.requests.size(); ++i) EXPECT_TRUE(model.requests[i]);
}

// Logits that depend on the canvas, so that every step differs.
std::vector<double> Restless(const CanvasRequest& request) {
  std::vector<double> logits;
  for (const int32_t token : request.canvas) {
    for (int v = 0; v < 13; ++v) logits.push_back(std::sin(token * 1.7 + v) * 2);
  }
  return logits;
}

TEST(EntropyBoundTest, StepByStepEqualsTheDriver) {
  EntropyBoundSettings settings;
  settings.max_steps = 12;
  std::vector<std::vector<int32_t>> canvases[2];
  std::vector<int32_t> best[2];
  for (const int manual : {0, 1}) {
    InterpretedModel model(6, 13, settings.entropy_bound, Restless);
    auto random = XorShift(0xABCD);
    auto loop = Begin(settings, 13, 6, random);
    const auto record = [&](const CanvasStep& step) {
      canvases[manual].emplace_back(step.canvas.begin(), step.canvas.end());
      EXPECT_EQ(step.index, static_cast<int64_t>(canvases[manual].size()) - 1);
      return true;
    };
    if (manual == 0) {
      ASSERT_TRUE(loop.Run(model, record));
    } else {
      while (!loop.finished()) {
        const auto step = loop.Step(model);
        ASSERT_TRUE(step) << step.error().ToString();
        record(*step);
      }
    }
    best[manual] = loop.best();
  }
  EXPECT_EQ(canvases[0], canvases[1]);
  EXPECT_EQ(best[0], best[1]);
  EXPECT_GT(canvases[0].size(), 1U);
}

TEST(EntropyBoundTest, UnsureLogitsTakeEveryStep) {
  EntropyBoundSettings settings;
  settings.max_steps = 5;
  InterpretedModel model(4, 7, settings.entropy_bound, Constant(std::vector<double>(28, 0.0)));
  auto random = XorShift(1);
  auto loop = Begin(settings, 7, 4, random);
  ASSERT_TRUE(loop.Run(model, {}));
  EXPECT_EQ(model.requests.size(), 5U);
  EXPECT_EQ(loop.steps_taken(), 5);
  EXPECT_THAT(loop.best(), Each(0)) << "ties go to the lowest token";
}

TEST(EntropyBoundTest, AcceptsUpToTheBudgetOfEarlierEntropies) {
  EntropyBoundSettings settings;
  settings.max_steps = 1;
  std::vector<double> logits;
  for (const double p : {0.999999, 0.6, 0.99999, 0.55}) {
    // The temperature of the only step sharpens the distribution again.
    logits.push_back(std::log(p) * settings.t_max);
    logits.push_back(std::log(1 - p) * settings.t_max);
  }
  InterpretedModel model(4, 2, settings.entropy_bound, Constant(logits));
  auto random = XorShift(7);
  auto loop = Begin(settings, 2, 4, random);
  const auto step = loop.Step(model);
  ASSERT_TRUE(step) << step.error().ToString();
  EXPECT_EQ(step->accepted, 3);
  EXPECT_THAT(step->reply->accepted, ElementsAre(1, 1, 1, 0));
  EXPECT_TRUE(loop.finished());
}

TEST(EntropyBoundTest, EqualEntropiesAreAcceptedInRowOrder) {
  EntropyBoundSettings settings;
  settings.max_steps = 2;
  settings.entropy_bound = 1.5F;  // ln 2 twice
  InterpretedModel model(4, 2, settings.entropy_bound, Constant(std::vector<double>(8, 0.0)));
  auto random = XorShift(3);
  auto loop = Begin(settings, 2, 4, random);
  const auto step = loop.Step(model);
  ASSERT_TRUE(step);
  EXPECT_THAT(step->reply->accepted, ElementsAre(1, 1, 1, 0));
  EXPECT_NEAR(step->mean_entropy, std::log(2.0), 1e-6);
}

TEST(EntropyBoundTest, ZeroBudgetStillAcceptsOneRow) {
  EntropyBoundSettings settings;
  settings.entropy_bound = 0;
  InterpretedModel model(3, 2, 0, Constant(std::vector<double>(6, 0.0)));
  auto random = XorShift(3);
  auto loop = Begin(settings, 2, 3, random);
  const auto step = loop.Step(model);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->accepted, 1);
}

TEST(EntropyBoundTest, TemperatureFallsAndMayStandStill) {
  EntropyBoundSettings settings;
  settings.max_steps = 4;
  for (const float t_max : {0.8F, 0.4F}) {
    settings.t_max = t_max;
    InterpretedModel model(2, 3, settings.entropy_bound, Constant(std::vector<double>(6, 0.0)));
    auto random = XorShift(3);
    auto loop = Begin(settings, 3, 2, random);
    std::vector<float> temperatures;
    ASSERT_TRUE(loop.Run(model, [&](const CanvasStep& step) {
      temperatures.push_back(step.temperature);
      return true;
    }));
    ASSERT_EQ(temperatures.size(), 4U);
    EXPECT_FLOAT_EQ(temperatures.front(), t_max);
    EXPECT_FLOAT_EQ(temperatures.back(), 0.4F + (t_max - 0.4F) / 4);
  }
}

TEST(EntropyBoundTest, CallbackStops) {
  const EntropyBoundSettings settings;
  InterpretedModel model(2, 3, settings.entropy_bound, Constant(std::vector<double>(6, 0.0)));
  auto random = XorShift(3);
  auto loop = Begin(settings, 3, 2, random);
  ASSERT_TRUE(loop.Run(model, [](const CanvasStep& step) { return step.index < 2; }));
  EXPECT_EQ(model.requests.size(), 3U);
  EXPECT_FALSE(loop.finished());
}

TEST(EntropyBoundTest, NanLogitsAreAnError) {
  const EntropyBoundSettings settings;
  std::vector<double> logits(6, 0.0);
  logits[4] = std::numeric_limits<double>::quiet_NaN();
  InterpretedModel model(2, 3, settings.entropy_bound, Constant(logits));
  auto random = XorShift(3);
  auto loop = Begin(settings, 3, 2, random);
  const auto step = loop.Step(model);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().id, "backend.nan");
  EXPECT_EQ(step.error().kind, ErrorKind::kRuntime);
  EXPECT_THAT(step.error().message, HasSubstr("row 1 of the canvas"));
}

TEST(EntropyBoundTest, SettingsOutOfRange) {
  const auto error_id = [](auto change) {
    EntropyBoundSettings settings;
    change(settings);
    const Status status = settings.Validate();
    return status ? std::string("none") : status.error().id;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_id([](auto&) {}), "none");
  EXPECT_EQ(error_id([](auto& s) { s.max_steps = 0; }), "sampler.max_steps");
  EXPECT_EQ(error_id([](auto& s) { s.t_min = 0; }), "sampler.t_min");
  EXPECT_EQ(error_id([](auto& s) { s.t_max = 0.3F; }), "sampler.t_max");
  EXPECT_EQ(error_id([&](auto& s) { s.t_max = nan; }), "sampler.t_max");
  EXPECT_EQ(error_id([&](auto& s) { s.entropy_bound = nan; }), "sampler.entropy_bound");
  EXPECT_EQ(error_id([](auto& s) { s.stability_threshold = -1; }), "sampler.stability_threshold");
  EXPECT_EQ(error_id([](auto& s) { s.confidence_threshold = -1; }), "sampler.confidence_threshold");
}

// ---- random numbers -----------------------------------------------------------------------------

TEST(CanvasRandomTest, XorShiftFollowsThePublishedVectors) {
  std::vector<float> u(5);
  std::vector<int32_t> none;
  auto random = XorShift(42);
  ASSERT_TRUE(random.Draw(u, none));
  EXPECT_EQ(u[0], 0);
  EXPECT_NEAR(u[1], 0.62516272, 1e-7);
  EXPECT_NEAR(u[2], 0.54326206, 1e-7);
  EXPECT_NEAR(u[3], 0.15715837, 1e-7);
  EXPECT_NEAR(u[4], 0.30690569, 1e-7);
  std::vector<int32_t> tokens(6);
  random = XorShift(42);
  ASSERT_TRUE(random.Begin(0, 262144, tokens));
  EXPECT_THAT(tokens, ElementsAre(0, 163882, 142412, 41198, 80453, 143455));
  EXPECT_EQ(random.state(), 0x8c17f2b433701823U);
  tokens.resize(8);
  random = XorShift(0x5EED);
  ASSERT_TRUE(random.Begin(0, 11, tokens));
  EXPECT_THAT(tokens, ElementsAre(0, 8, 6, 9, 10, 4, 7, 10));
  EXPECT_EQ(XorShiftCanvasRandom::Create(0).error().id, "sampler.seed");
}

TEST(CanvasRandomTest, PhiloxDependsOnPositionAndStepAlone) {
  std::vector<int32_t> whole(8), part(4);
  std::vector<float> u(8), v(4);
  std::vector<int32_t> noise(8), other(4);
  PhiloxCanvasRandom a(99), b(99);
  ASSERT_TRUE(a.Begin(16, 1000, whole));
  ASSERT_TRUE(b.Begin(20, 1000, part));
  ASSERT_TRUE(a.Draw(u, noise));
  ASSERT_TRUE(b.Draw(v, other));
  EXPECT_EQ(part, std::vector<int32_t>(whole.begin() + 4, whole.end()));
  EXPECT_EQ(v, std::vector<float>(u.begin() + 4, u.end()));
  EXPECT_EQ(other, std::vector<int32_t>(noise.begin() + 4, noise.end()));
  const std::vector<float> first = u;
  ASSERT_TRUE(a.Draw(u, noise));
  EXPECT_NE(u, first);
  for (const int32_t token : noise) EXPECT_TRUE(token >= 0 && token < 1000);
}

TEST(CanvasRandomTest, RecordingIsCheckedAndReplayed) {
  RecordedCanvasRandom random(
      CanvasRecording{.initial = {1, 2}, .steps = {{.uniforms = {0.5F, 0.25F}, .tokens = {3, 4}}}});
  std::vector<int32_t> tokens(2);
  std::vector<float> uniforms(2);
  ASSERT_TRUE(random.Begin(0, 5, tokens));
  EXPECT_THAT(tokens, ElementsAre(1, 2));
  ASSERT_TRUE(random.Draw(uniforms, tokens));
  EXPECT_THAT(uniforms, ElementsAre(0.5F, 0.25F));
  EXPECT_THAT(tokens, ElementsAre(3, 4));
  EXPECT_EQ(random.Draw(uniforms, tokens).error().id, "sampler.random");
  EXPECT_EQ(random.Begin(0, 2, tokens).error().id, "sampler.random");
  std::vector<int32_t> three(3);
  EXPECT_EQ(random.Begin(0, 5, three).error().id, "sampler.random");
}

}  // namespace
}  // namespace rullama
