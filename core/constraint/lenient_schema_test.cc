// Schemas that are read leniently: which parts are left out, and which still hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/constraint/constraint_test_util.h"

namespace rullama::constraint {
namespace {

using ::testing::ElementsAreArray;

struct LenientSchema {
  Result<std::shared_ptr<const Grammar>> grammar;
  std::vector<std::string> unenforced;
};

LenientSchema CompileLeniently(const std::string& text, const ValueSyntax& syntax = {}) {
  const auto schema = ParseSchemaText(text, "s");
  if (!schema) return {.grammar = tl::unexpected(schema.error()), .unenforced = {}};
  GrammarBuilder builder;
  SchemaCompiler compiler(builder, syntax, LongDeadline());
  const auto root = compiler.Add(*schema, "s", Strictness::kLenient);
  if (!root) return {.grammar = tl::unexpected(root.error()), .unenforced = {}};
  auto grammar = std::make_shared<const Grammar>(std::move(builder).Finish(*root));
  if (Status status = compiler.Check(*grammar); !status) {
    return {.grammar = tl::unexpected(status.error()), .unenforced = {}};
  }
  return {.grammar = std::move(grammar),
          .unenforced = {compiler.unenforced().begin(), compiler.unenforced().end()}};
}

struct LenientCase {
  std::string schema;
  std::vector<std::string> unenforced;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

std::string ListInObjects(int depth) {
  std::string schema = R"({"type":"array","items":{"type":"null"}})";
  for (int i = 0; i < depth; ++i) {
    schema = R"({"type":"object","properties":{"x":)" + schema + R"(},"required":["x"]})";
  }
  return schema;
}

std::vector<LenientCase> LenientCases() {
  return {
      // Keywords that only narrow.
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true,"contains":{"const":1}})",
       {"s.contains", "s.uniqueItems"},
       {"[1,1]", "[2]", "[]"},
       {R"(["a"])", "{}"}},
      {R"({"type":"integer","multipleOf":7,"minimum":1,"not":{"const":14}})",
       {"s.multipleOf", "s.not"},
       {"1", "14"},
       {"0", "1.5"}},
      {R"({"type":"object","properties":{"a":{"type":"string","contentEncoding":"base64"}},)"
       R"("minProperties":1,"patternProperties":{"^x":{}},"dependentRequired":{"a":["b"]},)"
       R"("if":{"required":["a"]},"then":{"required":["b"]}})",
       {"s.dependentRequired", "s.if", "s.minProperties", "s.patternProperties",
        "s.properties.a.contentEncoding", "s.then"},
       {"{}", R"({"a":"b"})"},
       {R"({"a":1})", R"({"b":1})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^a"},"additionalProperties":)"
       R"({"type":"boolean"}})",
       {"s.propertyNames"},
       {R"({"b":true})"},
       {R"({"b":1})"}},
      // A length beyond the limit goes, one within it stays.
      {R"({"type":"string","minLength":2,"maxLength":524288})",
       {"s.maxLength"},
       {"\"" + std::string(10'001, 'a') + "\""},
       {"\"a\""}},
      // Patterns of other dialects, and such as no automaton can follow.
      {R"({"type":"string","pattern":"^(?!-)[a-z-]+$"})", {"s.pattern"}, {"\"-\"", "\"1\""}, {"1"}},
      {R"({"type":"string","pattern":"^\\p{L}+$","maxLength":3})",
       {"s.pattern"},
       {"\"\"", "\"123\""},
       {"\"1234\""}},
      {R"({"type":"string","pattern":"(?P<year>\\d+)\\Z"})", {"s.pattern"}, {"\"\""}, {}},
      {R"({"type":"string","pattern":"^a$"})", {}, {"\"a\""}, {"\"b\""}},
      // Branches that are not told apart are as those of anyOf.
      {R"({"oneOf":[{"type":"object","properties":{"a":{"type":"integer"}}},)"
       R"({"type":"object","properties":{"b":{"type":"integer"}}}]})",
       {"s.oneOf"},
       {"{}", R"({"a":1})", R"({"b":1})"},
       {R"({"c":1})", R"({"a":"b"})"}},
      // A schema elsewhere may be anything.
      {R"({"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}})",
       {"s.properties.a.$ref"},
       {R"({"a":1})", R"({"a":[null]})"},
       {R"({"b":1})"}},
      {R"({"type":"array","items":[{"type":"integer"},{"type":"string"}],"maxItems":2})",
       {"s.items"},
       {R"(["a",1])", "[]"},
       {"[1,2,3]"}},
      // What cannot be merged, or nests too deep, keeps its type.
      {R"({"type":"object","properties":{"a":{"type":"array","enum":[[1]],"minItems":1}}})",
       {"s.properties.a"},
       {R"({"a":[2,3]})", R"({"a":[]})"},
       {R"({"a":1})"}},
      {ListInObjects(33),
       {"s" +
        [] {
          std::string path;
          for (int i = 0; i < 33; ++i) path += ".properties.x";
          return path;
        }()},
       {[] {
         std::string text = "[1]";
         for (int i = 0; i < 33; ++i) text = "{\"x\":" + text + "}";
         return text;
       }()},
       {[] {
         std::string text = "1";
         for (int i = 0; i < 33; ++i) text = "{\"x\":" + text + "}";
         return text;
       }()}},
      // Spellings of other dialects mean what they mean there.
      {R"({"type":"OBJECT","properties":{"a":{"type":["STRING","null"]}}})",
       {},
       {R"({"a":"b"})", R"({"a":null})"},
       {R"({"a":1})"}},
      {R"({"type":"integer","exclusiveMinimum":true,"minimum":0,"maximum":3,)"
       R"("exclusiveMaximum":false})",
       {},
       {"1", "3"},
       {"0", "4"}},
      {R"({"type":"object","properties":{"a":{"type":"string","required":true,"enum":null}}})",
       {"s.properties.a.required"},
       {"{}", R"({"a":"b"})"},
       {R"({"a":null})"}},
  };
}

TEST(LenientSchema, LeavesOutWhatItCannotEnforce) {
  for (const LenientCase& one : LenientCases()) {
    SCOPED_TRACE(one.schema.substr(0, 200));
    const LenientSchema compiled = CompileLeniently(one.schema);
    ASSERT_TRUE(compiled.grammar) << compiled.grammar.error().ToString();
    EXPECT_THAT(compiled.unenforced, ElementsAreArray(one.unenforced));
    Automaton automaton(*compiled.grammar);
    for (const std::string& text : one.accepted) {
      EXPECT_TRUE(AcceptsText(automaton, text)) << text.substr(0, 200);
    }
    for (const std::string& text : one.refused) EXPECT_FALSE(AcceptsText(automaton, text)) << text;
  }
}

// A schema that is damaged is refused all the same.
TEST(LenientSchema, RefusesWhatIsInvalid) {
  for (const std::string schema :
       {R"({"type":"strnig"})", R"({"enum":[]})", R"({"$ref":"#/nowhere"})", R"({"$ref":"#"})",
        R"({"type":"integer","minimum":5,"maximum":1})", R"({"properties":[]})", "false",
        R"({"nullable":1})", R"({"type":"string","maxLength":-1})"}) {
    const LenientSchema compiled = CompileLeniently(schema);
    ASSERT_FALSE(compiled.grammar) << schema;
    EXPECT_EQ(compiled.grammar.error().id, "schema.invalid") << schema;
  }
}

// Otherwise the enforced parts would depend on the clock.
TEST(LenientSchema, LeavesNothingOutForWantOfTime) {
  const CompileDeadline over(std::chrono::seconds(-1));
  for (const std::string text : {R"({"type":"string"})", R"({"maxLength":100000})"}) {
    const auto schema = ParseSchemaText(text, "s");
    const auto grammar = GrammarOf(*schema, {}, over, Strictness::kLenient);
    ASSERT_FALSE(grammar) << text;
    EXPECT_EQ(grammar.error().id, "schema.too_large");
  }
}

// A text that would end a string of a call cannot be written; another one of its type can.
TEST(LenientSchema, LeavesOutWhatCallsCannotWrite) {
  const LenientSchema compiled = CompileLeniently(
      R"({"type":"object","properties":{"a":{"type":"string","enum":["<|\"|>"]},"$top":)"
      R"({"type":"integer"}}})",
      MarkedSyntax());
  ASSERT_TRUE(compiled.grammar) << compiled.grammar.error().ToString();
  EXPECT_THAT(compiled.unenforced, ElementsAreArray({"s.properties.a"}));
  Automaton automaton(*compiled.grammar);
  EXPECT_TRUE(AcceptsText(automaton, R"({a:<|"|>b<|"|>,$top:3})", /*marked=*/true));
  EXPECT_FALSE(AcceptsText(automaton, R"({a:1})", /*marked=*/true));
}

}  // namespace
}  // namespace rullama::constraint
