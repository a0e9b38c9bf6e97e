// Gemma 3 with pictures against goldens of a float64 implementation that was compared with
// transformers: preparation of pictures, soft tokens, prompts, logits and greedy continuations, for
// a model with a file of towers and for the same in one file. Needs ../shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "core/reference/interpreter.h"
#include "core/runtime/output_names.h"
#include "core/runtime/soft_rows.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary_from_gguf.h"
#include "engine/media/media_encoder.h"
#include "engine/media/request_media.h"
#include "engine/media/soft_row_ids.h"
#include "engine/model_program.h"
#include "models/gemma3/towers/vision_graph.h"
#include "models/registry.h"
#include "tests/golden/golden_support.h"
#include "tests/golden/session_support.h"

namespace rullama::golden {
namespace {

using nlohmann::json;

const std::filesystem::path kModels = RULLAMA_SOURCE_DIR "/../shared/models/family";
const std::filesystem::path kGoldens = RULLAMA_SOURCE_DIR "/../shared/goldens/gemma3-vision";
constexpr int64_t kTextWidth = 96;
constexpr int64_t kCapacity = 128;

// Relative L2, from the README of the goldens.
constexpr double kF32Tolerance = 1e-5;
constexpr double kF16SoftTolerance = 1e-3;
constexpr double kF16LogitsTolerance = 3e-3;
constexpr double kFromPngTolerance = 1e-3;  // of logits from the encoded picture

// The files of a model: text and towers.
struct Files {
  std::string text;
  std::string towers;
};
const Files kPair = {"tiny-gemma3-f16.gguf", "tiny-gemma3-mmproj-f16.gguf"};
const Files kOllama = {"tiny-gemma3-ollama-f16.gguf", "tiny-gemma3-ollama-f16.gguf"};

const json& Golden() {
  static const json golden = ReadJson(kGoldens / "golden.json");
  return golden;
}

std::vector<uint8_t> ReadPixels(const json& name) {
  const std::string bytes = ReadWholeFile(kGoldens / name.get<std::string>());
  return {bytes.begin(), bytes.end()};
}

// The picture of a golden as the tower sees it.
Picture ScaledPixels(const json& medium) {
  constexpr uint32_t kSide = 168;
  return {.width = kSide, .height = kSide, .rgb = ReadPixels(medium.at("rgb"))};
}

GgufFile OpenFile(const std::string& name) { return Must(GgufFile::Open(kModels / name)); }

int LargestDifference(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.rgb.size(), b.rgb.size()); ++i) {
    largest = std::max(largest, std::abs(int{a.rgb[i]} - int{b.rgb[i]}));
  }
  return largest;
}

// The pixels of a JPEG are those of another decoder, from which the golden was made.
TEST(Gemma3Vision, PicturesAreStretchedAsByPillow) {
  const GgufFile file = OpenFile(kPair.towers);
  const Towers towers = Must(ReadTowers(file));
  ASSERT_NE(towers.picture, nullptr);
  for (const json& medium : Golden().at("media")) {
    SCOPED_TRACE(medium.at("name"));
    Picture picture{
        .width = medium.at("decoded_size")[0], .height = medium.at("decoded_size")[1], .rgb = {}};
    if (medium.contains("decoded")) {
      picture.rgb = ReadPixels(medium.at("decoded"));
    } else {
      const std::string bytes = ReadWholeFile(kGoldens / medium.at("file").get<std::string>());
      picture = Must(DecodePicture(std::as_bytes(std::span(bytes))));
    }
    const Picture scaled = Must(towers.picture->Scale(std::move(picture), 9));
    EXPECT_LE(LargestDifference(scaled, ScaledPixels(medium)), medium.contains("decoded") ? 1 : 0);
  }
}

// The towers of a model on one backend.
class OpenedTower {
 public:
  OpenedTower(const Backend& backend, const Files& files)
      : file_(OpenFile(files.towers)), towers_(Must(ReadTowers(file_))) {
    registry_.RegisterBuiltIn("reference", ReferencePluginQuery);
    device_ = Must(Must(registry_.Find(backend.name))->Open(0, OptionsOf(backend)));
    encoder_.emplace(towers_, file_, std::vector<Device*>{device_.get()}, PlacementPolicy{});
  }

  std::vector<float> Soft(const json& medium) {
    SoftTokens soft = Must(encoder_->Encode(ScaledPixels(medium), 9));
    EXPECT_EQ(soft.tokens, 9);
    EXPECT_EQ(soft.width, kTextWidth);
    return std::move(soft.values);
  }
  // From the encoded picture, which is decoded and resized as in a request.
  std::vector<float> SoftOfFile(const json& medium) {
    const std::string bytes = ReadWholeFile(kGoldens / medium.at("file").get<std::string>());
    Picture picture = Must(DecodePicture(std::as_bytes(std::span(bytes))));
    picture = Must(towers_.picture->Scale(std::move(picture), 9));
    return std::move(Must(encoder_->Encode(picture, 9)).values);
  }
  void ExpectSoft(const std::string& name, double tolerance) {
    const json& medium = Named(Golden().at("media"), name);
    const auto expected = ReadFloats(kGoldens / medium.at("soft").get<std::string>());
    const double error = RelativeL2(std::span<const float>(Soft(medium)), expected);
    std::printf("soft of %s: relative L2 %.3g\n", name.c_str(), error);
    EXPECT_LE(error, tolerance);
  }

 private:
  GgufFile file_;
  Towers towers_;
  std::shared_ptr<PluginHost> host_ = std::make_shared<PluginHost>(HostOptions{});
  Registry registry_{RegistryOptions::FromProcess(), host_};
  std::unique_ptr<Device> device_;
  std::optional<MediaEncoder> encoder_;
};

TEST(Gemma3Vision, SoftTokensOnTheCpu) {
  OpenedTower tower({"cpu", ""}, kPair);
  OpenedTower ollama({"cpu", ""}, kOllama);
  for (const json& medium : Golden().at("media")) {
    tower.ExpectSoft(medium.at("name"), kF32Tolerance);
    EXPECT_EQ(tower.Soft(medium), ollama.Soft(medium));
  }
}

TEST(Gemma3Vision, SoftTokensOnTheReference) {
  OpenedTower tower({"reference", ""}, kPair);
  for (const json& medium : Golden().at("media")) tower.ExpectSoft(medium.at("name"), 2e-6);
}

// The residual stream after each block, of every seventh patch of the picture.
TEST(Gemma3Vision, BlocksOnTheReference) {
  constexpr size_t kStep = 7;
  const GgufFile file = OpenFile(kPair.towers);
  const gemma3::VisionTower tower = *Must(gemma3::ReadVisionTower(file, kTextWidth));
  const TowerGraph built = Must(gemma3::BuildVisionGraph(tower, tower.config.tokens()));
  auto interpreter = Must(
      reference::Interpreter::Create(built.graph,
                                     [&file](std::string_view source, int64_t,
                                             const TensorType& type) -> Result<reference::Tensor> {
                                       reference::Tensor tensor{.dtype = type.dtype,
                                                                .dims = reference::DimsAt(type, {}),
                                                                .f = {},
                                                                .i = {},
                                                                .packed = {}};
                                       tensor.packed = file.data(*file.FindTensor(source));
                                       return tensor;
                                     }));
  const json& medium = Named(Golden().at("media"), "wide");
  const TowerStep step = gemma3::PictureInputs(tower.config, ScaledPixels(medium));
  std::vector<int32_t> places;
  for (const TowerStep::Input& input : step.inputs) {
    const TensorType& type = built.graph.type(built.graph.Find(input.name));
    const auto dims = reference::DimsAt(type, {.t = step.tokens, .r = 1});
    const auto* floats = std::get_if<std::vector<float>>(&input.values);
    const auto* ints = std::get_if<std::vector<int32_t>>(&input.values);
    if (input.name == "patch") places = *ints;
    const Status bound = interpreter.Bind(
        input.name, floats != nullptr
                        ? reference::Tensor::F32(dims, {floats->begin(), floats->end()})
                        : reference::Tensor::I32(dims, *ints));
    ASSERT_TRUE(bound) << bound.error().ToString();
  }
  const Status run = interpreter.Run({.t = step.tokens, .r = 1});
  ASSERT_TRUE(run) << run.error().ToString();
  const auto trace = ReadFloats(kGoldens / medium.at("trace").get<std::string>());
  const auto width = static_cast<size_t>(tower.config.width);
  std::span<const float> expected = trace;
  for (int64_t layer = 0; layer < tower.config.layers; ++layer) {
    const reference::Tensor* value = interpreter.Get(fmt::format("blk.{}.out", layer));
    ASSERT_NE(value, nullptr);
    std::vector<double> found;
    for (size_t place = 0; place < places.size(); place += kStep) {
      const auto row = static_cast<size_t>(std::ranges::find(places, static_cast<int32_t>(place)) -
                                           places.begin());
      const auto values = std::span(value->f).subspan(row * width, width);
      found.insert(found.end(), values.begin(), values.end());
    }
    const double error =
        RelativeL2(std::span<const double>(found), expected.subspan(0, found.size()));
    std::printf("block %d: relative L2 %.3g\n", static_cast<int>(layer), error);
    EXPECT_LE(error, kF32Tolerance);
    expected = expected.subspan(found.size());
  }
  EXPECT_TRUE(expected.empty());
}

// The strings of a prompt, with the marker of a picture between them.
std::string TextOf(const json& parts) {
  std::string text;
  for (const json& part : parts) {
    text += part.is_string() ? part.get<std::string>() : std::string("<start_of_image>");
  }
  return text;
}

DecodedMedia MediaOf(const json& parts) {
  DecodedMedia media;
  for (const json& part : parts) {
    if (part.is_string()) continue;
    DecodedMedium medium{.kind = MediaKind::kPicture, .tokens = 9};
    medium.hash.low = media.size() + 1;
    media.push_back(std::make_shared<const DecodedMedium>(std::move(medium)));
  }
  return media;
}

TEST(Gemma3Vision, TextAroundPicturesBecomesTokensWithItsNeighbours) {
  const GgufFile file = OpenFile(kPair.text);
  const std::unique_ptr<Model> model = Must(OpenModel(file));
  const auto tokenizer = Must(Tokenizer::Build(Must(VocabularyFromGguf(file))));
  for (const json& item : Golden().at("cases")) {
    SCOPED_TRACE(item.at("name"));
    const json& parts = item.at("parts");
    std::vector<int32_t> ids =
        Must(tokenizer->Encode(WithTextAroundMedia(*model, TextOf(parts)), {.add_bos = true}));
    const auto placed = Must(PlaceMedia(*model, *tokenizer, MediaOf(parts), ids));
    std::vector<int32_t> expected = item.at("ids");
    ASSERT_EQ(placed.size(), item.at("blocks").size());
    for (size_t i = 0; i < placed.size(); ++i) {
      EXPECT_EQ(placed[i].first, item.at("blocks")[i][0]);
      EXPECT_EQ(placed[i].end() - placed[i].first, item.at("blocks")[i][1]);
    }
    // No token stands in the rows of a picture.
    constexpr int32_t kSoftToken = 9;
    std::ranges::replace_if(ids, IsSoftRow, kSoftToken);
    EXPECT_EQ(ids, expected);
  }
}

// A prompt of the goldens with the soft tokens that they have, or those of a tower.
struct Prompt {
  explicit Prompt(const json& item, OpenedTower* tower = nullptr)
      : tokens(item.at("ids")),
        greedy(item.at("greedy")),
        margins(item.at("margins")),
        from(item.at("logits_from")),
        logits(ReadFloats(kGoldens / item.at("logits").get<std::string>())) {
    for (const json& part : item.at("parts")) {
      if (part.is_string()) continue;
      const json& medium = Named(Golden().at("media"), part.at("media"));
      values.push_back(tower == nullptr
                           ? ReadFloats(kGoldens / medium.at("soft").get<std::string>())
                           : tower->SoftOfFile(medium));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const json& block = item.at("blocks")[i];
      media.push_back(
          {.first = block[0], .count = block[1], .values = values[i], .see_each_other = true});
      std::fill_n(tokens.begin() + media.back().first, media.back().count, 0);
    }
  }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  std::vector<int32_t> tokens;
  std::vector<int32_t> greedy;
  std::vector<double> margins;
  size_t from;
  std::vector<float> logits;
  std::vector<std::vector<float>> values = {};
  std::vector<SoftRows> media = {};
};

// The text model on one backend, with a graph for text and one for pictures; both give all logits.
class Runner {
 public:
  Runner(const Backend& backend, const Files& files, CacheTypes cache)
      : file_(OpenFile(files.text)),
        model_(Must(OpenModel(file_))),
        weights_(std::make_unique<GgufWeights>(file_)),
        inputs_(model_->facts().width, model_->facts().media.whole_pictures) {
    registry_.RegisterBuiltIn("reference", ReferencePluginQuery);
    device_ = Must(Must(registry_.Find(backend.name))->Open(0, OptionsOf(backend)));
    auto program = Must(BuildModelProgram(*model_, {.outputs = GraphOutputs::kAllLogits,
                                                    .capacity = kCapacity,
                                                    .kv_dtype = cache,
                                                    .limits = {.max_t = kCapacity},
                                                    .media_rows = kCapacity}));
    graphs_ = program.handles;
    for (SyntheticConstant& constant : program.constants) {
      weights_->AddConstant(constant.name, constant.type, std::move(constant.bytes));
    }
    SessionOptions options;
    options.devices = {device_.get()};
    options.limits.max_t = kCapacity;
    session_ = Must(Session::Create(std::move(program.graphs), *weights_, options));
  }

  // The logits of the prompt and its continuation. `whole`: in one step; else in steps that end
  // after a picture, as the engine makes them, and one of the rest.
  const std::vector<float>& Run(const Prompt& prompt, bool whole) {
    logits_.clear();
    const Status restarted = session_->SetPast(0, 0);
    EXPECT_TRUE(restarted) << restarted.error().ToString();
    size_t done = 0;
    std::vector<int32_t> all = prompt.tokens;
    all.insert(all.end(), prompt.greedy.begin(), prompt.greedy.end());
    for (const SoftRows& medium : prompt.media) {
      const size_t end = whole ? all.size() : static_cast<size_t>(medium.end());
      if (end > done) Step(prompt, std::span(all).subspan(done, end - done), /*media=*/true);
      done = end;
    }
    if (done < all.size()) Step(prompt, std::span(all).subspan(done), /*media=*/false);
    return logits_;
  }
  [[nodiscard]] size_t vocabulary() const {
    return static_cast<size_t>(model_->facts().vocabulary);
  }

 private:
  void Step(const Prompt& prompt, std::span<const int32_t> tokens, bool media) {
    const int32_t past = session_->past(0);
    if (media) {
      const Status set = inputs_.Set(*session_, prompt.media, past, std::ssize(tokens));
      ASSERT_TRUE(set) << set.error().ToString();
    }
    const GraphHandle graph = media ? *graphs_.media : graphs_.read;
    const Status run =
        session_->Run(StepRows::Consecutive(tokens, past, /*slot=*/0, DemandMode::kAllRows, graph));
    ASSERT_TRUE(run) << run.error().ToString();
    const size_t held = logits_.size();
    logits_.resize(held + tokens.size() * vocabulary());
    ASSERT_TRUE(session_->ReadOutput(output_names::kLogits,
                                     std::as_writable_bytes(std::span(logits_).subspan(held))));
  }

  GgufFile file_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<GgufWeights> weights_;
  std::shared_ptr<PluginHost> host_ = std::make_shared<PluginHost>(HostOptions{});
  Registry registry_{RegistryOptions::FromProcess(), host_};
  std::unique_ptr<Device> device_;
  ProgramGraphs graphs_;
  std::unique_ptr<Session> session_;
  SoftRowInputs inputs_;
  std::vector<float> logits_;
};

// Up to the first token whose margin is so small that honest implementations may part.
void ExpectGreedy(const Runner& runner, const Prompt& prompt, std::span<const float> logits) {
  for (size_t i = 0; i < prompt.greedy.size() && prompt.margins[i] > kJudgedMargin; ++i) {
    const auto row =
        logits.subspan((prompt.tokens.size() - 1 + i) * runner.vocabulary(), runner.vocabulary());
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), prompt.greedy[i]) << "token " << i;
  }
}

void ExpectLogits(Runner& runner, const std::string& name, bool whole, double tolerance,
                  OpenedTower* tower = nullptr) {
  const Prompt prompt(Named(Golden().at("cases"), name), tower);
  const std::vector<float>& logits = runner.Run(prompt, whole);
  if (::testing::Test::HasFatalFailure()) return;
  const auto rows = std::span<const float>(logits).subspan(prompt.from * runner.vocabulary(),
                                                           prompt.logits.size());
  const double error = RelativeL2(rows, prompt.logits);
  std::printf("logits of %s: relative L2 %.3g\n", name.c_str(), error);
  EXPECT_LE(error, tolerance);
  ExpectGreedy(runner, prompt, logits);
}

TEST(Gemma3Vision, LogitsOnTheCpu) {
  Runner runner({"cpu", ""}, kPair, DType::kF32);
  Runner ollama({"cpu", ""}, kOllama, DType::kF32);
  for (const json& item : Golden().at("cases")) {
    ExpectLogits(runner, item.at("name"), /*whole=*/false, kF32Tolerance);
    ExpectLogits(runner, item.at("name"), /*whole=*/true, kF32Tolerance);
    const Prompt prompt(item);
    EXPECT_EQ(runner.Run(prompt, /*whole=*/true), ollama.Run(prompt, /*whole=*/true));
  }
}

// The bound is for PNG files: what decoders make of the JPEG in the case "two" differs.
TEST(Gemma3Vision, LogitsFromPngFilesOnTheCpu) {
  OpenedTower tower({"cpu", ""}, kPair);
  Runner runner({"cpu", ""}, kPair, DType::kF32);
  for (const char* name : {"one", "late", "turns"}) {
    ExpectLogits(runner, name, /*whole=*/false, kFromPngTolerance, &tower);
  }
}

TEST(Gemma3Vision, LogitsOnTheReference) {
  Runner runner({"reference", ""}, kPair, DType::kF32);
  for (const json& item : Golden().at("cases")) {
    ExpectLogits(runner, item.at("name"), /*whole=*/false, kF32Tolerance);
  }
}

class Gemma3VisionOnGpus : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gpus, Gemma3VisionOnGpus, ::testing::ValuesIn(GpuBackendNames()),
                         kBackendName);

TEST_P(Gemma3VisionOnGpus, SoftTokens) {
  OpenedTower(Precise({{GetParam(), ""}}).front(), kPair).ExpectSoft("wide", kF32Tolerance);
  OpenedTower({GetParam(), ""}, kPair).ExpectSoft("wide", kF16SoftTolerance);
}

TEST_P(Gemma3VisionOnGpus, LogitsFromPngFiles) {
  const Backend precise = Precise({{GetParam(), ""}}).front();
  OpenedTower tower(precise, kPair);
  Runner runner(precise, kPair, DType::kF32);
  ExpectLogits(runner, "turns", /*whole=*/false, kFromPngTolerance, &tower);
}

TEST_P(Gemma3VisionOnGpus, Logits) {
  Runner runner(Precise({{GetParam(), ""}}).front(), kPair, DType::kF32);
  for (const char* name : {"one", "two", "late"}) {
    ExpectLogits(runner, name, /*whole=*/false, kF32Tolerance);
  }
  Runner rounded({GetParam(), ""}, kPair, DType::kF16);
  ExpectLogits(rounded, "turns", /*whole=*/true, kF16LogitsTolerance);
}

}  // namespace
}  // namespace rullama::golden
