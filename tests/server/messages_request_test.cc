// Bodies of Anthropic's Messages API: what becomes of them, and which are refused where.
#include "server/anthropic/messages_request.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_format.h"
#include "server/anthropic/anthropic_tools.h"
#include "server/http/query.h"
#include "server/json_body.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ApiResult<MessagesRequest> ReadMembers(const std::string& members, bool counted = false) {
  const std::string text = R"({"model": "m", )" + members + "}";
  const auto body = ParseBody(text);
  if (!body) return tl::unexpected(body.error());
  const BodyContext context{.text = text, .slots = 4, .capacity = 256};
  return counted ? ReadCountedRequest(*body, context) : ReadMessagesRequest(*body, context);
}

constexpr const char* kAskMembers =
    R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}])";

// The engine's messages for the value of `messages`.
json MessagesOf(const std::string& messages, const std::string& members = "") {
  const auto request = ReadMembers(R"("max_tokens": 8, "messages": )" + messages + members);
  EXPECT_TRUE(request) << request.error().message;
  return request ? json::parse(request->answer.prompts.front().messages) : json();
}

TEST(MessagesRequestTest, BlocksBecomeMessages) {
  const json messages = MessagesOf(R"([
      {"role": "user", "content": [{"type": "text", "text": "Weather?", "cache_control": {}}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"city": "Tula"}}]},
      {"role": "user", "content": [
        {"type": "text", "text": "So?"},
        {"type": "tool_result", "tool_use_id": "c", "content": "20"}]}])");
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[0]["content"][0]["text"], "Weather?");
  // The model writes its calls after its text.
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  EXPECT_EQ(messages[1]["content"], "I look.");
  EXPECT_EQ(messages[2]["content"], "");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"]["city"], "Tula");
  EXPECT_EQ(messages[3], json({{"role", "tool"}, {"tool_call_id", "c"}, {"content", "20"}}));
  EXPECT_EQ(messages[4]["content"][0]["text"], "So?");
}

TEST(MessagesRequestTest, NeighboursAreOneTurn) {
  const json messages = MessagesOf(R"([
      {"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"},
      {"role": "system", "content": [{"type": "text", "text": "e"}, {"type": "text", "text": "f"}]},
      {"role": "user", "content": "g"}])");
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0]["content"], json::parse(R"([{"type": "text", "text": "a"},
                                                    {"type": "text", "text": "b"}])"));
  EXPECT_EQ(messages[1]["content"], "cd");
  EXPECT_EQ(messages[2]["content"], "e\n\nf");
  EXPECT_EQ(messages[3]["content"], "g");
}

TEST(MessagesRequestTest, ResultsStandAfterTheirCallsWithTheirPictures) {
  const std::string picture =
      R"({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ")";
  const auto request = ReadMembers(
      R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": [
          {"type": "tool_use", "id": "c", "name": "f", "input": {}},
          {"type": "tool_use", "id": "d", "name": "f", "input": {}}]},
        {"role": "system", "content": "s"},
        {"role": "user", "content": [)" +
      picture + R"(QQ=="}}, {"type": "tool_result", "tool_use_id": "d", "is_error": true,
         "content": [{"type": "text", "text": "no"}]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [)" +
      picture + R"(Qg=="}}]}]}])");
  ASSERT_TRUE(request) << request.error().message;
  const Request& prompt = request->answer.prompts.front();
  const json messages = json::parse(prompt.messages);
  std::vector<std::string> roles;
  for (const json& message : messages) roles.push_back(message["role"]);
  EXPECT_THAT(roles, ElementsAre("user", "assistant", "tool", "tool", "system", "user"));
  EXPECT_EQ(messages[2]["content"], json({{"value", {{"error", "no"}}}}));
  EXPECT_EQ(messages[3]["content"], json::parse(R"([{"type": "image"}])"));
  ASSERT_EQ(prompt.media.size(), 2U);
  EXPECT_EQ(prompt.media[0].bytes, "B");  // that of the result, which comes first
  EXPECT_EQ(prompt.media[1].bytes, "A");
}

TEST(MessagesRequestTest, BillingHeadersAreNoText) {
  const std::string ask = R"([{"role": "user", "content": "x-anthropic-billing-header: mine"}])";
  const std::string header = R"({"type": "text", "text": "x-anthropic-billing-header: cch=1;"})";
  EXPECT_EQ(MessagesOf(ask).size(), 1U);
  EXPECT_EQ(MessagesOf(ask, R"(, "system": [)" + header + "]").size(), 1U);
  EXPECT_EQ(MessagesOf(ask, R"(, "system": "")").size(), 1U);
  const json both = MessagesOf(ask, R"(, "system": [{"type": "text", "text": "A"}, )" + header +
                                        R"(, {"type": "text", "text": "B"}])");
  EXPECT_EQ(both[0], json({{"role", "system"}, {"content", "A\n\nB"}}));
  EXPECT_EQ(MessagesOf(ask, R"(, "system": "x-anthropic-billing-header: 1;\nA")")[0]["content"],
            "\nA");
}

TEST(MessagesRequestTest, DocumentsAreTexts) {
  const json messages = MessagesOf(R"([{"role": "user", "content": [
      {"type": "document", "title": "War", "source": {"type": "text", "media_type": "text/plain",
       "data": "1812"}},
      {"type": "document", "source": {"type": "content",
       "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}]}])");
  EXPECT_EQ(messages[0]["content"][0]["text"], "War\n\n1812");
  EXPECT_EQ(messages[0]["content"][1]["text"], "a\n\nb");
}

TEST(MessagesRequestTest, MembersReachTheEngine) {
  const auto request = ReadMembers(R"("messages": [{"role": "user", "content": "a"}],
      "stop_sequences": ["x", "y"], "temperature": 0, "seed": 3, "stream": true, "max_tokens": 32000,
      "thinking": {"type": "enabled", "budget_tokens": 100, "display": "omitted"},
      "tools": [{"name": "later", "input_schema": {"type": "object"}, "defer_loading": true},
                {"name": "f", "type": "custom", "strict": true,
                 "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}}],
      "tool_choice": {"type": "tool", "name": "f"},
      "metadata": {"user_id": "u"}, "context_management": {"edits": []}, "frobnicate": 1)");
  ASSERT_TRUE(request) << request.error().message;
  const AnswerRequest& answer = request->answer;
  const Request& prompt = answer.prompts.front();
  EXPECT_THAT(prompt.stop, ElementsAre("x", "y"));
  EXPECT_EQ(prompt.sampling.seed, 3);
  EXPECT_EQ(prompt.max_tokens, 32000);
  EXPECT_EQ(prompt.thinking, true);
  EXPECT_EQ(prompt.max_thought_tokens, 100);
  EXPECT_TRUE(answer.stream);
  EXPECT_TRUE(request->omits_thoughts);
  EXPECT_TRUE(request->edits_context);
  EXPECT_THAT(answer.ignored, ElementsAre("context_management", "frobnicate"));
  EXPECT_EQ(prompt.tools,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
            R"("properties":{"b":{},"a":{}}},"strict":true}}])");
  EXPECT_EQ(prompt.tool_choice, ToolChoice::kRequired);
  EXPECT_THAT(prompt.allowed_tools, ElementsAre("f"));
  EXPECT_FALSE(prompt.parallel_tool_calls);
  EXPECT_EQ(answer.place_in_body("tools[0].function.parameters.properties.b"),
            "tools[1].input_schema.properties.b");
  EXPECT_EQ(answer.place_in_body("tools[0].function.name"), "tools[1].name");
  EXPECT_EQ(answer.place_in_body("messages[3].content"), "messages");
}

TEST(MessagesRequestTest, TheLastTurnOfTheAssistantIsContinued) {
  constexpr const char* kBegun =
      R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"},
         {"role": "assistant", "content": "It was"}])";
  const auto request = ReadMembers(kBegun);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->answer.prompts.front().continue_last);
  EXPECT_FALSE(ReadMembers(kAskMembers)->answer.prompts.front().continue_last);
  for (const char* with : {R"(, "thinking": {"type": "adaptive"})",
                           R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any"})"}) {
    EXPECT_EQ(ReadMembers(std::string(kBegun) + with).error().param, "messages") << with;
  }
}

TEST(MessagesRequestTest, ACountNeedsNoTokensToWrite) {
  const std::string prompt = R"("messages": [{"role": "user", "content": "a"}],
                                "thinking": {"type": "enabled", "budget_tokens": 9})";
  EXPECT_TRUE(ReadMembers(prompt, /*counted=*/true));
  EXPECT_EQ(ReadMembers(prompt).error().param, "max_tokens");
  const std::string few = prompt + R"(, "max_tokens": 8)";
  EXPECT_TRUE(ReadMembers(few, /*counted=*/true));
  EXPECT_EQ(ReadMembers(few).error().param, "thinking.budget_tokens");
}

struct Fault {
  const char* members;
  const char* param;
};

TEST(MessagesRequestTest, FaultsAreNamedByTheirPlace) {
  constexpr Fault kFaults[] = {
      {R"("max_tokens": 8, "messages": [])", "messages"},
      {R"("max_tokens": 8, "messages": [1])", "messages[0]"},
      {R"("max_tokens": 8, "messages": [{"role": "tool", "content": "a"}])", "messages[0].role"},
      {R"("max_tokens": 8, "messages": [{"role": "user"}])", "messages[0].content"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": [{}]}])",
       "messages[0].content[0].type"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": [{"type": "tool_use"}]}])",
       "messages[0].content[0].type"},
      {R"("max_tokens": 8, "messages": [{"role": "assistant", "content": [{"type": "image"}]}])",
       "messages[0].content[0].type"},
      {R"("max_tokens": 8, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "f", "input": "{}"}]}])",
       "messages[0].content[0].input"},
      {R"("max_tokens": 8, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "f", "input": {}}]}])",
       "messages[0].content"},
      {R"("max_tokens": 8, "messages": [{"role": "assistant", "content": "a "}])",
       "messages[0].content"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c"}]}])",
       "messages[0].content[0].tool_use_id"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "http://x"}}]}])",
       "messages[0].content[0].source.type"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/tiff"}}]}])",
       "messages[0].content[0].source.media_type"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "base64", "data": "A"}}]}])",
       "messages[0].content[0].source.type"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}], "top_k": -1)", "top_k"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "stop_sequences": ["a", ""])",
       "stop_sequences[1]"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "thinking": {"type": "enabled", "budget_tokens": 8})",
       "thinking.budget_tokens"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "output_config": {"format": {"type": "xml"}})",
       "output_config.format.type"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "guided_json": {"type": "object"})",
       "guided_json"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "tools": [{"type": "bash_20250124", "name": "bash"}])",
       "tools[0].type"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "tools": [{"name": "f", "input_schema": {"type": "string"}}])",
       "tools[0].input_schema"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}],
          "tool_choice": {"type": "any"})",
       "tool_choice"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}], "container": "c")",
       "container"},
      {R"("max_tokens": 8, "messages": [{"role": "user", "content": "a"}], "mcp_servers": [{}])",
       "mcp_servers"},
  };
  for (const Fault& row : kFaults) {
    const auto request = ReadMembers(row.members);
    ASSERT_FALSE(request) << row.members;
    EXPECT_EQ(request.error().param, row.param) << row.members;
    EXPECT_EQ(request.error().status, 400) << row.members;
  }
}

// The documents of the events of a stream, whose names are their types.
std::vector<json> EventsOf(const std::string& stream) {
  std::vector<json> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t data = stream.find("\ndata: ", at);
    const size_t end = stream.find("\n\n", data);
    EXPECT_EQ(stream.substr(at, 7), "event: ") << stream;
    events.push_back(json::parse(stream.substr(data + 7, end - data - 7)));
    EXPECT_EQ(stream.substr(at + 7, data - at - 7), events.back()["type"]);
    at = end + 2;
  }
  return events;
}

TEST(MessagesFormatTest, AStreamHasTheBlocksOfTheAnswer) {
  AnswerIdentity identity;
  identity.model = "m";
  const std::vector<Event> parts = {
      {.kind = Event::Kind::kProgress, .done = 4, .total = 9, .reused = 4},
      {.kind = Event::Kind::kThinking, .text = "h"},
      {.kind = Event::Kind::kThinking, .text = "m"},
      {.text = "a"},
      {.kind = Event::Kind::kToolCall, .call = {.name = "f", .arguments = R"({"x":1})"}}};
  Choice choice;
  choice.completion.tool_calls = {parts.back().call};
  choice.completion.ids = {1, 2, 3};
  choice.completion.prompt_tokens = 9;
  choice.completion.cached_tokens = 4;
  const auto streamed = MakeMessagesFormat(identity, {.edits_context = true});
  const auto whole = MakeMessagesFormat(identity, {});
  std::string stream = streamed->Begin(1);
  for (const Event& part : parts) {
    stream += streamed->Part(0, part);
    whole->Watch(0, part);
  }
  stream += streamed->End(0, choice) + streamed->Last({choice});
  const std::vector<json> events = EventsOf(stream);
  std::vector<std::string> types;
  for (const json& event : events) types.push_back(event["type"]);
  EXPECT_THAT(types,
              ElementsAre("message_start", "content_block_start", "ping", "content_block_delta",
                          "content_block_delta", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "content_block_stop",
                          "message_delta", "message_stop"));
  const json usage = events[0]["message"]["usage"];
  EXPECT_EQ(usage["input_tokens"], 5);
  EXPECT_EQ(usage["cache_read_input_tokens"], 4);
  EXPECT_EQ(events[5]["delta"]["type"], "signature_delta");
  EXPECT_EQ(events[11]["delta"]["partial_json"], R"({"x":1})");
  EXPECT_EQ(events[13]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[13]["usage"]["output_tokens"], 3);
  EXPECT_THAT(events[13]["context_management"]["applied_edits"], IsEmpty());
  const json answer = json::parse(whole->Whole({choice}));
  ASSERT_EQ(answer["content"].size(), 3U);
  EXPECT_EQ(answer["content"][0]["thinking"], "hm");
  EXPECT_EQ(answer["content"][1], json({{"type", "text"}, {"text", "a"}}));
  EXPECT_EQ(answer["content"][2]["input"]["x"], 1);
  EXPECT_EQ(answer["stop_reason"], "tool_use");
}

TEST(MessagesFormatTest, AnAnswerWithoutPartsHasNoBlocks) {
  AnswerIdentity identity;
  const auto format = MakeMessagesFormat(identity, {});
  Choice choice;
  choice.completion.reason = StopReason::kStopped;
  choice.completion.stop_text = "x";
  const std::vector<json> events = EventsOf(format->End(0, choice) + format->Last({choice}));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1]["delta"], json({{"stop_reason", "stop_sequence"}, {"stop_sequence", "x"}}));
}

TEST(QueryTest, MembersAreFoundWithoutTheirEscapes) {
  constexpr std::string_view kQuery = "limit=20&after_id=a%3Ab&empty&bad=%4";
  EXPECT_EQ(QueryOf("/v1/models?limit=20#top"), "limit=20");
  EXPECT_EQ(QueryOf("/v1/models"), "");
  EXPECT_EQ(QueryValue(kQuery, "limit"), "20");
  EXPECT_EQ(QueryValue(kQuery, "after_id"), "a:b");
  EXPECT_EQ(QueryValue(kQuery, "empty"), "");
  EXPECT_EQ(QueryValue(kQuery, "bad"), std::nullopt);
  EXPECT_EQ(QueryValue(kQuery, "id"), std::nullopt);
}

TEST(ApiErrorTest, EachDialectHasItsForm) {
  const ApiError error = MakeApiError("queue_full", "full", "n");
  EXPECT_EQ(DialectOf("/v1/messages/count_tokens"), Dialect::kAnthropic);
  EXPECT_EQ(DialectOf("/messages"), Dialect::kAnthropic);
  EXPECT_EQ(DialectOf("/v1/messagesx"), Dialect::kOpenAi);
  EXPECT_EQ(DialectOf("/v1/models"), Dialect::kOpenAi);
  EXPECT_EQ(DialectOf("/v1/models/a", /*has_version=*/true), Dialect::kAnthropic);
  EXPECT_EQ(json::parse(ErrorBody(Dialect::kAnthropic, error, "req_1")), json::parse(R"({
      "type": "error", "request_id": "req_1",
      "error": {"type": "rate_limit_error", "message": "full", "code": "queue_full",
                "param": "n"}})"));
}

}  // namespace
}  // namespace rullama::server
