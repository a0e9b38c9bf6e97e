// EmbeddingGemma 1 and 2 as tiny models of their real layout, through the engine, against vectors
// that an independent implementation computed in float64. Needs ../shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"
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

TEST(EmbeddingGolden, PicturesAndSounds) {
  const auto engine = Open("cpu", kSecondFile, {{"model.mmproj", kSecondTowers}});
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
  EXPECT_LE(worst, kHalfFactors);
}

TEST(EmbeddingGolden, Reference) { CheckCases(*Open("reference"), kExact); }

TEST(EmbeddingGolden, BothDialectsGiveTheSameBytes) {
  const auto engine = Open("cpu");
  const auto ollama = Open("cpu", kOllamaFile);
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
