// Bodies of requests: what is read, what is refused and with which code.
#include <gmock/gmock.h>

#include <string>

#include "server/chat_request.h"
#include "server/json_body.h"

namespace rullama::server {
namespace {

using ::testing::ElementsAre;

std::string CodeOfBody(std::string_view body) {
  const auto parsed = ParseBody(body);
  return parsed ? "ok" : parsed.error().code;
}

std::string Nested(size_t depth) {
  return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
}

TEST(JsonBodyTest, EachFaultHasItsCode) {
  EXPECT_EQ(CodeOfBody(R"({"a": 1})"), "ok");
  EXPECT_EQ(CodeOfBody(""), "json.syntax");
  EXPECT_EQ(CodeOfBody(R"({"a": 1} x)"), "json.syntax");
  EXPECT_EQ(CodeOfBody(R"({"a": 1e999})"), "json.syntax");
  EXPECT_EQ(CodeOfBody(R"({"a": NaN})"), "json.syntax");
  EXPECT_EQ(CodeOfBody("[]"), "invalid_type");
  EXPECT_EQ(CodeOfBody("{\"a\": \"\xC0\xAF\"}"), "json.utf8");
  EXPECT_EQ(CodeOfBody(R"({"a": "\ud800"})"), "json.utf8");
  EXPECT_EQ(CodeOfBody(R"({"a": 1, "a": 2})"), "json.duplicate_key");
  EXPECT_EQ(CodeOfBody(R"({"a": {"b": 1}, "c": {"b": 1}})"), "ok");
  EXPECT_EQ(CodeOfBody(Nested(kMaxJsonDepth)), "ok");
  EXPECT_EQ(CodeOfBody(Nested(kMaxJsonDepth + 1)), "json.depth");
  EXPECT_EQ(CodeOfBody(Nested(1'000'000)), "json.depth");
}

TEST(JsonBodyTest, TheNumberOfValuesHasALimit) {
  std::string list = R"({"a":[0)";  // the object and the list count
  for (size_t i = 3; i < kMaxJsonValues; ++i) list += ",0";
  EXPECT_EQ(CodeOfBody(list + "]}"), "ok");
  EXPECT_EQ(CodeOfBody(list + ",0]}"), "json.size");
}

// The members of a chat request beside its messages, and the code and place they are refused with.
struct Row {
  const char* members;
  const char* code;
  const char* param;
};

constexpr Row kRows[] = {
    {R"("temperature": 0)", "ok", ""},
    {R"("temperature": 100)", "ok", ""},
    {R"("temperature": 100.1)", "invalid_value", "temperature"},
    {R"("temperature": -0.1)", "invalid_value", "temperature"},
    {R"("temperature": true)", "invalid_type", "temperature"},
    {R"("temperature": null)", "ok", ""},
    {R"("max_tokens": 1)", "ok", ""},
    {R"("max_tokens": 0)", "invalid_value", "max_tokens"},
    {R"("max_tokens": 1.0)", "invalid_type", "max_tokens"},
    {R"("max_completion_tokens": 0)", "invalid_value", "max_completion_tokens"},
    {R"("seed": 0)", "ok", ""},
    {R"("seed": -1)", "invalid_value", "seed"},
    {R"("seed": 9223372036854775808)", "invalid_value", "seed"},
    {R"("stop": "a")", "ok", ""},
    {R"("stop": [])", "ok", ""},
    {R"("stop": "")", "invalid_value", "stop"},
    {R"("stop": [1])", "invalid_type", "stop"},
    {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
     "invalid_value", "stop"},
    {R"("logit_bias": {"5": 100})", "ok", ""},
    {R"("logit_bias": {"5": 101})", "invalid_value", "logit_bias"},
    {R"("logit_bias": {"x": 1})", "invalid_value", "logit_bias"},
    {R"("logit_bias": [1])", "invalid_type", "logit_bias"},
    {R"("n": 2)", "not_implemented", "n"},
    {R"("n": 0)", "invalid_value", "n"},
    {R"("logprobs": true)", "not_implemented", "logprobs"},
    {R"("response_format": {"type": "text"})", "ok", ""},
    {R"("response_format": {"type": "json_object"})", "not_implemented", "response_format.type"},
    {R"("response_format": {"type": "xml"})", "invalid_value", "response_format.type"},
    {R"("response_format": {})", "missing_required_parameter", "response_format.type"},
    {R"("tool_choice": "required")", "not_implemented", "tool_choice"},
    {R"("tool_choice": "none", "tools": [{}])", "not_implemented", "tool_choice"},
    {R"("tool_choice": "maybe")", "invalid_value", "tool_choice"},
    {R"("functions": [])", "unsupported_parameter", "functions"},
    {R"("store": true)", "unsupported_value", "store"},
    {R"("store": false)", "ok", ""},
    {R"("stream_options": {"include_usage": true})", "invalid_value", "stream_options"},
    {R"("stream": true, "stream_options": {"include_usage": 1})", "invalid_type",
     "stream_options.include_usage"},
    {R"("reasoning_effort": "high")", "ok", ""},
    {R"("reasoning_effort": "much")", "invalid_value", "reasoning_effort"},
    {R"("reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true})",
     "invalid_value", "chat_template_kwargs.enable_thinking"},
    {R"("chat_template_kwargs": {"other": true})", "unsupported_parameter",
     "chat_template_kwargs.other"},
};

ApiResult<CompletionRequest> ReadChat(const std::string& members) {
  const auto body =
      ParseBody(R"({"messages": [{"role": "user", "content": "Hi"}], )" + members + "}");
  if (!body) return tl::unexpected(body.error());
  return ReadChatRequest(*body);
}

TEST(ChatRequestTest, MembersAreCheckedOneByOne) {
  for (const Row& row : kRows) {
    const auto request = ReadChat(row.members);
    EXPECT_EQ(request ? "ok" : request.error().code, row.code) << row.members;
    const std::string param = request ? "" : request.error().param.value_or("");
    EXPECT_EQ(param, row.param) << row.members;
  }
}

TEST(ChatRequestTest, ValuesReachTheEngine) {
  const auto request = ReadChat(
      R"("model": "m", "temperature": 0.5, "top_k": 7, "seed": 11, "max_tokens": 9,
         "max_completion_tokens": 5, "stop": ["x", "y"], "stream": true,
         "stream_options": {"include_usage": true}, "logit_bias": {"5": -100, "6": 1.5},
         "reasoning_effort": "low", "cache_prompt": false, "user": "me", "odd": 1)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->request.sampling.temperature, 0.5);
  EXPECT_EQ(request->request.sampling.top_k, 7);
  EXPECT_EQ(request->request.sampling.seed, 11);
  EXPECT_EQ(request->request.max_tokens, 5);
  EXPECT_THAT(request->request.stop, ElementsAre("x", "y"));
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_EQ(request->request.sampling.logit_bias.at(5), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(request->request.sampling.logit_bias.at(6), 1.5F);
  EXPECT_EQ(request->request.thinking, true);
  EXPECT_FALSE(request->request.reuse_prefix);
  EXPECT_THAT(request->ignored, ElementsAre("odd"));
}

TEST(TextRequestTest, PromptsAreTextsOrIds) {
  const auto code = [](const char* text) {
    const auto request = ReadTextRequest(*ParseBody(text));
    return request ? "ok" : request.error().code;
  };
  EXPECT_EQ(code(R"({"prompt": "a"})"), "ok");
  EXPECT_EQ(code(R"({"prompt": [1, 2]})"), "ok");
  EXPECT_EQ(code(R"({"prompt": ""})"), "invalid_value");
  EXPECT_EQ(code(R"({"prompt": [-1]})"), "invalid_type");
  EXPECT_EQ(code(R"({"prompt": ["a", "b"]})"), "not_implemented");
  EXPECT_EQ(code(R"({"prompt": 1})"), "invalid_type");
  EXPECT_EQ(code(R"({})"), "missing_required_parameter");
  EXPECT_EQ(code(R"({"prompt": "a", "echo": true})"), "not_implemented");
  EXPECT_EQ(ReadTextRequest(*ParseBody(R"({"prompt": "a"})"))->request.max_tokens, 16);
}

}  // namespace
}  // namespace rullama::server
