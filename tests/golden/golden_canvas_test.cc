// DiffusionGemma against denoising runs that an independent implementation (transformers, float32)
// recorded: logits of single steps, whole runs step by step with the recorded randomness, and the
// same texts from a seed alone. Needs ../shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/canvas_generator.h"
#include "engine/model_program.h"
#include "engine/session_canvas.h"
#include "models/gemma4/gemma4_model.h"
#include "tests/golden/session_support.h"

namespace rullama {
namespace {

using golden::Backend;
using golden::Loaded;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";
constexpr int64_t kCapacity = 256;

// Relative L2 of a step's logits: float64 against the goldens' float32; f16 KV cache and float32.
double Bound(const Backend& backend) { return backend.name == "reference" ? 2e-5 : 2e-3; }

struct Opened {
  std::unique_ptr<Loaded> loaded;
  ProgramGraphs graphs;
};

Opened Load(const Backend& backend, GraphOutputs outputs, DType kv_dtype) {
  auto loaded = golden::Open(backend, kShared + "/models/tiny-diffusion-f16.gguf");
  const EntropyBoundSettings diffusion;
  auto program = Must(
      BuildModelProgram(Gemma4Model(loaded->config, loaded->tensors), {.outputs = outputs,
                                                                       .diffusion = &diffusion,
                                                                       .capacity = kCapacity,
                                                                       .kv_dtype = kv_dtype,
                                                                       .limits = {.max_t = 64}}));
  loaded->AddConstants(std::move(program.constants));
  loaded->session =
      Must(Session::Create(std::move(program.graphs), *loaded->weights, loaded->Options(64)));
  return {std::move(loaded), program.handles};
}

std::vector<nlohmann::json> Cases() {
  std::ifstream file(kShared + "/goldens/tiny-diffusion/golden.json");
  return nlohmann::json::parse(file).at("cases");
}

std::vector<float> ReadLogits(const std::string& name) {
  std::ifstream file(kShared + "/goldens/tiny-diffusion/" + name, std::ios::binary | std::ios::ate);
  std::vector<float> logits(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
  return logits;
}

std::vector<int32_t> Ids(const nlohmann::json& list) { return list.get<std::vector<int32_t>>(); }

CanvasGeneratorOptions OptionsOf(const Opened& opened) {
  return {.graphs = CanvasGraphs(opened.graphs),
          .capacity = kCapacity,
          .canvas_length = opened.loaded->config.canvas.length,
          .vocabulary = opened.loaded->config.vocabulary};
}

void FeedContext(const Opened& opened, const nlohmann::json& golden) {
  PhiloxCanvasRandom unused(0);
  CanvasGenerator generator(*opened.loaded->session, unused, OptionsOf(opened));
  const Status fed = generator.Feed(Ids(golden.at("context")));
  ASSERT_TRUE(fed) << fed.error().ToString();
}

template <typename T>
void Set(Session& session, std::string_view name, const std::vector<T>& values) {
  const Status set = session.SetInput(name, std::as_bytes(std::span(values)));
  ASSERT_TRUE(set) << set.error().ToString();
}

class GoldenCanvas : public ::testing::TestWithParam<Backend> {};

TEST_P(GoldenCanvas, LogitsOfSingleSteps) {
  for (const auto& golden : Cases()) {
    SCOPED_TRACE(golden.at("name"));
    const auto opened = Load(GetParam(), GraphOutputs::kAllLogits, Loaded::KvDtypeOf(GetParam()));
    Session& session = *opened.loaded->session;
    FeedContext(opened, golden);
    ASSERT_TRUE(SetCanvasRows(session, opened.loaded->config.canvas.length));
    const auto run = [&session](const std::vector<int32_t>& canvas, GraphHandle graph) {
      return session.Run(
          StepRows::Consecutive(canvas, session.past(0), /*slot=*/0, DemandMode::kAllRows, graph));
    };
    std::vector<float> logits;
    for (const size_t step : {0U, 1U}) {
      const auto canvas = Ids(golden.at("trace")[step].at("canvas_in"));
      if (step > 0) {
        const auto temperature = golden.at("trace")[step - 1].at("t").get<float>();
        Set(session, canvas_names::kLogits, ReadLogits(golden.at("logits")[step - 1]));
        Set(session, canvas_names::kInverseTemperature, std::vector<float>{1 / temperature});
        ASSERT_TRUE(run(canvas, *opened.graphs.condition));
      }
      const Status ran = run(canvas, *opened.graphs.denoise);
      ASSERT_TRUE(ran) << ran.error().ToString();
      const auto expected = ReadLogits(golden.at("logits")[step]);
      logits.resize(expected.size());
      ASSERT_TRUE(session.ReadOutput("logits", std::as_writable_bytes(std::span(logits))));
      const double error = golden::RelativeL2(logits, expected);
      std::printf("%s %s %s step %zu: relative L2 %.3g\n", GetParam().name.c_str(),
                  GetParam().isa.c_str(), golden.at("name").get<std::string>().c_str(), step,
                  error);
      EXPECT_LE(error, Bound(GetParam())) << "step " << step;
    }
  }
}

CanvasRecording Recording(const nlohmann::json& trace) {
  CanvasRecording recording;
  recording.initial = Ids(trace[0].at("canvas_in"));
  for (const auto& step : trace) {
    recording.steps.push_back({step.at("u").get<std::vector<float>>(), Ids(step.at("renoise"))});
  }
  return recording;
}

void CheckStep(const CanvasStep& step, const nlohmann::json& golden) {
  SCOPED_TRACE("step " + std::to_string(step.index));
  const CanvasReply& reply = *step.reply;
  EXPECT_FLOAT_EQ(step.temperature, golden.at("t").get<float>());
  EXPECT_EQ(std::vector(step.canvas.begin(), step.canvas.end()), Ids(golden.at("canvas_in")));
  EXPECT_EQ(reply.best, Ids(golden.at("argmax")));
  EXPECT_EQ(reply.sampled, Ids(golden.at("sampled")));
  EXPECT_EQ(reply.next, Ids(golden.at("canvas_out")));
  const auto entropy = golden.at("entropy").get<std::vector<double>>();
  ASSERT_EQ(reply.entropy.size(), entropy.size());
  for (size_t row = 0; row < entropy.size(); ++row) {
    // Entropies are at most 7.6 nats; the tolerance is for float32 sums over 2,048 tokens.
    EXPECT_NEAR(reply.entropy[row], entropy[row], 1e-4) << "row " << row;
    EXPECT_EQ(reply.accepted[row] != 0, golden.at("accepted")[row].get<int>() != 0)
        << "row " << row;
  }
  EXPECT_NEAR(step.mean_entropy, golden.at("mean_entropy").get<double>(), 1e-4);
}

// The cache is f32, as in the recording: f16 moves entropies by 4e-3, and with them a draw that
// falls on the edge between two tokens.
TEST_P(GoldenCanvas, RecordedRunsStepByStep) {
  for (const auto& golden : Cases()) {
    SCOPED_TRACE(golden.at("name"));
    const auto opened = Load(GetParam(), GraphOutputs::kText, DType::kF32);
    const auto& trace = golden.at("trace");
    RecordedCanvasRandom random(Recording(trace));
    CanvasGenerator generator(*opened.loaded->session, random, OptionsOf(opened));
    ASSERT_TRUE(generator.Feed(Ids(golden.at("context"))));
    const auto canvas = generator.Denoise([&](const CanvasStep& step) {
      CheckStep(step, trace[static_cast<size_t>(step.index)]);
      return true;
    });
    ASSERT_TRUE(canvas) << canvas.error().ToString();
    EXPECT_TRUE(canvas->finished);
    EXPECT_EQ(canvas->steps, std::ssize(trace));
    EXPECT_EQ(canvas->tokens, Ids(golden.at("final")));
  }
}

TEST_P(GoldenCanvas, SeedsAloneGiveTheSameTexts) {
  for (const auto& golden : Cases()) {
    SCOPED_TRACE(golden.at("name"));
    const auto opened = Load(GetParam(), GraphOutputs::kText, Loaded::KvDtypeOf(GetParam()));
    auto random = Must(XorShiftCanvasRandom::Create(golden.at("seed").get<uint64_t>()));
    CanvasGenerator generator(*opened.loaded->session, random, OptionsOf(opened));
    ASSERT_TRUE(generator.Feed(Ids(golden.at("context"))));
    const auto canvas = generator.Denoise({});
    ASSERT_TRUE(canvas) << canvas.error().ToString();
    EXPECT_EQ(canvas->tokens, Ids(golden.at("final")));
  }
}

std::string NameOf(const ::testing::TestParamInfo<Backend>& info) {
  std::string name = info.param.name + info.param.isa;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenCanvas, ::testing::ValuesIn(golden::Backends()), NameOf);
INSTANTIATE_TEST_SUITE_P(Gpus, GoldenCanvas, ::testing::ValuesIn(golden::Precise(golden::Gpus())),
                         NameOf);

}  // namespace
}  // namespace rullama
