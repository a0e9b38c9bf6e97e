// Bodies of requests: which are read, which are refused and with which code.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/answer_format.h"
#include "server/api_keys.h"
#include "server/base64.h"
#include "server/json_body.h"
#include "server/ollama/ollama_request.h"
#include "server/openai/chat_request.h"
#include "server/openai/responses_request.h"
#include "server/running_requests.h"

namespace rullama::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_EQ(CodeOfBody(std::string(R"({"a": 1})") + '\0'), "json.syntax");
  EXPECT_EQ(CodeOfBody(std::string(R"({"a": 1})") + '\0' + R"({"a": 2})"), "json.syntax");
  const auto long_number = ParseBody(R"({"seed": )" + std::string(1000, '9') + "}");
  EXPECT_THAT(long_number.error().message, HasSubstr("too large for a double"));
  EXPECT_EQ(CodeOfBody("[]"), "invalid_type");
  EXPECT_EQ(CodeOfBody("{\"a\": \"\xC0\xAF\"}"), "json.utf8");
  EXPECT_EQ(CodeOfBody(R"({"a": "\ud800"})"), "json.utf8");
  EXPECT_EQ(CodeOfBody(R"({"a": 1, "a": 2})"), "json.duplicate_key");
  EXPECT_EQ(CodeOfBody(R"({"a": {"b": 1}, "c": {"b": 1}})"), "ok");
  EXPECT_EQ(CodeOfBody(Nested(kMaxJsonDepth)), "ok");
  EXPECT_EQ(CodeOfBody(Nested(kMaxJsonDepth + 1)), "json.depth");
  EXPECT_EQ(CodeOfBody(Nested(1'000'000)), "json.depth");
}

TEST(Base64Test, TextsComeBack) {
  std::string bytes;
  for (int i = 0; i < 260; ++i) {
    const std::string text = Base64(std::as_bytes(std::span(bytes)));
    EXPECT_EQ(FromBase64(text), bytes);
    EXPECT_EQ(FromBase64(text.substr(0, text.find('='))), bytes);
    bytes.push_back(static_cast<char>(i));
  }
  for (const char* text : {"A", "AA-_", "A===", "=AAA", "AAAA=", "AA=A", "AA==="}) {
    EXPECT_EQ(FromBase64(text), std::nullopt) << text;
  }
  // Lines of 76 characters are usual.
  for (const char* text : {"aGVsbG8=", "aGVs\r\nbG8=\r\n", " aGV sbG\t8", "aGVsbG8\n="}) {
    EXPECT_EQ(FromBase64(text), "hello") << text;
  }
}

TEST(JsonBodyTest, TheNumberOfValuesHasALimit) {
  std::string list = R"({"a":[0)";  // the object and the list count
  for (size_t i = 3; i < kMaxJsonValues; ++i) list += ",0";
  EXPECT_EQ(CodeOfBody(list + "]}"), "ok");
  EXPECT_EQ(CodeOfBody(list + ",0]}"), "json.size");
}

// The members of a chat request other than its messages, and the code and place they are refused
// with.
struct Row {
  const char* members;
  const char* code;
  const char* param;
};

constexpr Row kRows[] = {
    {R"("speculative": 4)", "invalid_type", "speculative"},
    {R"("speculative": {"max": -1})", "invalid_value", "speculative.max"},
    {R"("speculative": {"min_probability": 2})", "invalid_value", "speculative.min_probability"},
    {R"("speculative": {"p_min": 0.5})", "unsupported_parameter", "speculative.p_min"},
    {R"("temperature": 0)", "ok", ""},
    {R"("temperature": 100)", "ok", ""},
    {R"("temperature": 100.1)", "invalid_value", "temperature"},
    {R"("temperature": -0.1)", "invalid_value", "temperature"},
    {R"("temperature": true)", "invalid_type", "temperature"},
    {R"("temperature": null)", "ok", ""},
    {R"("top_p": 0)", "ok", ""},
    {R"("typical_p": 0)", "ok", ""},
    {R"("typical_p": 1.1)", "invalid_value", "typical_p"},
    {R"("repeat_penalty": 0)", "invalid_value", "repeat_penalty"},
    {R"("presence_penalty": -2)", "ok", ""},
    {R"("top_k": -1)", "ok", ""},
    {R"("top_k": -2)", "invalid_value", "top_k"},
    {R"("max_tokens": 1)", "ok", ""},
    {R"("max_tokens": -1)", "ok", ""},
    {R"("max_tokens": -2)", "invalid_value", "max_tokens"},
    {R"("max_completion_tokens": -1)", "ok", ""},
    {R"("max_tokens": 0)", "invalid_value", "max_tokens"},
    {R"("max_tokens": 1.0)", "invalid_type", "max_tokens"},
    {R"("max_completion_tokens": 0)", "invalid_value", "max_completion_tokens"},
    {R"("seed": 0)", "ok", ""},
    {R"("seed": -1)", "ok", ""},
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
    {R"("n": 4)", "ok", ""},
    {R"("n": 5)", "invalid_value", "n"},
    {R"("n": 0)", "invalid_value", "n"},
    {R"("logprobs": true, "top_logprobs": 20)", "ok", ""},
    {R"("logprobs": true, "top_logprobs": 21)", "invalid_value", "top_logprobs"},
    {R"("top_logprobs": 1)", "invalid_value", "top_logprobs"},
    {R"("response_format": {"type": "text"})", "ok", ""},
    {R"("response_format": [])", "invalid_type", "response_format"},
    {R"("response_format": {"type": "json_schema"})", "missing_required_parameter",
     "response_format.json_schema"},
    {R"("response_format": {"type": "xml"})", "invalid_value", "response_format.type"},
    {R"("response_format": {})", "missing_required_parameter", "response_format.type"},
    {R"("tool_choice": "required")", "invalid_value", "tool_choice"},
    {R"("tools": [{}])", "unsupported_value", "tools[0].type"},
    {R"("tools": [{"type": "function"}])", "missing_required_parameter", "tools[0].function"},
    {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "invalid_value",
     "tools[0].function.name"},
    {R"("tools": [{"type": "function", "function": {"name": "f"}},
                  {"type": "function", "function": {"name": "f"}}])",
     "invalid_value", "tools[1].function.name"},
    {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}])",
     "invalid_type", "tools[0].function.parameters"},
    {R"("tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": {"type": "function", "function": {"name": "g"}})",
     "invalid_value", "tool_choice.name"},
    {R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none")", "ok",
     ""},
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
    {R"("chat_template_kwargs": {"other": true})", "ok", ""},
    {R"("ignore_eos": true)", "ok", ""},
};

const BodyContext kContext = {.text = {}, .slots = 4, .capacity = 256};

ApiResult<AnswerRequest> ReadChat(const std::string& members) {
  const auto body =
      ParseBody(R"({"messages": [{"role": "user", "content": "Hi"}], )" + members + "}");
  if (!body) return tl::unexpected(body.error());
  return ReadChatRequest(*body, kContext);
}

TEST(ChatRequestTest, WhatAModelThatDenoisesDoesNotUseIsNamed) {
  BodyContext context = kContext;
  const auto read = [&context](const std::string& members) {
    return ReadChatRequest(
        *ParseBody(R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true, )" +
                   members + "}"),
        context);
  };
  const std::string drafts = R"("stream_options": {"include_drafts": true})";
  EXPECT_FALSE(read(drafts)->include_drafts);
  EXPECT_THAT(read(drafts)->ignored, ElementsAre("stream_options.include_drafts"));
  context.denoises = true;
  EXPECT_TRUE(read(drafts)->include_drafts);
  EXPECT_THAT(read(drafts)->ignored, ElementsAre());
  EXPECT_THAT(read(R"("top_k": 3, "temperature": 0.5, "seed": 1, "top_p": null)")->ignored,
              ElementsAre("temperature", "top_k"));
  EXPECT_EQ(read(R"("temperature": -1)").error().code, "invalid_value");
  EXPECT_EQ(read(R"("logit_bias": {"5": 1})").error().code, "unsupported_value");
  EXPECT_TRUE(read(R"("logit_bias": {})"));
}

TEST(ChatRequestTest, WhatAModelThatDenoisesCannotDoIsRefusedInItsPlace) {
  const Row rows[] = {
      {R"("response_format": {"type": "json_object"})", "unsupported_value", "response_format"},
      {R"("response_format": {"type": "text"})", "ok", ""},
      {R"("tools": [{"type": "function", "function": {"name": "f"}}],
          "tool_choice": "required")",
       "unsupported_value", "tool_choice"},
      {R"("tools": [{"type": "function", "function": {"name": "f"}}])", "ok", ""},
      {R"("logprobs": true)", "unsupported_value", "logprobs"},
      {R"("logprobs": false)", "ok", ""},
  };
  BodyContext context = kContext;
  for (const Row& row : rows) {
    const std::string text =
        R"({"messages": [{"role": "user", "content": "Hi"}], )" + std::string(row.members) + "}";
    context.text = text;
    context.denoises = true;
    const auto refused = ReadChatRequest(*ParseBody(text), context);
    EXPECT_EQ(refused ? "ok" : refused.error().code, row.code) << row.members;
    EXPECT_EQ(refused ? "" : refused.error().param.value_or(""), row.param) << row.members;
    context.denoises = false;
    EXPECT_TRUE(ReadChatRequest(*ParseBody(text), context)) << row.members;
  }
  context.denoises = true;
  const auto place = [&context](const auto& read, const char* text) {
    context.text = text;
    const auto request = read(*ParseBody(text), context);
    return request ? "ok" : request.error().param.value_or("");
  };
  EXPECT_EQ(place(ReadTextRequest, R"({"prompt": "a", "logprobs": 0})"), "logprobs");
  EXPECT_EQ(place(ReadOllamaGenerate, R"({"model": "m", "prompt": "a", "format": "json"})"),
            "format");
  EXPECT_EQ(place(ReadResponsesRequest, R"({"input": "a", "text": {"format":
                                        {"type": "json_object"}}})"),
            "text.format");
  EXPECT_EQ(
      place(ReadResponsesRequest, R"({"input": "a", "include": ["message.output_text.logprobs"]})"),
      "include");
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
  const Request& prompt = request->prompts.front();
  EXPECT_EQ(prompt.sampling.temperature, 0.5);
  EXPECT_EQ(prompt.sampling.top_k, 7);
  EXPECT_EQ(prompt.sampling.seed, 11);
  EXPECT_EQ(prompt.max_tokens, 5);
  EXPECT_THAT(prompt.stop, ElementsAre("x", "y"));
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_EQ(prompt.sampling.logit_bias.at(5), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(prompt.sampling.logit_bias.at(6), 1.5F);
  EXPECT_EQ(prompt.thinking, true);
  EXPECT_FALSE(prompt.reuse_prefix);
  EXPECT_THAT(request->ignored, ElementsAre("odd"));
}

TEST(ChatRequestTest, DraftsAreLimited) {
  const auto limits = [](const std::string& members) {
    const auto request = ReadChat(members);
    EXPECT_TRUE(request) << members;
    const Request& prompt = request->prompts.front();
    return std::pair(prompt.max_draft, prompt.min_draft_probability);
  };
  EXPECT_EQ(limits(R"("n": 1)"), std::pair(int64_t{-1}, -1.0));
  EXPECT_EQ(limits(R"("speculative": {"max": 0})"), std::pair(int64_t{0}, -1.0));
  EXPECT_EQ(limits(R"("speculative": {"max": 4, "min_probability": 0.5})"),
            std::pair(int64_t{4}, 0.5));
  EXPECT_EQ(limits(R"("speculative.n_max": 3, "speculative.p_min": 0.25)"),
            std::pair(int64_t{3}, 0.25));
}

TEST(ChatRequestTest, FormsOfTheOutputReachTheEngineInTheOrderOfTheBody) {
  const std::string text = R"({"messages": [{"role": "user", "content": "Hi"}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters":
          {"type": "object", "properties": {"z": {}, "a": {}}}}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}},
      "parallel_tool_calls": false,
      "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
          {"type": "object", "properties": {"zebra": true, "apple": [1.5, ")"
                           "\\u0041"
                           R"(", null]}}}}})";
  BodyContext context = kContext;
  context.text = text;
  const auto request = ReadChatRequest(*ParseBody(text), context);
  ASSERT_TRUE(request) << request.error().message;
  const Request& prompt = request->prompts.front();
  EXPECT_EQ(prompt.json_schema,
            R"({"type":"object","properties":{"zebra":true,"apple":[1.5,"A",null]}})");
  EXPECT_THAT(prompt.tools, HasSubstr(R"("properties":{"z":{},"a":{}})"));
  EXPECT_EQ(prompt.tool_choice, ToolChoice::kRequired);
  EXPECT_THAT(prompt.allowed_tools, ElementsAre("f"));
  EXPECT_FALSE(prompt.parallel_tool_calls);
}

// Another server's name for a form does not excuse free text.
TEST(ChatRequestTest, FormsOfOtherServersAreKeptTo) {
  const auto read = [](const std::string& members, bool chat) {
    const std::string text =
        (chat ? R"({"messages": [{"role": "user", "content": "Hi"}], )" : R"({"prompt": "Hi", )") +
        members + "}";
    BodyContext context = kContext;
    context.text = text;
    const auto body = ParseBody(text);
    return chat ? ReadChatRequest(*body, context) : ReadTextRequest(*body, context);
  };
  const std::string schema = R"({"type":"object","properties":{"z":{},"a":{}}})";
  const std::string quoted = nlohmann::json(schema).dump();
  const std::string schemas[] = {
      R"("response_format": {"type": "json_object", "schema": )" + schema + "}",
      R"("response_format": {"type": "json_schema", "schema": )" + schema + "}",
      R"("response_format": {"type": "json_object", "json_schema": {"name": "n", "schema": )" +
          schema + "}}",
      R"("structured_outputs": {"json": )" + schema + "}",
      R"("structured_outputs": {"json": )" + quoted + R"(, "regex": null})",
      R"("guided_json": )" + schema,
      R"("guided_json": )" + quoted,
      R"("json_schema": )" + schema + R"(, "grammar": "", "response_format": {"type": "text"})",
  };
  for (const bool chat : {true, false}) {
    for (const std::string& members : schemas) {
      const auto request = read(members, chat);
      ASSERT_TRUE(request) << members << request.error().message;
      EXPECT_EQ(request->prompts.front().json_schema, schema) << members;
      EXPECT_THAT(request->ignored, ElementsAre()) << members;
      EXPECT_TRUE(members.starts_with('"' + request->form_name + '"')) << request->form_name;
    }
    for (const char* members : {R"("structured_outputs": {"regex": "a+"})",
                                R"("guided_regex": "a+", "guided_choice": null)",
                                R"("regex": "a+", "guided_regex": "")"}) {
      EXPECT_EQ(read(members, chat)->prompts.front().pattern, "a+") << members;
    }
    for (const char* members :
         {R"("structured_outputs": {"choice": ["b", "a"]})", R"("guided_choice": ["b", "a"])"}) {
      EXPECT_THAT(read(members, chat)->prompts.front().choices, ElementsAre("b", "a")) << members;
    }
    EXPECT_EQ(
        read(R"("structured_outputs": {"json_object": true})", chat)->prompts.front().json_schema,
        R"({"type":"object"})");
    EXPECT_THAT(read(R"("response_format": {"type": "json_object", "odd": 1})", chat)->ignored,
                ElementsAre("response_format.odd"));
  }
}

TEST(ChatRequestTest, FormsThatAreNotSupportedAreRefused) {
  const Row rows[] = {
      {R"("response_format": {"type": "text", "schema": {}})", "invalid_value",
       "response_format.type"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}})",
       "missing_required_parameter", "response_format.json_schema.name"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": null, "schema": {}}})",
       "missing_required_parameter", "response_format.json_schema.name"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n"}})",
       "missing_required_parameter", "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "schema": {},
          "json_schema": {"name": "n", "schema": {}}})",
       "invalid_value", "response_format.schema"},
      {R"("structured_outputs": 5)", "invalid_type", "structured_outputs"},
      {R"("structured_outputs": {})", "invalid_value", "structured_outputs"},
      {R"("structured_outputs": {"regex": "a", "choice": ["a"]})", "invalid_value",
       "structured_outputs"},
      {R"("structured_outputs": {"grammar": "a"})", "unsupported_parameter",
       "structured_outputs.grammar"},
      {R"("structured_outputs": {"regex": 5})", "invalid_type", "structured_outputs.regex"},
      {R"("guided_json": "{")", "invalid_value", "guided_json"},
      {R"("guided_json": "{}\u0000{}")", "invalid_value", "guided_json"},
      {R"("guided_json": "{\"type\": \"null\", \"type\": \"object\"}")", "invalid_value",
       "guided_json"},
      {R"("guided_regex": ["a"])", "invalid_type", "guided_regex"},
      {R"("guided_choice": "a")", "invalid_type", "guided_choice"},
      {R"("guided_choice": [])", "invalid_value", "guided_choice"},
      {R"("guided_choice": ["a", ""])", "invalid_type", "guided_choice"},
      {R"("guided_grammar": "a")", "unsupported_parameter", "guided_grammar"},
      {R"("guided_whitespace_pattern": "a")", "unsupported_parameter", "guided_whitespace_pattern"},
      {R"("grammar": "root ::= a")", "unsupported_parameter", "grammar"},
      {R"("ebnf": "a")", "unsupported_parameter", "ebnf"},
      {R"("structural_tag": {})", "unsupported_parameter", "structural_tag"},
      {R"("format": "json")", "unsupported_parameter", "format"},
      {R"("guided_regex": "a", "response_format": {"type": "json_object"})", "invalid_value",
       "guided_regex"},
      {R"("guided_choice": ["a"], "guided_regex": "a")", "invalid_value", "guided_choice"},
  };
  const auto place = [](const auto& request) {
    return request ? "ok" : request.error().code + " " + request.error().param.value_or("");
  };
  for (const Row& row : rows) {
    const std::string refused = std::string(row.code) + " " + row.param;
    EXPECT_EQ(place(ReadChat(row.members)), refused) << row.members;
    const auto body = ParseBody(R"({"prompt": "Hi", )" + std::string(row.members) + "}");
    EXPECT_EQ(place(ReadTextRequest(*body, kContext)), refused) << row.members;
  }
  // The other endpoints have one member for a form, and not these.
  for (const std::string name :
       {"structured_outputs", "guided_json", "json_schema", "response_format", "regex"}) {
    const std::string members = '"' + name + R"(": {"type": "json_object"}})";
    const std::string refused = "unsupported_parameter " + name;
    EXPECT_EQ(place(ReadResponsesRequest(*ParseBody(R"({"input": "a", )" + members), kContext)),
              refused);
    EXPECT_EQ(
        place(ReadOllamaChat(*ParseBody(R"({"model": "m", "messages": [], )" + members), kContext)),
        refused);
    EXPECT_EQ(place(ReadOllamaGenerate(*ParseBody(R"({"model": "m", "prompt": "a", )" + members),
                                       kContext)),
              refused);
  }
  EXPECT_EQ(
      place(ReadOllamaChat(
          *ParseBody(R"({"model": "m", "messages": [], "options": {"grammar": "a"}})"), kContext)),
      "unsupported_parameter options.grammar");
}

TEST(ChatRequestTest, MessagesAreNamedByTheirPlace) {
  const Row rows[] = {
      {R"(["hello"])", "invalid_type", "messages[0]"},
      {R"([{"content": "x"}])", "missing_required_parameter", "messages[0].role"},
      {R"([{"role": "wizard", "content": "x"}])", "invalid_value", "messages[0].role"},
      {R"([{"role": "user"}])", "missing_required_parameter", "messages[0].content"},
      {R"([{"role": "user", "content": 5}])", "invalid_type", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "smell"}]}])",
       "unsupported_value", "messages[0].content[1].type"},
      {R"([{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "x", "content": ""}])",
       "invalid_value", "messages[1].tool_call_id"},
      {R"([{"role": "assistant", "content": null,
            "tool_calls": [{"id": "x", "function": {"name": "f"}}]},
           {"role": "tool", "tool_call_id": "x", "content": ""}])",
       "ok", ""},
  };
  for (const Row& row : rows) {
    const auto body = ParseBody(std::string(R"({"messages": )") + row.members + "}");
    const auto request = ReadChatRequest(*body, kContext);
    EXPECT_EQ(request ? "ok" : request.error().code, row.code) << row.members;
    EXPECT_EQ(request ? "" : request.error().param.value_or(""), row.param) << row.members;
  }
}

TEST(TextRequestTest, PromptsAreTextsOrIds) {
  const auto code = [](const char* text) {
    const auto request = ReadTextRequest(*ParseBody(text), kContext);
    return request ? "ok" : request.error().code;
  };
  EXPECT_EQ(code(R"({"prompt": "a"})"), "ok");
  EXPECT_EQ(code(R"({"prompt": [1, 2]})"), "ok");
  EXPECT_EQ(code(R"({"prompt": ""})"), "ok");
  EXPECT_EQ(code(R"({"prompt": [-1]})"), "invalid_type");
  EXPECT_EQ(code(R"({"prompt": ["a", "b"]})"), "ok");
  EXPECT_EQ(code(R"({"prompt": [[1], [2, 3]]})"), "ok");
  EXPECT_EQ(code(R"({"prompt": ["a", 1]})"), "invalid_type");
  EXPECT_EQ(code(R"({"prompt": [[1.5]]})"), "invalid_type");
  EXPECT_EQ(code(R"({"prompt": 1})"), "invalid_type");
  EXPECT_EQ(code(R"({})"), "missing_required_parameter");
  EXPECT_EQ(code(R"({"prompt": "a", "echo": true})"), "ok");
  EXPECT_EQ(code(R"({"prompt": [1], "echo": true, "logprobs": 1})"), "ok");
  EXPECT_EQ(code(R"({"prompt": "a", "prompt_logprobs": 21})"), "invalid_value");
  EXPECT_EQ(code(R"({"prompt": "a", "prompt_logprobs": 1, "stream": true})"), "unsupported_value");
  EXPECT_EQ(code(R"({"prompt": "a", "best_of": 2})"), "unsupported_value");
  EXPECT_EQ(code(R"({"prompt": "a", "best_of": 2, "n": 2})"), "ok");
  EXPECT_EQ(code(R"({"prompt": "a", "suffix": "b"})"), "unsupported_parameter");
  EXPECT_EQ(code(R"({"prompt": "a", "suffix": ""})"), "ok");
  const auto request = ReadTextRequest(*ParseBody(R"({"prompt": ["a", "b"], "n": 2})"), kContext);
  EXPECT_EQ(request->n, 2);
  EXPECT_EQ(request->prompts.size(), 2U);
  EXPECT_EQ(request->prompts.back().prompt, "b");
  EXPECT_EQ(request->prompts.back().max_tokens, 16);
}

TEST(TextRequestTest, PromptsHaveALimit) {
  const auto code = [](size_t prompts, int n) {
    nlohmann::json body = {{"prompt", std::vector<std::string>(prompts, "a")}, {"n", n}};
    const auto request = ReadTextRequest(body, kContext);
    return request ? "ok" : request.error().code + " " + request.error().param.value_or("");
  };
  EXPECT_EQ(code(256, 1), "ok");
  EXPECT_EQ(code(256, 2), "ok");
  EXPECT_EQ(code(257, 1), "invalid_value prompt");
  EXPECT_EQ(code(200, 3), "invalid_value prompt");
}

// -1 asks for as much as there is room for, whatever the server would do without the member.
TEST(ChatRequestTest, MinusOneIsNoLimit) {
  for (const char* members : {R"("max_tokens": -1)", R"("max_completion_tokens": -1)",
                              R"("max_tokens": 5, "max_completion_tokens": -1)"}) {
    EXPECT_EQ(ReadChat(members)->prompts.front().max_tokens, kContext.capacity) << members;
  }
  EXPECT_EQ(ReadChat(R"("top_k": -1)")->prompts.front().sampling.top_k, 0);
  EXPECT_EQ(ReadChat(R"("seed": 1)")->prompts.front().max_tokens, -1) << "as configured";
  const auto response =
      ReadResponsesRequest(*ParseBody(R"({"input": "a", "max_output_tokens": -1})"), kContext);
  EXPECT_EQ(response->answer.prompts.front().max_tokens, kContext.capacity);
  const auto ollama = ReadOllamaGenerate(
      *ParseBody(R"({"model": "m", "prompt": "a", "options": {"num_predict": -1, "top_k": -1}})"),
      kContext);
  EXPECT_EQ(ollama->answer.prompts.front().max_tokens, kContext.capacity);
  EXPECT_EQ(ollama->answer.prompts.front().sampling.top_k, 0);
}

TEST(ChatRequestTest, ASlotCanBeAskedFor) {
  EXPECT_EQ(ReadChat(R"("id_slot": 3)")->prompts.front().slot, 3);
  EXPECT_EQ(ReadChat(R"("id_slot": -1)")->prompts.front().slot, -1);
  EXPECT_EQ(ReadChat(R"("n": 1)")->prompts.front().slot, -1);
  for (const char* wrong : {"4", "-2", R"("1")", "1.5", "true"}) {
    const auto request = ReadChat(R"("id_slot": )" + std::string(wrong));
    ASSERT_FALSE(request) << wrong;
    EXPECT_EQ(request.error().param, "id_slot") << wrong;
  }
  const auto responses =
      ReadResponsesRequest(*ParseBody(R"({"input": "a", "id_slot": 2})"), kContext);
  ASSERT_TRUE(responses);
  EXPECT_EQ(responses->answer.prompts.front().slot, 2);
  EXPECT_EQ(ReadTextRequest(*ParseBody(R"({"prompt": "a", "id_slot": 2})"), kContext)
                ->prompts.front()
                .slot,
            2);
  EXPECT_EQ(ReadOllamaGenerate(*ParseBody(R"({"model": "m", "prompt": "a",
                                             "options": {"id_slot": 2}})"),
                               kContext)
                ->answer.prompts.front()
                .slot,
            2);
}

TEST(OllamaRequestTest, OptionsReachTheEngine) {
  const auto request =
      ReadOllamaChat(*ParseBody(R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}],
                     "options": {"temperature": 0.5, "num_predict": 9, "num_ctx": 1000,
                                 "draft_num_predict": 2, "num_gpu": 1}, "keep_alive": "5m", "think": "high"})"),
                     kContext);
  ASSERT_TRUE(request) << request.error().message;
  const Request& prompt = request->answer.prompts.front();
  EXPECT_EQ(prompt.sampling.temperature, 0.5);
  EXPECT_EQ(prompt.max_tokens, 9);
  EXPECT_EQ(prompt.max_context, 256);
  EXPECT_EQ(prompt.max_draft, 2);
  EXPECT_EQ(prompt.thinking, true);
  EXPECT_TRUE(request->answer.stream);
  EXPECT_EQ(request->keep_alive, std::chrono::minutes(5));
  EXPECT_THAT(request->answer.ignored, ElementsAre("num_ctx>256", "options.num_gpu"));
}

TEST(OllamaRequestTest, WrongMembersHaveTheirCodes) {
  const struct {
    const char* members;
    const char* code;
  } rows[] = {
      {R"("keep_alive": 0)", "ok"},
      {R"("keep_alive": "1h30m")", "ok"},
      {R"("keep_alive": "-1")", "ok"},
      {R"("keep_alive": "soon")", "invalid_value"},
      {R"("keep_alive": [1])", "invalid_value"},
      {R"("think": "enormous")", "invalid_value"},
      {R"("think": 3)", "invalid_type"},
      {R"("format": "yaml")", "invalid_value"},
      {R"("format": 7)", "invalid_type"},
      {R"("options": 5)", "invalid_type"},
      {R"("options": {"num_predict": -7})", "invalid_value"},
      {R"("shift": true)", "unsupported_value"},
      {R"("messages": [{"role": "user", "content": "x", "images": ["@@"]}])", "invalid_value"},
      {R"("messages": [{"role": "user", "content": "x", "images": ["iVBORw0KGgo="]}])", "ok"},
  };
  for (const auto& row : rows) {
    const auto body = ParseBody(std::string(R"({"model": "m", )") + row.members + "}");
    const auto request = ReadOllamaChat(*body, kContext);
    EXPECT_EQ(request ? "ok" : request.error().code, row.code) << row.members;
  }
}

TEST(OllamaRequestTest, TheOldestTurnsAreLeftOut) {
  Request request{.messages =
                      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "1"},
      {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"},
      {"role": "user", "content": "4"}])"};
  const auto count = [](const Request& one) {
    return std::ssize(nlohmann::json::parse(one.messages));
  };
  EXPECT_EQ(TruncateMessages(request, 5, count), 0);
  EXPECT_EQ(TruncateMessages(request, 3, count), 2);
  EXPECT_EQ(nlohmann::json::parse(request.messages)[1]["content"], "3");
  EXPECT_EQ(TruncateMessages(request, 1, count), 1);  // the last turn stays
  EXPECT_EQ(count(request), 2);
}

TEST(ResponsesRequestTest, ItemsBecomeMessages) {
  const auto request = ReadResponsesRequest(*ParseBody(R"({"instructions": "Be terse.", "input": [
          {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
          {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
          {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
          {"type": "function_call_output", "call_id": "c", "output": "1"}]})"),
                                            kContext);
  ASSERT_TRUE(request) << request.error().message;
  const auto messages = nlohmann::json::parse(request->answer.prompts.front().messages);
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "a");
  EXPECT_EQ(messages[2]["reasoning_content"], "hm");
  EXPECT_EQ(messages[2]["tool_calls"][0]["id"], "c");
  EXPECT_EQ(messages[3]["role"], "tool");
}

TEST(ResponsesRequestTest, StateIsRefused) {
  for (const char* members :
       {R"("previous_response_id": "r")", R"("background": true)", R"("store": true)",
        R"("truncation": "auto")", R"("tools": [{"type": "web_search"}])"}) {
    const auto body = ParseBody(std::string(R"({"input": "a", )") + members + "}");
    const auto request = ReadResponsesRequest(*body, kContext);
    ASSERT_FALSE(request) << members;
    EXPECT_EQ(request.error().status, 400) << members;
  }
}

TEST(ApiKeysTest, KeysHaveNamesAndNumbers) {
  ApiKeys keys;
  ASSERT_TRUE(keys.AddLines("# staff\nann:sk-12345678\n\nsk-abcdefgh\r\n", "keys"));
  EXPECT_EQ(keys.Find("sk-12345678")->name, "ann");
  const uint64_t client = keys.Find("sk-abcdefgh")->client;
  EXPECT_NE(client, 0U);
  EXPECT_NE(client, keys.Find("sk-12345678")->client);
  ApiKeys read_again = keys.WithoutKeys();
  EXPECT_TRUE(read_again.empty());
  ASSERT_TRUE(read_again.AddLines("bob:sk-abcdefgh", "keys"));
  EXPECT_EQ(read_again.Find("sk-abcdefgh")->client, client) << "its prompts stay its own";
  EXPECT_FALSE(read_again.Find("sk-12345678"));
  EXPECT_FALSE(keys.Find("sk-1234567"));
  EXPECT_FALSE(keys.Find(""));
  EXPECT_EQ(keys.AddLines("short", "keys").error().id, "server.api_key");
}

// Names of clients in files are the same after a restart, and in whatever order the keys are.
TEST(ApiKeysTest, LastingNamesStayTheSame) {
  ApiKeys keys(std::string(64, 's'));
  ASSERT_TRUE(keys.AddLines("ann:sk-12345678\nsk-abcdefgh", "keys"));
  ApiKeys later(std::string(64, 's'));
  ASSERT_TRUE(later.AddLines("sk-ijklmnop\nsk-abcdefgh\nann:sk-87654321", "keys"));
  const auto lasting = [](const ApiKeys& of, const char* key) { return of.Find(key)->lasting; };
  EXPECT_EQ(lasting(keys, "sk-12345678"), lasting(later, "sk-87654321")) << "the same name";
  EXPECT_EQ(lasting(keys, "sk-abcdefgh"), lasting(later, "sk-abcdefgh"));
  EXPECT_NE(lasting(keys, "sk-abcdefgh"), lasting(later, "sk-ijklmnop"));
  ApiKeys elsewhere(std::string(64, 't'));
  ASSERT_TRUE(elsewhere.AddLines("sk-abcdefgh", "keys"));
  EXPECT_NE(lasting(keys, "sk-abcdefgh"), lasting(elsewhere, "sk-abcdefgh"));
}

// A key without a name is not known by its place in the list, which another takes after a reload.
TEST(ApiKeysTest, OwnersOfSlotsNeedNeitherASecretNorAPlace) {
  const auto owner_in = [](const char* lines, const char* key) {
    ApiKeys keys;
    EXPECT_TRUE(keys.AddLines(lines, "keys"));
    return keys.Find(key)->without_secret;
  };
  const std::string saved = owner_in("sk-12345678\nsk-abcdefgh", "sk-12345678");
  EXPECT_EQ(owner_in("sk-abcdefgh\nsk-12345678", "sk-12345678"), saved);
  EXPECT_NE(owner_in("sk-abcdefgh", "sk-abcdefgh"), saved) << "in its place";
  EXPECT_NE(owner_in("key1:sk-abcdefgh", "sk-abcdefgh"), saved);
  EXPECT_EQ(owner_in("ann:sk-12345678", "sk-12345678"), owner_in("ann:sk-abcdefgh", "sk-abcdefgh"));
}

TEST(ApiKeysTest, AFileHasAtLeastOneKey) {
  const std::string path = ::testing::TempDir() + "keys_" + std::to_string(::getpid());
  const auto error_of = [&path](const std::string& text) {
    std::ofstream(path) << text;
    const Status status = ApiKeys().AddFile(path);
    return status ? "none" : status.error().ToString();
  };
  EXPECT_EQ(error_of("ann:sk-12345678"), "none");
  for (const char* text : {"", "\n", "# none yet\n"}) {
    EXPECT_THAT(error_of(text), AllOf(HasSubstr("has no key"), HasSubstr("[server.api_key]")));
  }
  EXPECT_THAT(error_of("ann:sk-12345678\n" + std::string(1 << 20, '#')),
              HasSubstr("1048576 bytes"));
  std::filesystem::remove(path);
  EXPECT_EQ(ApiKeys().AddFile(path).error().id, "io.open");
  EXPECT_EQ(ApiKeys().AddFile(::testing::TempDir()).error().id, "io.open");
}

TEST(RunningRequestsTest, TheQueueHasALimitForAllAndForEach) {
  RunningRequests running({.slots = 1, .max_queue = 2, .max_queue_per_client = 1});
  const auto first = running.Admit(1, 1);
  const auto second = running.Admit(1, 1);
  ASSERT_TRUE(first && second);
  const auto third = running.Admit(1, 1);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, "queue_full");
  EXPECT_EQ(third.error().fields.front().name, "Retry-After");
  EXPECT_TRUE(running.Admit(2, 1));
  EXPECT_EQ(running.Admit(2, 2).error().code, "queue_full");
  const auto never = running.Admit(3, 3);
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().status, 400) << "no empty queue would take it";
  EXPECT_EQ(never.error().code, "invalid_value");
}

TEST(RunningRequestsTest, LateOnesAndQueuedOnesAreEnded) {
  RunningRequests running({.slots = 1, .queue_timeout = std::chrono::milliseconds(1)});
  auto late = *running.Admit(1, 1);
  std::promise<void> ended;
  late->SetCancel([&] { ended.set_value(); });
  ended.get_future().wait();
  EXPECT_EQ(late->Failure().code, "queue_timeout");
  late->SetCancel({});
  auto with_slot = *running.Admit(1, 1);
  with_slot->GotSlot();
  running.Drain();
  EXPECT_EQ(with_slot->cause(), CancelCause::kNone);
  EXPECT_EQ(running.Admit(1, 1).error().code, "shutting_down");
}

// The document of an event.
nlohmann::json DocumentOf(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  return nlohmann::json::parse(event.substr(std::string_view("data: ").size()));
}

TEST(StreamTest, EventsOfAChoiceDifferInTheirTextAlone) {
  using nlohmann::json;
  AnswerIdentity identity;
  identity.model = R"("content":"","text":"")";
  const auto chat = MakeChatFormat(identity, {.usage = true});
  const auto continuation = MakeTextFormat(identity, {}, {});
  chat->Begin(2);
  continuation->Begin(2);
  for (const std::string text : {"a", "", "\"\n\xC3\xA9", "a"}) {
    const json said = DocumentOf(chat->Part(1, {.text = text}));
    EXPECT_EQ(said["choices"][0], (json{{"index", 1},
                                        {"delta", {{"content", text}}},
                                        {"logprobs", nullptr},
                                        {"finish_reason", nullptr}}));
    EXPECT_EQ(said["model"], identity.model);
    EXPECT_TRUE(said["usage"].is_null());
    const Event thought{.kind = Event::Kind::kThinking, .text = text};
    EXPECT_EQ(DocumentOf(chat->Part(0, thought))["choices"][0]["delta"],
              (json{{"reasoning_content", text}}));
    const json continued = DocumentOf(continuation->Part(1, {.text = text}));
    EXPECT_EQ(continued["choices"][0]["text"], text);
    EXPECT_EQ(continued["choices"][0]["index"], 1);
  }
}

TEST(LegacyLogprobsTest, AnEchoListsTheTokensOfItsPrompt) {
  using nlohmann::json;
  AnswerIdentity identity;
  // BOS, "a", the two bytes of "\u00e9", "b".
  identity.token_bytes = [](int32_t token) {
    const char* const texts[] = {"<bos>", "a", "\xC3", "\xA9", "b"};
    return std::string(texts[token]);
  };
  AnswerRequest request;
  request.echo = true;
  request.logprobs = 1;
  request.token_ids = true;
  request.views = {{.text = "a\xC3\xA9", .ids = {0, 1, 2, 3}, .hidden = 1}};
  Choice choice;
  choice.completion.text = "b";
  choice.completion.ids = {4};
  choice.completion.prompt_logprobs = {
      {.own = {1, -1}, .rank = 2, .top = {{4, -0.5F}}},
      {.own = {2, -2}, .rank = 1, .top = {{2, -2}, {3, -3}}},
      {.own = {3, -9}, .rank = 3, .top = {{2, -1}}},
  };
  choice.logprobs = {{.drawn = {4, -4}, .top = {{4, -4}}}};
  choice.completion.end_logprobs = LogprobStep{.drawn = {0, -5}};
  const auto format = MakeTextFormat(identity, {.prompt_logprobs = 0}, request);
  const json answer = json::parse(format->Whole({choice}))["choices"][0];
  EXPECT_EQ(answer["text"], "a\u00e9b");
  const json& listed = answer["logprobs"];
  EXPECT_EQ(listed["tokens"], json({"a", "\xEF\xBF\xBD", "\xEF\xBF\xBD", "b", ""}));
  EXPECT_EQ(listed["token_logprobs"], json({-1, -2, -9, -4, -5}));
  EXPECT_EQ(listed["text_offset"], json({0, 1, 1, 2, 3}));
  EXPECT_EQ(listed["top_logprobs"][0], json({{"a", -1}, {"b", -0.5}}));
  EXPECT_EQ(listed["top_logprobs"][1], json({{"\xEF\xBF\xBD", -2}})) << "not more than asked for";
  EXPECT_EQ(listed["top_logprobs"][2], json({{"\xEF\xBF\xBD", -1}})) << "the greater one stays";
  EXPECT_EQ(answer["prompt_token_ids"], json({0, 1, 2, 3}));
  EXPECT_EQ(answer["token_ids"], json::array({4}));
  EXPECT_EQ(answer["prompt_logprobs"][3],
            json({{"3", {{"logprob", -9}, {"rank", 3}, {"decoded_token", "\xEF\xBF\xBD"}}}}));

  request.token_ids = false;
  const auto streamed = MakeTextFormat(identity, {}, request);
  streamed->Begin(1);
  const json prompt = DocumentOf(streamed->Prompt(0, choice.completion))["choices"][0];
  EXPECT_EQ(prompt["text"], "a\u00e9");
  EXPECT_EQ(prompt["logprobs"]["text_offset"], json({0, 1, 1}));
  const json part =
      DocumentOf(streamed->Part(0, {.text = "b", .logprobs = choice.logprobs}))["choices"][0];
  EXPECT_EQ(part["logprobs"]["text_offset"], json::array({2}));
  streamed->End(0, choice);
  EXPECT_THAT(streamed->Last({choice}), HasSubstr(R"("text_offset":[3])"));
}

}  // namespace
}  // namespace rullama::server
