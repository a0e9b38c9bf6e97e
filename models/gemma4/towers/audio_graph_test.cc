// The graph of the audio tower on the float64 reference, against the goldens of an independent
// implementation.
#include "models/gemma4/towers/audio_graph.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"
#include "media/sound.h"
#include "models/gemma4/towers/audio_tower.h"
#include "tests/golden/golden_support.h"

namespace rullama::gemma4 {
namespace {

using golden::ReadFloats;
using golden::RelativeL2;

const std::filesystem::path kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::filesystem::path kGoldens = kShared / "goldens/tiny-media";
constexpr int64_t kWidthOfText = 256;
constexpr int64_t kMaxTokens = 750;  // of 30 s
// Relative L2 between the float64 reference and float32 goldens, from the README of the goldens
// (reached: 2e-6).
constexpr double kTolerance = 5e-6;
// The same where the golden's features have been computed in float32.
constexpr double kMelTolerance = 2e-5;

class AudioRun {
 public:
  explicit AudioRun(const std::string& name)
      : file_(Must(GgufFile::Open(kShared / "models" / (name + ".gguf")))),
        tower_(*Must(ReadAudioTower(file_, kWidthOfText))),
        built_(Must(BuildAudioGraph(tower_, kMaxTokens))),
        interpreter_(Must(reference::Interpreter::Create(
            built_.graph, [this](std::string_view source, int64_t, const TensorType& type) {
              return Constant(source, type);
            }))) {}

  [[nodiscard]] const AudioConfig& config() const { return tower_.config; }

  void Run(const TowerStep& step) {
    for (const TowerStep::Input& input : step.inputs) {
      const TensorType& type = built_.graph.type(built_.graph.Find(input.name));
      const auto& values = std::get<std::vector<float>>(input.values);
      const Status bound = interpreter_.Bind(
          input.name, reference::Tensor::F32(reference::DimsAt(type, {.t = step.tokens, .r = 1}),
                                             {values.begin(), values.end()}));
      ASSERT_TRUE(bound) << bound.error().ToString();
    }
    const Status run = interpreter_.Run({.t = step.tokens, .r = 1});
    ASSERT_TRUE(run) << run.error().ToString();
  }

  void ExpectSoft(const std::string& golden, double tolerance) const {
    const reference::Tensor* soft = interpreter_.GetOutput("soft");
    ASSERT_NE(soft, nullptr);
    EXPECT_LE(RelativeL2(soft->f, ReadFloats(kGoldens / golden)), tolerance) << golden;
  }

  // Compares the values after the convolutions and after each block.
  void ExpectTrace(const std::string& golden) const {
    const std::vector<float> trace = ReadFloats(kGoldens / golden);
    const size_t values = static_cast<size_t>(config().layers) + 1;
    ASSERT_EQ(trace.size() % values, 0u);
    const size_t size = trace.size() / values;
    for (size_t i = 0; i < values; ++i) {
      const std::string name = i == 0 ? "embd" : fmt::format("blk.{}.out", i - 1);
      const reference::Tensor* value = interpreter_.Get(name);
      ASSERT_NE(value, nullptr) << name;
      EXPECT_LE(RelativeL2(value->f, std::span(trace).subspan(i * size, size)), kTolerance) << name;
    }
  }

 private:
  // A tensor of the file, whose dimensions may be merged, or a computed constant.
  Result<reference::Tensor> Constant(std::string_view source, const TensorType& type) const {
    reference::Tensor tensor{
        .dtype = type.dtype, .dims = reference::DimsAt(type, {}), .f = {}, .i = {}, .packed = {}};
    for (const SyntheticConstant& constant : built_.constants) {
      if (constant.name == source) tensor.packed = constant.bytes;
    }
    if (const TensorInfo* info = file_.FindTensor(source)) tensor.packed = file_.data(*info);
    return tensor;
  }

  GgufFile file_;
  AudioTower tower_;
  TowerGraph built_;
  reference::Interpreter interpreter_;
};

// 136 frames, a whole number of tokens.
TEST(AudioGraphTest, ConformerLayerByLayer) {
  AudioRun tower("tiny-e2b-mmproj-f16");
  const TowerStep inputs =
      MelInputs(tower.config(), ReadFloats(kGoldens / "e2b.speech-16k-mono.mel.f32"));
  EXPECT_EQ(inputs.tokens, 34);
  tower.Run(inputs);
  tower.ExpectTrace("e2b.speech-16k-mono.trace.f32");
  tower.ExpectSoft("e2b.speech-16k-mono.soft.f32", kTolerance);
}

// 89 frames: three of the last token's, and an odd number of rows between the convolutions.
TEST(AudioGraphTest, PaddedFramesDoNotCount) {
  AudioRun tower("tiny-e2b-ollama-Q4_K_M");
  const std::vector<float> samples = ReadFloats(kGoldens / "ollama.mix-44k-stereo.16k.f32");
  EXPECT_EQ(AudioTokens(tower.config(), samples.size()), 23);
  tower.Run(SoundInputs(tower.config(), samples));
  tower.ExpectSoft("ollama.mix-44k-stereo.soft.f32", kMelTolerance);
}

TEST(AudioGraphTest, UnifiedModelProjectsSamples) {
  const std::string bytes = ReadWholeFile(kGoldens / "speech-16k-mono.wav");
  const std::vector<float> samples = Must(DecodeSound(std::as_bytes(std::span(bytes))));
  AudioRun tower("tiny-unified-mmproj-f16");
  EXPECT_EQ(AudioTokens(tower.config(), samples.size()), 35);
  tower.Run(SoundInputs(tower.config(), samples));
  tower.ExpectSoft("unified.speech-16k-mono.soft.f32", kTolerance);
}

TEST(AudioGraphTest, TokensOfSamples) {
  const AudioConfig conformer{.inputs = 128};
  EXPECT_EQ(AudioTokens(conformer, kMinSoundSamples - 1), 0);
  EXPECT_EQ(AudioTokens(conformer, kMinSoundSamples), 1);
  EXPECT_EQ(AudioTokens(conformer, kMaxSoundPiece), kMaxTokens);
  const AudioConfig unified{.unified = true, .inputs = 640};
  EXPECT_EQ(AudioTokens(unified, 640), 1);
  EXPECT_EQ(AudioTokens(unified, 641), 2);
}

}  // namespace
}  // namespace rullama::gemma4
