// Answers under schemas and calls of tools on a tiny trained model, which would never write them by
// itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/api/engine.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kTextModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kCanvasModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
constexpr const char* kPluginFolder = RULLAMA_BINARY_DIR "/lib/rullama";

constexpr const char* kMessages = R"([{"role":"user","content":"Describe it."}])";
constexpr const char* kColor =
    R"({"type":"object","properties":{"color":{"enum":["red","green"]},"count":{"type":"integer",)"
    R"("minimum":0,"maximum":9},"name":{"type":"string"}},"required":["color","count","name"],)"
    R"("additionalProperties":false})";
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"weather","description":"Weather.","parameters":{)"
    R"("type":"object","properties":{"city":{"type":"string"},"days":{"enum":[1,3]}},)"
    R"("required":["city","days"]}}},{"type":"function","function":{"name":"now"}}])";

std::shared_ptr<Engine> OpenModel(const char* model, int slots = 1) {
  return Must(Engine::Open(
      {.model = model,
       .backend = "cpu",
       .settings = {{"context.slots", std::to_string(slots)}, {"context.capacity", "512"}},
       .plugin_paths = {kPluginFolder}}));
}

Completion AnswerOf(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait());
}

Request ColorRequest(int64_t seed, double temperature = 1) {
  Request request{.messages = kMessages, .json_schema = kColor, .max_tokens = 60};
  request.sampling.seed = seed;
  request.sampling.temperature = temperature;
  return request;
}

void ExpectColor(const Completion& answer) {
  EXPECT_EQ(answer.reason, StopReason::kEndOfGeneration);
  const auto value = nlohmann::json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(value.is_object()) << answer.text;
  EXPECT_EQ(value.size(), 3U);
  EXPECT_TRUE(value.at("color") == "red" || value.at("color") == "green") << answer.text;
  EXPECT_LE(value.at("count").get<int>(), 9);
  EXPECT_TRUE(value.at("name").is_string());
}

TEST(AnswerConstraints, TextIsValidUnderASchema) {
  const auto engine = OpenModel(kTextModel);
  for (int seed = 0; seed < 2; ++seed) {
    for (const double temperature : {0.0, 2.0}) {
      SCOPED_TRACE(seed);
      ExpectColor(AnswerOf(*engine, ColorRequest(seed, temperature)));
    }
  }
}

TEST(AnswerConstraints, ThoughtsComeFirst) {
  const auto engine = OpenModel(kTextModel);
  for (int seed = 0; seed < 2; ++seed) {
    Request request = ColorRequest(seed);
    request.thinking = true;
    ExpectColor(AnswerOf(*engine, request));
  }
}

// Whatever the limit is, the answer is whole, if there is an answer that short.
TEST(AnswerConstraints, EndIsInReach) {
  const auto engine = OpenModel(kTextModel);
  for (const int64_t limit : {40, 50}) {
    Request request = ColorRequest(limit);
    request.max_tokens = limit;
    ExpectColor(AnswerOf(*engine, request));
  }
  Request request = ColorRequest(1);
  request.max_tokens = 3;
  EXPECT_EQ(AnswerOf(*engine, request).reason, StopReason::kMaxTokens);
  request.max_tokens = -1;
  ExpectColor(AnswerOf(*engine, request));
}

TEST(AnswerConstraints, CompletesPromptsAndIds) {
  const auto engine = OpenModel(kTextModel);
  Request request = ColorRequest(3);
  request.messages.clear();
  request.prompt = "It was";
  ExpectColor(AnswerOf(*engine, request));
}

// Same bytes while others run, which do not change either.
TEST(AnswerConstraints, NeighboursChangeNothing) {
  const auto engine = OpenModel(kTextModel, 4);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    Request request = ColorRequest(i);
    if (i % 2 == 0) request.json_schema.clear();
    request.max_tokens = 60;
    if (i % 4 == 3) request.json_schema = R"({"type":"object"})";
    requests.push_back(std::move(request));
  }
  std::vector<Completion> alone;
  for (const Request& request : requests) alone.push_back(AnswerOf(*engine, request));
  std::vector<Generation> running;
  for (const Request& request : requests) running.push_back(Must(engine->Submit(request)));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Completion together = Must(running[i].Wait());
    EXPECT_THAT(together.ids, ElementsAreArray(alone[i].ids)) << i;
    EXPECT_EQ(together.text, alone[i].text) << i;
  }
  // The same from an engine that has kept no masks.
  const auto fresh = OpenModel(kTextModel, 4);
  for (size_t i = requests.size(); i-- > 0;) {
    EXPECT_THAT(AnswerOf(*fresh, requests[i]).ids, ElementsAreArray(alone[i].ids)) << i;
  }
}

Request ToolRequest(int64_t seed) {
  Request request{.messages = kMessages, .tools = kTools, .max_tokens = 150};
  request.tool_choice = ToolChoice::kRequired;
  request.sampling.seed = seed;
  return request;
}

TEST(AnswerConstraints, RequiredCallsAreValid) {
  const auto engine = OpenModel(kTextModel);
  for (int seed = 0; seed < 3; ++seed) {
    const Completion answer = AnswerOf(*engine, ToolRequest(seed));
    EXPECT_EQ(answer.reason, StopReason::kEndOfGeneration);
    EXPECT_THAT(answer.text, IsEmpty());
    ASSERT_THAT(answer.tool_calls, Not(IsEmpty()));
    for (const ToolCall& call : answer.tool_calls) {
      const auto arguments = nlohmann::json::parse(call.arguments);
      if (call.name == "now") {
        EXPECT_THAT(arguments, IsEmpty());
      } else {
        ASSERT_EQ(call.name, "weather");
        EXPECT_TRUE(arguments.at("city").is_string());
        EXPECT_TRUE(arguments.at("days") == 1 || arguments.at("days") == 3);
      }
    }
  }
}

TEST(AnswerConstraints, OneNamedCall) {
  const auto engine = OpenModel(kTextModel);
  for (const std::string name : {"now", "weather"}) {
    Request request = ToolRequest(5);
    request.allowed_tools = {name};
    request.parallel_tool_calls = false;
    const Completion answer = AnswerOf(*engine, request);
    ASSERT_EQ(answer.tool_calls.size(), 1U);
    EXPECT_EQ(answer.tool_calls[0].name, name);
  }
}

TEST(AnswerConstraints, ToolsLeaveFreeTextAlone) {
  const auto engine = OpenModel(kTextModel);
  Request request = ToolRequest(7);
  request.tool_choice = ToolChoice::kNone;
  request.max_tokens = 20;
  EXPECT_THAT(AnswerOf(*engine, request).tool_calls, IsEmpty());
  request.tool_choice = ToolChoice::kAuto;
  const Completion answer = AnswerOf(*engine, request);
  EXPECT_THAT(answer.text, Not(HasSubstr("<|tool_call>")));
}

TEST(AnswerConstraints, TextHasAForm) {
  const auto engine = OpenModel(kTextModel);
  for (const bool thinking : {false, true}) {
    Request request = ColorRequest(1);
    request.json_schema.clear();
    request.thinking = thinking;
    request.pattern = "[0-9]{3}";
    Completion answer = AnswerOf(*engine, request);
    EXPECT_THAT(answer.text, ::testing::MatchesRegex("[0-9][0-9][0-9]"));
    EXPECT_EQ(answer.reason, StopReason::kEndOfGeneration);
    request.pattern.clear();
    request.choices = {"hall", "кухня"};
    EXPECT_THAT(AnswerOf(*engine, request).text, ::testing::AnyOf("hall", "кухня"));
    request.tools = kTools;
    answer = AnswerOf(*engine, request);
    EXPECT_TRUE(answer.text == "hall" || answer.text == "кухня" || !answer.tool_calls.empty());
    request.pattern = "a";
    EXPECT_EQ(engine->Submit(request).error().id, "usage.request");
  }
}

TEST(AnswerConstraints, NamesKeywordsItSkipped) {
  const auto engine = OpenModel(kTextModel);
  Request request = ColorRequest(1);
  request.json_schema = R"({"enum":[1],"discriminator":{},"x-a":1})";
  EXPECT_THAT(AnswerOf(*engine, request).ignored_keywords, ElementsAre("discriminator", "x-a"));
}

TEST(AnswerConstraints, RefusesBeforeItRuns) {
  const auto engine = OpenModel(kTextModel);
  const auto id_of = [&](const Request& request) {
    const auto generation = engine->Submit(request);
    return generation ? std::string() : generation.error().id;
  };
  const auto with_schema = [](const char* schema) {
    Request request = ColorRequest(1);
    request.json_schema = schema;
    return request;
  };
  EXPECT_EQ(id_of(with_schema("{")), "schema.invalid");
  EXPECT_EQ(id_of(with_schema(R"({"not":{}})")), "schema.unsupported");
  EXPECT_EQ(id_of(with_schema(R"({"maxLength":100000})")), "schema.too_large");
  Request request = ToolRequest(1);
  request.allowed_tools = {"other"};
  EXPECT_EQ(id_of(request), "usage.request");
  request.tools.clear();
  EXPECT_EQ(id_of(request), "usage.request");
  request = ToolRequest(1);
  request.tools = R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
                  R"("properties":{"a":{"not":{}}}}}}])";
  request.tool_choice = ToolChoice::kAuto;
  EXPECT_EQ(id_of(request), "");
  request.tools.insert(request.tools.find(R"("name")"), R"("strict":true,)");
  EXPECT_EQ(id_of(request), "schema.unsupported");
}

TEST(AnswerConstraints, NamesWhatCallsAreNotHeldTo) {
  const auto engine = OpenModel(kTextModel);
  Request request = ToolRequest(1);
  request.tools = R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
                  R"("properties":{"a":{"type":"integer","maximum":9,"multipleOf":7}},)"
                  R"("required":["a"]}}}])";
  for (int round = 0; round < 2; ++round) {  // the second one finds the form of the first
    const Completion answer = AnswerOf(*engine, request);
    EXPECT_THAT(answer.unenforced_keywords,
                ElementsAre("tools[0].function.parameters.properties.a.multipleOf"));
    ASSERT_THAT(answer.tool_calls, Not(IsEmpty()));
    EXPECT_LE(nlohmann::json::parse(answer.tool_calls[0].arguments).at("a").get<int64_t>(), 9);
  }
}

TEST(AnswerConstraints, CanvasesCannotBeHeldToAForm) {
  const auto engine = OpenModel(kCanvasModel);
  const auto generation = engine->Submit({.prompt = "It was", .json_schema = R"({"type":"null"})"});
  ASSERT_FALSE(generation);
  EXPECT_EQ(generation.error().id, "model.canvas");
}

}  // namespace
}  // namespace rullama
