// EmbeddingGemma 1 and 2 as tiny models of their real layout, through the engine, against vectors
// that an independent implementation computed in float64. Needs ../shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf.h"
#include "engine/api/engine.h"
#include "models/quantize/quantize.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::string kFile = kShared + "/models/family/tiny-embeddinggemma-f32.gguf";
const std::string kSecondFile = kShared + "/models/family/tiny-embeddinggemma2-bf16.gguf";
const std::string kSecondTowers = kShared + "/models/family/tiny-embeddinggemma2-mmproj-bf16.gguf";
const std::string kOllamaFile = kShared + "/models/family/tiny-embeddinggemma-ollama-f32.gguf";

// Bounds of the length of the difference of two vectors of length 1.
constexpr double kExact = 2e-5;
constexpr double kHalfFactors = 2e-3;  // products of f16 numbers
constexpr double kHalfStream = 2e-2;   // activations rounded to bf16

nlohmann::json Golden(const std::string& model = "embeddinggemma") {
  std::ifstream file(kShared + "/goldens/" + model + "/golden.json");
  return nlohmann::json::parse(file);
}

std::shared_ptr<Engine> Open(const std::string& backend, const std::string& model = kFile,
                             std::vector<Setting> settings = {}) {
  settings.push_back({"backend.device", "0"});  // also one in software
  return Must(Engine::Open({.model = model,
                            .backend = backend,
                            .settings = std::move(settings),
                            .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}}));
}

double Distance(const std::vector<float>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double squares = 0;
  for (size_t i = 0; i < found.size(); ++i) squares += std::pow(found[i] - expected[i], 2);
  return std::sqrt(squares);
}

// The cases of text and of random ids.
void CheckCases(Engine& engine, double bound, const std::string& model = "embeddinggemma") {
  const nlohmann::json golden = Golden(model);
  ASSERT_GE(golden["cases"].size(), 15u);
  double worst = 0;
  for (const auto& one : golden["cases"]) {
    if (one.contains("parts")) continue;
    SCOPED_TRACE(one["name"].get<std::string>());
    const std::vector<int32_t> ids = one["ids"];
    if (one.contains("text")) {
      const std::string text = one["prompt"].get<std::string>() + one["text"].get<std::string>();
      EXPECT_EQ(Must(engine.EmbeddingTokens(text)), ids);
    }
    const std::vector<float> found = Must(engine.Embed(ids));
    worst = std::max(worst, Distance(found, one["embedding"]));
    for (const auto& [size, numbers] : one["truncated"].items()) {
      worst = std::max(worst, Distance(Must(engine.Embed(ids, std::stoll(size))), numbers));
    }
  }
  std::printf("worst distance %.3g\n", worst);
  EXPECT_LE(worst, bound);
}

class EmbeddingGoldenTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, EmbeddingGoldenTest, ::testing::ValuesIn(BackendNames()),
                         kBackendName);

TEST_P(EmbeddingGoldenTest, Vectors) {
  const bool exact = std::string_view(GetParam()) == "cpu";
  CheckCases(*Open(GetParam()), exact ? kExact : kHalfFactors);
}

TEST_P(EmbeddingGoldenTest, VectorsOfTheSecond) {
  const bool exact = std::string_view(GetParam()) == "cpu";
  CheckCases(*Open(GetParam(), kSecondFile), exact ? kExact : kHalfStream, "embeddinggemma2");
}

// Texts of mixed lengths: some shorter than a tile of keys, some as long as several.
std::vector<std::vector<int32_t>> MixedTexts(size_t count) {
  std::vector<std::vector<int32_t>> texts;
  uint32_t state = 1;
  const auto next = [&state](uint32_t below) {
    state = state * 1664525U + 1013904223U;
    return (state >> 8U) % below;
  };
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t>& ids = texts.emplace_back(1, 2);
    for (uint32_t rest = next(i % 8 == 0 ? 300 : 70); rest > 0; --rest) {
      ids.push_back(static_cast<int32_t>(100 + next(1500)));
    }
  }
  return texts;
}

void CheckCompany(Engine& engine, size_t count) {
  std::vector<std::vector<int32_t>> texts = MixedTexts(count);
  std::vector<std::vector<float>> alone;
  for (const auto& ids : texts) alone.push_back(Must(engine.Embed(ids)));
  for (const bool reversed : {false, true}) {
    if (reversed) {
      std::ranges::reverse(texts);
      std::ranges::reverse(alone);
    }
    const auto together = engine.EmbedEach(texts);
    ASSERT_EQ(together.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(Must(together[i]), alone[i]) << "text " << i << " of " << texts[i].size();
    }
  }
}

TEST_P(EmbeddingGoldenTest, ATextHasTheSameBytesInAnyCompany) {
  const size_t count = std::string_view(GetParam()) == "cpu" ? 64 : 12;
  CheckCompany(*Open(GetParam()), count);
  CheckCompany(*Open(GetParam(), kSecondFile), count);
}

double Cosine(const std::vector<float>& found, const std::vector<double>& expected) {
  return std::inner_product(found.begin(), found.end(), expected.begin(), 0.0);
}

// The smallest cosine of a quantised model's vectors with those of the goldens.
void CheckQuantised(const std::string& model, const std::string& path) {
  const GgufFile file = Must(GgufFile::Open(path));
  const std::string smaller = ::testing::TempDir() + "/" + model + "-Q8_0.gguf";
  const auto report = Must(QuantizeFile(file, {.mix = Must(FindQuantMix("Q8_0"))}, smaller));
  EXPECT_LT(report.bytes_after, report.bytes_before);
  const auto engine = Open("cpu", smaller);
  double least = 1;
  for (const auto& one : Golden(model)["cases"]) {
    if (one.contains("parts")) continue;
    const std::vector<int32_t> ids = one["ids"];
    least = std::min(least, Cosine(Must(engine->Embed(ids)), one["embedding"]));
  }
  std::printf("least cosine %.5f\n", least);
  EXPECT_GE(least, 0.999);
  std::filesystem::remove(smaller);
}

TEST(EmbeddingGolden, QuantisedModelsGiveNearlyTheSameVectors) {
  CheckQuantised("embeddinggemma", kFile);
  CheckQuantised("embeddinggemma2", kSecondFile);
}

TEST(EmbeddingGolden, OneOfSeveralTextsThatIsWrongIsToldApart) {
  const auto engine = Open("cpu");
  const auto vectors = engine->EmbedEach(
      std::vector<std::vector<int32_t>>{{2, 5, 1}, {5, 1}, std::vector<int32_t>(513, 2), {2, 1}});
  ASSERT_EQ(vectors.size(), 4u);
  EXPECT_EQ(Must(vectors[0]), Must(engine->Embed(std::vector<int32_t>{2, 5, 1})));
  EXPECT_EQ(vectors[1].error().id, "usage.request");
  EXPECT_EQ(vectors[2].error().id, "context.overflow");
  EXPECT_EQ(Must(vectors[3]), Must(engine->Embed(std::vector<int32_t>{2, 1})));
  std::stop_source stop;
  stop.request_stop();
  const auto stopped = engine->EmbedEach(MixedTexts(3), {}, stop.get_token());
  EXPECT_TRUE(std::ranges::all_of(
      stopped, [](const auto& one) { return !one && one.error().id == "run.cancelled"; }));
}

TEST(EmbeddingGolden, ATextDoesNotWaitForAllTextsOfAnotherRequest) {
  constexpr size_t kTexts = 20'000, kRows = 64;
  const auto engine = Open("cpu");
  std::stop_source stop;
  std::jthread other([&] {
    const std::vector<std::vector<int32_t>> texts(kTexts, std::vector<int32_t>(kRows, 2));
    const auto vectors = engine->EmbedEach(texts, {}, stop.get_token());
    EXPECT_TRUE(vectors.front());
    ASSERT_FALSE(vectors.back()) << "all were read before the other text";
    EXPECT_EQ(vectors.back().error().id, "run.cancelled");
  });
  while (engine->stats().prompt.rows.sum == 0) std::this_thread::yield();
  Must(engine->Embed(std::vector<int32_t>{2, 5, 1}));
  stop.request_stop();
}

TEST(EmbeddingGolden, ReferenceOfTheSecond) {
  CheckCases(*Open("reference", kSecondFile), kExact, "embeddinggemma2");
}

// The content of a case as a request.
Request ContentOf(const nlohmann::json& golden, const nlohmann::json& parts) {
  Request request;
  nlohmann::json content = nlohmann::json::array();
  for (const auto& part : parts) {
    if (part.is_string()) {
      content.push_back({{"type", "text"}, {"text", part}});
      continue;
    }
    const auto medium = std::ranges::find_if(
        golden["media"], [&](const auto& one) { return one["name"] == part["media"]; });
    const bool sound = (*medium)["kind"] == "audio";
    content.push_back({{"type", sound ? "audio" : "image"}});
    request.media.push_back(
        {.kind = sound ? MediaKind::kSound : MediaKind::kPicture,
         .path = kShared + "/goldens/embeddinggemma2/" + (*medium)["file"].get<std::string>(),
         .image_tokens = medium->value("budget", 0)});
  }
  request.messages = nlohmann::json({{{"role", "user"}, {"content", content}}}).dump();
  return request;
}

TEST_P(EmbeddingGoldenTest, PicturesAndSounds) {
  const auto engine = Open(GetParam(), kSecondFile, {{"model.mmproj", kSecondTowers}});
  const nlohmann::json golden = Golden("embeddinggemma2");
  double worst = 0;
  int count = 0;
  for (const auto& one : golden["cases"]) {
    if (!one.contains("parts")) continue;
    SCOPED_TRACE(one["name"].get<std::string>());
    const Request content = ContentOf(golden, one["parts"]);
    EXPECT_EQ(Must(engine->CountPrompt(content)), std::ssize(one["ids"]));
    worst = std::max(worst, Distance(Must(engine->EmbedContent(content)), one["embedding"]));
    ++count;
  }
  std::printf("worst distance %.3g\n", worst);
  EXPECT_EQ(count, 7);
  EXPECT_LE(worst, std::string_view(GetParam()) == "cpu" ? kHalfFactors : kHalfStream);
}

TEST(EmbeddingGolden, Reference) { CheckCases(*Open("reference"), kExact); }

TEST_P(EmbeddingGoldenTest, BothDialectsGiveTheSameBytes) {
  const auto engine = Open(GetParam());
  const auto ollama = Open(GetParam(), kOllamaFile);
  EXPECT_EQ(ollama->info().architecture, "gemma3");
  EXPECT_TRUE(ollama->info().encodes);
  EXPECT_TRUE(ollama->info().dense);
  const EmbeddingOptions query{.task = "query"};
  EXPECT_EQ(Must(engine->Embed("What is war?", query)), Must(ollama->Embed("What is war?", query)));
}

TEST(EmbeddingGolden, TasksAddTheirPrompts) {
  const auto engine = Open("cpu");
  EXPECT_EQ(Must(engine->EmbeddingTokens("What is war?", "query")),
            Golden()["cases"][0]["ids"].get<std::vector<int32_t>>());
  const auto unknown = engine->EmbeddingTokens("a", "chat");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("query, document, "));
}

TEST(EmbeddingGolden, WhatTheModelCannotDoIsRefused) {
  const auto engine = Open("cpu");
  EXPECT_EQ(engine->Submit({.prompt = "Why"}).error().id, "model.encoder");
  EXPECT_EQ(engine->NegativeLogLikelihood(std::vector<int32_t>{2, 5}).error().id, "model.encoder");
  const auto foreign = engine->Embed(std::vector<int32_t>{15339, 1917});  // tiktoken's
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message, ::testing::HasSubstr("do not begin with the BOS token 2"));
  EXPECT_EQ(engine->Embed("a", {.dimensions = 97}).error().id, "usage.request");
  EXPECT_EQ(engine->Embed(std::vector<int32_t>(513, 2)).error().id, "context.overflow");
}

}  // namespace
}  // namespace rullama
