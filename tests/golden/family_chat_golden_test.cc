// Conversations of FunctionGemma and TranslateGemma: prompts and parsed answers against goldens of
// the specification, in the vocabulary of a tiny Gemma 3 with FunctionGemma's markers. Needs
// ../shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary_from_gguf.h"
#include "engine/api/engine.h"
#include "models/gemma3/chat/function_parser.h"
#include "models/gemma3/chat/template.h"
#include "models/gemma3/gemma3_model.h"
#include "models/registry.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";

std::vector<Json> Lines(const std::string& name) {
  std::ifstream file(kShared + "/goldens/" + name);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

class FamilyChatGolden : public ::testing::Test {
 protected:
  // Compares prompts with all lines of a golden file.
  void CheckPrompts(const std::string& name, gemma3::ChatForm form, const Model& model) {
    for (const Json& line : Lines(name)) {
      SCOPED_TRACE(line["name"].get<std::string>());
      const Json tools = line.value("tools", Json());
      const auto prompt = Must(gemma3::Render(line["messages"], tools, {.form = form}));
      EXPECT_EQ(prompt.ToString(), line["prompt"]);
      EXPECT_EQ(Must(model.EncodeChat(*tokenizer_, line["messages"], tools, {})).ids,
                line["ids"].get<std::vector<TokenId>>());
    }
  }
  [[nodiscard]] static std::string ErrorOf(gemma3::ChatForm form, const std::string& messages) {
    const auto prompt = gemma3::Render(Json::parse(messages), Json(), {.form = form});
    return prompt ? "none" : prompt.error().ToString();
  }

  GgufFile file_ = Must(GgufFile::Open(kShared + "/models/family/tiny-gemma3-f16.gguf"));
  std::shared_ptr<const Tokenizer> tokenizer_ =
      Must(Tokenizer::Build(Must(VocabularyFromGguf(file_))));
};

TEST_F(FamilyChatGolden, PromptsWithFunctions) {
  const auto model = Must(OpenModel(file_));
  EXPECT_FALSE(model->AnswerMarkers().empty()) << "its markers tell that it calls functions";
  CheckPrompts("functiongemma/render.jsonl", gemma3::ChatForm::kFunctions, *model);
}

TEST_F(FamilyChatGolden, PromptsOfTranslations) {
  const Gemma3Model model({}, {}, gemma3::ChatForm::kTranslation, {});
  CheckPrompts("translategemma/render.jsonl", gemma3::ChatForm::kTranslation, model);
}

TEST_F(FamilyChatGolden, LanguagesInAText) {
  const auto render = [](const std::string& text) {
    const Json messages = {{{"role", "user"}, {"content", text}}};
    return Must(gemma3::Render(messages, Json(), {.form = gemma3::ChatForm::kTranslation}))
        .ToString();
  };
  EXPECT_THAT(render("<<<source>>>en<<<target>>>zh-CN<<<text>>> Hi "),
              HasSubstr("English (en) to Chinese (zh-CN) translator."));
  EXPECT_EQ(render("You are a professional translator. Hi"),
            "<bos><start_of_turn>user\nYou are a professional translator. Hi<end_of_turn>\n"
            "<start_of_turn>model\n");
}

TEST_F(FamilyChatGolden, RefusedTranslations) {
  const auto error = [](const std::string& messages) {
    return ErrorOf(gemma3::ChatForm::kTranslation, messages);
  };
  EXPECT_THAT(error(R"([{"role": "user", "content": "Hi"}])"), HasSubstr("source_lang_code"));
  EXPECT_THAT(error(R"([{"role": "system", "content": "Hi"}])"), HasSubstr("expected 'user'"));
  EXPECT_THAT(error(R"([{"role": "user", "content": [{"type": "text", "text": "Hi",
                       "source_lang_code": "en", "target_lang_code": "xx"}]}])"),
              HasSubstr("'xx' has no name"));
  EXPECT_THAT(error(R"([{"role": "user", "content": [{"type": "text", "text": "Hi",
                       "source_lang_code": "en"}]}])"),
              HasSubstr("target_lang_code"));
}

TEST_F(FamilyChatGolden, RefusedFunctionChats) {
  const auto error = [](const std::string& messages) {
    return ErrorOf(gemma3::ChatForm::kFunctions, messages);
  };
  const std::string call = R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
                              "arguments": {"a": "x<escape>y"}}}]})";
  EXPECT_THAT(error("[" + call + "]"), HasSubstr("chat.escape"));
  const std::string open = R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})";
  EXPECT_THAT(error("[" + open + R"(, {"role": "user", "content": "Hi"}])"),
              HasSubstr("have no results"));
}

// What a parser makes of a text that arrives in two pieces.
Json Parsed(std::string_view text, size_t cut) {
  gemma3::FunctionParser parser;
  std::vector<OutputEvent> events = parser.Feed(text.substr(0, cut));
  for (auto& event : parser.Feed(text.substr(cut))) events.push_back(std::move(event));
  for (auto& event : parser.Finish()) events.push_back(std::move(event));
  Json result = {{"content", ""}, {"calls", Json::array()}};
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::kToolCall) {
      result["calls"].push_back({{"name", event.call.name}, {"arguments", event.call.arguments}});
    } else {
      result["content"] = result["content"].get<std::string>() + event.text;
    }
  }
  return result;
}

TEST(FunctionParserGolden, AnswersCutAtEveryByte) {
  for (Json& line : Lines("functiongemma/parse.jsonl")) {
    const std::string text = line["text"];
    line.erase("text");
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      // As text, so that 1000 and 1000.0 differ.
      EXPECT_EQ(Parsed(text, cut).dump(), line.dump()) << text << " cut at " << cut;
    }
  }
}

// A call that was forced has the types and the members that its schema asks for, whatever the
// model would have written.
TEST(FunctionCalls, AForcedCallParsesBackToItsSchema) {
  const auto engine = Must(Engine::Open({.model = kShared + "/models/family/tiny-gemma3-f16.gguf",
                                         .backend = "cpu",
                                         .settings = {{"context.capacity", "1024"}},
                                         .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}}));
  Request request{.messages = R"([{"role": "user", "content": "How warm is it in Tokyo?"}])",
                  .tools = R"([{"type": "function", "function": {"name": "get_weather",
                      "description": "The weather", "parameters": {"type": "object",
                      "properties": {"city": {"type": "string", "enum": ["Tokyo", "Oslo"]},
                                     "days": {"type": "integer", "enum": [1, 3]},
                                     "exact": {"type": "boolean"}},
                      "required": ["city", "days", "exact"]}}}])",
                  .max_tokens = 200};
  request.parallel_tool_calls = false;
  for (const bool named : {false, true}) {
    request.tool_choice = ToolChoice::kRequired;
    if (named) request.allowed_tools = {"get_weather"};
    for (int64_t seed = 0; seed < 3; ++seed) {
      request.sampling.seed = seed;
      Generation generation = Must(engine->Submit(request));
      const Completion answer = Must(generation.Wait());
      ASSERT_EQ(answer.tool_calls.size(), 1u) << answer.text;
      EXPECT_EQ(answer.tool_calls[0].name, "get_weather");
      const Json arguments = Json::parse(answer.tool_calls[0].arguments);
      EXPECT_EQ(arguments.size(), 3u) << arguments;
      EXPECT_TRUE(arguments.at("city") == "Tokyo" || arguments.at("city") == "Oslo") << arguments;
      EXPECT_TRUE(arguments.at("days") == 1 || arguments.at("days") == 3) << arguments;
      EXPECT_TRUE(arguments.at("exact").is_boolean()) << arguments;
    }
  }
  request.tool_choice = ToolChoice::kNone;
  request.max_tokens = 8;
  Generation generation = Must(engine->Submit(request));
  EXPECT_TRUE(Must(generation.Wait()).tool_calls.empty());
}

TEST(FunctionParserGolden, SpacesAroundCallsAreDropped) {
  const Json parsed = Parsed(" a \n<start_function_call>call:f{}<end_function_call> b ", 3);
  EXPECT_EQ(parsed["content"], "a \n b");
  EXPECT_EQ(Parsed("a \n", 1)["content"], "a \n") << "without a call nothing is lost";
}

}  // namespace
}  // namespace rullama
