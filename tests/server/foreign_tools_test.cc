// Tools as clients send them on: of many servers, whose schemas nobody wrote for this one. None may
// keep a conversation from continuing, and parts of a schema that are not enforced are named.
#include <gmock/gmock.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/server/client.h"
#include "tests/server/long_model_test_util.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct ForeignTool {
  const char* property;    // schema of the property "a"; null: the tool has `parameters`
  const char* parameters;  // null: an object with the property "a"
  const char* named;       // the end of a name in X-Rullama-Ignored; "": there is none
};

constexpr ForeignTool kForeignTools[] = {
    // What zod, pydantic and other generators of schemas write.
    {R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{}})", nullptr,
     "schema.propertyNames"},
    {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"}})", nullptr, "a.propertyNames"},
    {R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", nullptr, "a.uniqueItems"},
    {R"({"type":"object","additionalProperties":{"type":"string"},"minProperties":1})", nullptr,
     "a.minProperties"},
    {R"({"type":"object","maxProperties":3})", nullptr, "a.maxProperties"},
    {R"({"type":"integer","multipleOf":5})", nullptr, "a.multipleOf"},
    {R"({"type":"string","not":{"enum":["none"]}})", nullptr, "a.not"},
    {R"({"type":"string","nullable":true})", nullptr, ""},
    {R"({"type":"object","patternProperties":{"^x-":{"type":"string"}}})", nullptr,
     "a.patternProperties"},
    {R"({"type":"string","contentEncoding":"base64","contentMediaType":"image/png"})", nullptr,
     "a.contentEncoding"},
    {R"({"oneOf":[{"type":"object","properties":{"x":{"type":"string"}}},)"
     R"({"type":"object","properties":{"y":{"type":"string"}}}]})",
     nullptr, "a.oneOf"},
    {R"({"type":"string","maxLength":65536})", nullptr, "a.maxLength"},
    {R"({"type":"string","minLength":1,"maxLength":524288})", nullptr, "a.maxLength"},
    {R"({"type":"array","items":{"type":"string"},"contains":{"const":"x"},"minContains":1})",
     nullptr, "a.contains"},
    {R"({"type":"array","items":[{"type":"number"},{"type":"number"}],"additionalItems":false})",
     nullptr, "a.additionalItems"},
    {R"({"type":"array","prefixItems":[{"type":"number"},{"type":"string"}],"minItems":2})",
     nullptr, ""},
    {R"({"anyOf":[{"type":"number"},{"type":"string","pattern":)"
     R"("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}]})",
     nullptr, "anyOf[1].pattern"},
    {R"({"anyOf":[{"type":"string","format":"uuid"},{"type":"null"}],"default":null})", nullptr,
     ""},
    {R"({"type":"integer","format":"int64","x-order":3,"example":7})", nullptr, "schema.format"},
    {R"({"enum":[{"k":1},[2]],"type":["object","array"],"minItems":1})", nullptr, "properties.a"},
    {R"({"$ref":"https://example.com/schemas/a.json"})", nullptr, "a.$ref"},
    {R"({"$dynamicRef":"#node"})", nullptr, "a.$dynamicRef"},
    {R"(true)", nullptr, ""},
    {R"({})", nullptr, ""},
    {R"({"type":["string","number","boolean","object","array","null"]})", nullptr, ""},
    // Patterns of other dialects.
    {R"({"type":"string","pattern":"^(?!-)[a-z-]+$"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"^\\p{L}+$"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"(?i)^yes|no$"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"^(a+)\\1$"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"\\bword\\b"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"(?P<year>\\d{4})\\Z"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"^.{1,99999}$"})", nullptr, "a.pattern"},
    {R"({"type":"string","pattern":"^\\d{4,4}-\\d{2}$"})", nullptr, ""},
    // Drafts 3 and 4, OpenAPI, Google's dialect, and structs that were written out whole.
    {R"({"type":"integer","minimum":0,"exclusiveMinimum":true})", nullptr, ""},
    {R"({"type":"STRING"})", nullptr, ""},
    {R"({"type":"string","required":true})", nullptr, "a.required"},
    {R"({"type":"string","description":null,"enum":null,"items":null,"format":null})", nullptr, ""},
    {nullptr, R"({"type":"OBJECT","properties":{"a":{"type":"ARRAY","items":{"type":"NUMBER"}}}})",
     ""},
    // Keys that are not names.
    {nullptr,
     R"({"type":"object","properties":{"$filter":{"type":"string"},"$top":{"type":"integer"}},)"
     R"("required":["$top"]})",
     ""},
    {nullptr,
     R"({"type":"object","properties":{"filter[id]":{"type":"integer"}},)"
     R"("required":["filter[id]"]})",
     ""},
    {nullptr,
     R"({"type":"object","properties":{"Due date":{"type":"boolean"}},"required":["Due date"]})",
     ""},
    {nullptr,
     R"({"type":"object","properties":{"xml:lang":{"const":"en"},"größe":{"const":1},"a,b":{)"
     R"("const":2}},"required":["xml:lang","größe","a,b"]})",
     ""},
    // Conditions on the whole object.
    {nullptr,
     R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},)"
     R"("if":{"required":["a"]},"then":{"required":["b"]},"else":{}})",
     "parameters.if"},
    {nullptr,
     R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},)"
     R"("dependentRequired":{"a":["b"]}})",
     "parameters.dependentRequired"},
    {nullptr,
     R"({"type":"object","properties":{"a":{"type":"string"}},"dependencies":{"a":["b"]},)"
     R"("dependentSchemas":{"a":{}},"unevaluatedProperties":false})",
     "parameters.unevaluatedProperties"},
    {nullptr,
     R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{)"
     R"("$ref":"#/definitions/t"}},"required":["a"],"definitions":{"t":{"type":"object",)"
     R"("properties":{"next":{"$ref":"#/definitions/t"}}}}})",
     ""},
    {nullptr, R"({"type":"object"})", ""},
    {nullptr, R"({})", ""},
};

struct ForeignApi {
  const char* path;
  bool flat;       // the members of a function stand next to its type
  bool can_force;  // it has tool_choice
};
constexpr ForeignApi kForeignApis[] = {{"/v1/chat/completions", false, true},
                                       {"/v1/responses", true, true},
                                       {"/api/chat", false, false}};

json ToolOf(size_t index, bool flat) {
  const ForeignTool& tool = kForeignTools[index];
  const std::string parameters = tool.parameters != nullptr
                                     ? tool.parameters
                                     : R"({"type":"object","properties":{"a":)" +
                                           std::string(tool.property) +
                                           R"(},"required":["a"],"additionalProperties":false})";
  json function = {{"name", "t" + std::to_string(index)}, {"parameters", json::parse(parameters)}};
  if (!flat) return {{"type", "function"}, {"function", std::move(function)}};
  function["type"] = "function";
  return function;
}

json BodyWith(const ForeignApi& api, json tools, bool must_call) {
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const int tokens = must_call ? 120 : 2;
  json body = {{"model", "tiny"}, {"tools", std::move(tools)}};
  if (api.flat) {
    body["input"] = messages;
    body["max_output_tokens"] = tokens;
  } else {
    body["messages"] = messages;
    body["max_tokens"] = tokens;
  }
  if (!api.can_force) {
    body.erase("max_tokens");
    body["stream"] = false;
    body["options"] = {{"num_predict", 2}};
  }
  if (must_call) {
    body["tool_choice"] = "required";
    body["parallel_tool_calls"] = false;
  }
  return body;
}

// The arguments of the only call of an answer.
std::string ArgumentsIn(const json& answer, bool flat) {
  if (!flat) return answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
  return answer["output"].back()["arguments"];
}

std::string IgnoredIn(const std::string& answer) {
  constexpr std::string_view kField = "X-Rullama-Ignored: ";
  const size_t at = answer.find(kField);
  if (at == std::string::npos) return "";
  return answer.substr(at + kField.size(), answer.find("\r\n", at) - at - kField.size());
}

class ForeignToolsTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string Send(const ForeignApi& api, const json& body) const {
    return Ask(server_.port(), api.path, body.dump());
  }

  LongModelServer server_;  // with a context that all tools fit into
};

TEST_F(ForeignToolsTest, EachAloneIsTaken) {
  static_assert(std::size(kForeignTools) >= 40);
  for (size_t i = 0; i < std::size(kForeignTools); ++i) {
    for (const ForeignApi& api : kForeignApis) {
      const json body =
          BodyWith(api, json::array({ToolOf(i, api.flat)}), /*must_call=*/api.can_force);
      SCOPED_TRACE(std::string(api.path) + " " + body["tools"].dump());
      const std::string answer = Send(api, body);
      ASSERT_EQ(StatusOf(answer), 200) << answer;
      const std::string ignored = IgnoredIn(answer) + ",";
      if (*kForeignTools[i].named == '\0') {
        EXPECT_EQ(ignored, ",");
      } else {
        EXPECT_THAT(ignored, HasSubstr(std::string(kForeignTools[i].named) + ","));
      }
      // A body of responses has no member of this name.
      EXPECT_EQ(!api.flat && ignored.find("tools[") != std::string::npos,
                ignored.find(".function") != std::string::npos);
      if (!api.can_force) continue;
      const std::string arguments = ArgumentsIn(json::parse(BodyOf(answer)), api.flat);
      const json value = json::parse(arguments, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(value.is_object()) << arguments;
      const json parameters = ToolOf(i, /*flat=*/true)["parameters"];
      for (const json& name : parameters.value("required", json::array())) {
        EXPECT_TRUE(value.contains(name)) << arguments;
      }
    }
  }
}

TEST_F(ForeignToolsTest, AllTogetherAreTaken) {
  for (const ForeignApi& api : kForeignApis) {
    json tools = json::array();
    for (size_t i = 0; i < std::size(kForeignTools); ++i) tools.push_back(ToolOf(i, api.flat));
    const std::string answer = Send(api, BodyWith(api, std::move(tools), /*must_call=*/false));
    EXPECT_EQ(StatusOf(answer), 200) << api.path << answer;
    EXPECT_THAT(IgnoredIn(answer), HasSubstr(", ...")) << "there are more than are named";
  }
}

// Whoever asks for it is told that a schema cannot be enforced.
TEST_F(ForeignToolsTest, StrictOnesAreRefused) {
  for (const ForeignApi& api : kForeignApis) {
    json tool = ToolOf(2, api.flat);
    (api.flat ? tool : tool["function"])["strict"] = true;
    const std::string answer = Send(api, BodyWith(api, json::array({tool}), /*must_call=*/false));
    EXPECT_EQ(StatusOf(answer), 400) << api.path << answer;
    EXPECT_THAT(answer, HasSubstr("schema.unsupported"));
  }
}

}  // namespace
}  // namespace rullama::server
