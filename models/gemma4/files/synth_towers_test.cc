#include "models/gemma4/files/synth_towers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/config/layered_config.h"
#include "core/reference/interpreter.h"
#include "models/common/towers.h"
#include "models/gemma4/towers/tower_cost.h"
#include "models/gemma4/towers/towers.h"

namespace rullama::gemma4 {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Truly;

TowerShapes ShapesOf(const std::string& name) {
  const Config config = Must(LoadConfigFile(RULLAMA_SOURCE_DIR "/configs/" + name + ".yaml"));
  return Must(TowersFromArchitecture(config.architecture));
}

// The towers of the published models, as the specification has them: megabytes of matrices of 16
// bits, and of position tables of f32.
TEST(TowerShapes, ConfigsHaveThePublishedTowers) {
  const struct {
    const char* config;
    double picture_megabytes;
    double position_megabytes;
    double sound_megabytes;  // 0: no tower
    double gflop;            // of a picture of 280 tokens
  } rows[] = {{"e2b", 303, 63, 590, 1080},
              {"e4b", 303, 63, 590, 1080},
              {"12b", 82, 34.4, 4.9, 23},
              {"26b-a4b", 1090, 94, 0, 3540},
              {"31b", 1090, 94, 0, 3540}};
  const auto megabytes = [](const std::vector<TensorSpec>& specs, bool positions) {
    double values = 0;
    for (const TensorSpec& spec : specs) {
      if ((spec.name == "v.position_embd.weight") != positions) continue;
      double product = 1;
      for (const int64_t dim : spec.dims) product *= static_cast<double>(dim);
      values += product;
    }
    return values * (positions ? 4 : 2) / 1e6;
  };
  for (const auto& row : rows) {
    const TowerShapes shapes = ShapesOf(row.config);
    ASSERT_TRUE(shapes.vision.has_value());
    const auto vision = ExpectedTensors(*shapes.vision);
    EXPECT_NEAR(megabytes(vision, false), row.picture_megabytes, 0.02 * row.picture_megabytes)
        << row.config;
    EXPECT_NEAR(megabytes(vision, true), row.position_megabytes, 0.02 * row.position_megabytes)
        << row.config;
    EXPECT_NEAR(2 * MultiplyAdds(*shapes.vision, 280) / 1e9, row.gflop, 0.02 * row.gflop);
    ASSERT_EQ(shapes.audio.has_value(), row.sound_megabytes > 0) << row.config;
    if (!shapes.audio) continue;
    EXPECT_NEAR(megabytes(ExpectedTensors(*shapes.audio), false), row.sound_megabytes,
                0.05 * row.sound_megabytes)
        << row.config;
  }
}

TEST(TowerShapes, IncompleteOrImpossibleNumbersAreErrors) {
  ArchitectureConfig a;
  a.width = 64;
  const auto error = [&a] {
    const auto shapes = TowersFromArchitecture(a);
    return shapes ? Error() : shapes.error();
  };
  EXPECT_EQ(error().id, "config.missing_key");
  EXPECT_THAT(error().message, HasSubstr("architecture.vision.layers"));
  a.vision = {.layers = 1, .width = 30};
  EXPECT_EQ(error().id, "config.missing_key");
  EXPECT_THAT(error().message, HasSubstr("architecture.vision.heads, architecture.vision.ffn"));
  a.vision.heads = 2;
  a.vision.ffn = 48;
  EXPECT_EQ(error().id, "model.architecture");
  EXPECT_EQ(error().kind, ErrorKind::kUsage);
  EXPECT_THAT(error().message, HasSubstr("multiple of 4 dimensions"));
  a.vision = {};
  a.audio = {.layers = 1, .width = 33, .heads = 3, .ffn = 48};
  EXPECT_THAT(error().message, HasSubstr("the audio tower has width 33"));
}

ArchitectureConfig SmallEncoders() {
  ArchitectureConfig a;
  a.width = 32;
  a.vision = {.layers = 2,
              .width = 24,
              .heads = 2,
              .ffn = 40,
              .patch = 4,
              .positions = 64,
              .standardize = true,
              .clipped = true};
  a.audio = {.layers = 2,
             .width = 16,
             .heads = 2,
             .ffn = 24,
             .output = 20,
             .conv_channels = FirstSecond{4, 2},
             .kernel = 3,
             .clipped = true};
  return a;
}

ArchitectureConfig SmallUnified() {
  ArchitectureConfig a;
  a.width = 32;
  a.vision = {.layers = 0, .width = 24, .patch = 4, .pool = 2, .positions = 64};
  a.audio.layers = 0;
  return a;
}

GgufFile Write(const ArchitectureConfig& architecture, const char* mix, const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  const TowerShapes shapes = Must(TowersFromArchitecture(architecture));
  const Status status =
      WriteSyntheticTowers(shapes, {.mix = Must(FindQuantMix(mix)), .seed = 5, .name = "x"}, path);
  EXPECT_TRUE(status) << status.error().ToString();
  return Must(GgufFile::Open(path));
}

TEST(SynthTowers, FileHasExactlyTheTensorsOfItsTowers) {
  const GgufFile file = Write(SmallEncoders(), "Q4_K_M", "encoders.gguf");
  EXPECT_EQ(Must(file.GetString("general.type")), "mmproj");
  EXPECT_EQ(Must(file.GetU32("general.file_type")), 1u);  // F16
  const auto vision = Must(ReadVisionTower(file, 32));
  const auto audio = Must(ReadAudioTower(file, 32));
  ASSERT_TRUE(vision && audio);
  EXPECT_EQ(vision->bounds.size(), 2u * 7);
  EXPECT_EQ(audio->bounds.size(), 2u * 10);
  EXPECT_TRUE(vision->config.standardize);
  const size_t bounds = 4 * (vision->bounds.size() + audio->bounds.size());
  EXPECT_EQ(file.tensors().size(),
            vision->weights.bindings().size() + audio->weights.bindings().size() + bounds);
  const auto dtype = [&file](const char* name) { return file.FindTensor(name)->dtype; };
  EXPECT_EQ(dtype("v.patch_embd.weight"), DType::kF16);
  EXPECT_EQ(dtype("v.position_embd.weight"), DType::kF32);
  EXPECT_EQ(dtype("a.blk.1.conv_dw.weight"), DType::kF32);
  EXPECT_EQ(dtype("a.conv1d.1.weight"), DType::kF32);
  EXPECT_EQ(dtype("a.blk.1.attn_k_rel.weight"), DType::kF16);
}

TEST(SynthTowers, BFloat16KeepsPatchesInF32) {
  const GgufFile file = Write(SmallEncoders(), "BF16", "bf16.gguf");
  EXPECT_EQ(Must(file.GetU32("general.file_type")), 32u);
  EXPECT_EQ(file.FindTensor("v.patch_embd.weight")->dtype, DType::kF32);
  EXPECT_EQ(file.FindTensor("mm.input_projection.weight")->dtype, DType::kBF16);
}

// The soft tokens of one medium on the float64 reference: [tokens, text width].
std::vector<double> Encode(const GgufFile& file, const Tower& tower, const TowerStep& step) {
  const TowerGraph built = Must(tower.BuildGraph(step.tokens));
  const auto constant = [&](std::string_view source, int64_t first,
                            const TensorType& type) -> Result<reference::Tensor> {
    reference::Tensor tensor{
        .dtype = type.dtype, .dims = reference::DimsAt(type, {}), .f = {}, .i = {}, .packed = {}};
    for (const SyntheticConstant& computed : built.constants) {
      if (computed.name == source) tensor.packed = computed.bytes;
    }
    if (const TensorInfo* info = file.FindTensor(source)) {
      const auto elements = static_cast<uint64_t>(tensor.elements());
      const auto begin = static_cast<uint64_t>(first * tensor.last());
      tensor.packed =
          file.data(*info).subspan(RowBytes(type.dtype, begin), RowBytes(type.dtype, elements));
    }
    return tensor;
  };
  auto interpreter = Must(reference::Interpreter::Create(built.graph, constant));
  for (const TowerStep::Input& input : step.inputs) {
    const TensorType& type = built.graph.type(built.graph.Find(input.name));
    const auto dims = reference::DimsAt(type, {.t = step.tokens, .r = 1});
    if (const auto* whole = std::get_if<std::vector<int32_t>>(&input.values)) {
      EXPECT_TRUE(interpreter.Bind(input.name,
                                   reference::Tensor::I32(dims, {whole->begin(), whole->end()})));
    } else {
      const auto& values = std::get<std::vector<float>>(input.values);
      EXPECT_TRUE(interpreter.Bind(input.name,
                                   reference::Tensor::F32(dims, {values.begin(), values.end()})));
    }
  }
  const Status run = interpreter.Run({.t = step.tokens, .r = 1});
  EXPECT_TRUE(run) << run.error().ToString();
  return interpreter.GetOutput(kSoftTokens)->f;
}

Picture Gradient(uint32_t width, uint32_t height, uint8_t step) {
  Picture picture{.width = width, .height = height, .rgb = {}};
  for (size_t i = 0; i < size_t{3} * width * height; ++i) {
    picture.rgb.push_back(static_cast<uint8_t>(i * step));
  }
  return picture;
}

class SyntheticTower : public ::testing::TestWithParam<bool> {};

TEST_P(SyntheticTower, EncodesPicturesAndSound) {
  const GgufFile file = Write(GetParam() ? SmallUnified() : SmallEncoders(), "F16",
                              GetParam() ? "unified.gguf" : "encode.gguf");
  const Towers towers = Must(ReadTowers(file));
  ASSERT_TRUE(towers.picture && towers.sound);
  const auto finite = Each(Truly([](double value) { return std::isfinite(value); }));
  const auto prepared = [&towers](uint8_t step) {
    return towers.picture->Prepare(Must(towers.picture->Scale(Gradient(40, 30, step), 70)));
  };
  const TowerStep first = prepared(1);
  const TowerStep second = prepared(7);
  EXPECT_GT(first.tokens, 10);
  const std::vector<double> soft = Encode(file, *towers.picture, first);
  EXPECT_EQ(soft.size(), static_cast<size_t>(first.tokens) * 32);
  EXPECT_THAT(soft, finite);
  EXPECT_NE(soft, Encode(file, *towers.picture, second));
  std::vector<float> samples(4000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = std::sin(static_cast<float>(i) * 0.1F);
  const TowerStep sound = Must(towers.sound->Prepare(samples));
  EXPECT_EQ(sound.tokens, towers.sound->Tokens(samples.size()));
  EXPECT_THAT(Encode(file, *towers.sound, sound), finite);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SyntheticTower, ::testing::Values(false, true),
                         [](const auto& row) { return row.param ? "unified" : "encoders"; });

}  // namespace
}  // namespace rullama::gemma4
