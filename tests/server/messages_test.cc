// Anthropic's Messages API on a tiny trained model, over HTTP.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/server/client.h"
#include "tests/server/long_model_test_util.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kVersion = "anthropic-version: 2023-06-01\r\n";

json UserTurn(json content) { return {{"role", "user"}, {"content", std::move(content)}}; }

class MessagesTest : public ::testing::Test {
 protected:
  [[nodiscard]] json Answer(const json& body, const char* path = kMessages) const {
    return AskForJson(server_.port(), path, body.dump(), kVersion);
  }

  LongModelServer server_;
};

TEST_F(MessagesTest, SayTheSameWordsAsAChat) {
  const json chat =
      Answer({{"messages", {{{"role", "system"}, {"content", "Be terse."}}, UserTurn("Hello")}},
              {"max_tokens", 12},
              {"seed", 7}},
             "/v1/chat/completions");
  json body = {{"model", "tiny"},
               {"system", "Be terse."},
               {"messages", json::array({UserTurn("Hello")})},
               {"max_tokens", 12},
               {"seed", 7}};
  const json answer = Answer(body);
  EXPECT_EQ(answer["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  const json counted = Answer(body, "/v1/messages/count_tokens");
  EXPECT_EQ(counted["input_tokens"], chat["usage"]["prompt_tokens"]);
  body["messages"].push_back({{"role", "assistant"}, {"content", "It was in July,"}});
  EXPECT_THAT(Answer(body)["content"][0]["text"].get<std::string>(),
              ::testing::Not(HasSubstr("July,")));
}

TEST_F(MessagesTest, ErrorsAreInTheirDialect) {
  const std::string answer =
      Ask(server_.port(), kMessages, R"({"model": "tiny", "messages": []})", kVersion);
  EXPECT_EQ(StatusOf(answer), 400);
  EXPECT_THAT(answer, HasSubstr("Request-Id: req_"));
  const json error = json::parse(BodyOf(answer));
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], "invalid_request_error");
  EXPECT_EQ(StatusOf(Ask(server_.port(), "/v1/messages/batches", "{}")), 404);
  json body = {{"model", "tiny"}, {"max_tokens", 1}, {"messages", json::array({UserTurn("")})}};
  for (int i = 0; i < 9000; ++i) {
    body["messages"][0]["content"].get_ref<std::string&>() += "a b ";
  }
  const std::string refused = Ask(server_.port(), kMessages, body.dump());
  EXPECT_THAT(refused, HasSubstr("\"prompt is too long: "));
}

// As Claude Code asks: a billing header that changes, a long system text with tools, and calls
// whose results come back.
TEST_F(MessagesTest, EachPromptOfAnAgentIsReused) {
  std::string rules = "You are an agent. ";
  while (rules.size() < 16'000) rules += "Do what the prince asks, and tell him of the war. ";
  const json tools = json::parse(R"([{"name": "read_file", "description": "Reads a file.",
      "input_schema": {"type": "object", "properties": {"path": {"type": "string"}},
                       "required": ["path"]}}])");
  json messages = json::array({UserTurn("Read the files.")});
  for (int turn = 0; turn < 20; ++turn) {
    const std::string id = "toolu_" + std::to_string(turn);
    const json body = {
        {"model", "tiny"},
        {"max_tokens", 1},
        {"system",
         {{{"type", "text"}, {"text", "x-anthropic-billing-header: cch=" + id + ";"}},
          {{"type", "text"}, {"text", rules}, {"cache_control", {{"type", "ephemeral"}}}}}},
        {"tools", tools},
        {"messages", messages}};
    const json usage = Answer(body)["usage"];
    const auto cached = usage["cache_read_input_tokens"].get<double>();
    const double prompt = cached + usage["input_tokens"].get<double>();
    if (turn > 0) {
      EXPECT_GE(cached, 0.95 * prompt) << turn << " " << usage;
    }
    const json call = {{"type", "tool_use"},
                       {"id", id},
                       {"name", "read_file"},
                       {"input", {{"path", "chapter" + std::to_string(turn)}}}};
    const json text = {{"type", "text"}, {"text", "I look."}};
    messages.push_back({{"role", "assistant"}, {"content", json::array({text, call})}});
    const json result = {
        {"type", "tool_result"},
        {"tool_use_id", id},
        {"content", "It was in July, 1805, and the speaker was Anna Pavlovna Scherer."}};
    messages.push_back(UserTurn(json::array({result})));
  }
}

TEST_F(MessagesTest, AnotherQuestionAboutADocumentReadsTheQuestionAlone) {
  std::string document;
  while (document.size() < 6'000) document += "Anna Pavlovna spoke of the prince and of the war. ";
  for (const std::string gap : {"\n\n", "\n"}) {
    json usage;
    for (const std::string question : {"Who is the prince?", "Where was the war, and when?"}) {
      usage =
          Answer({{"model", "tiny"},
                  {"max_tokens", 1},
                  {"messages", json::array({UserTurn(gap + document + gap + question)})}})["usage"];
    }
    EXPECT_LE(usage["input_tokens"].get<int>(), 40) << usage;
    EXPECT_GE(usage["cache_read_input_tokens"].get<int>(), 1'000) << usage;
  }
}

}  // namespace
}  // namespace rullama::server
