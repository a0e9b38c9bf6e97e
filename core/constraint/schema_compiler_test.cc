#include "core/constraint/schema_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/constraint/constraint_test_util.h"

namespace rullama::constraint {
namespace {

struct AcceptCase {
  std::string name;
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

class AcceptTest : public testing::TestWithParam<AcceptCase> {};

TEST_P(AcceptTest, TakesValidTextsOnly) {
  const auto grammar = CompileSchema(GetParam().schema);
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  Automaton automaton(*grammar);
  for (const std::string& text : GetParam().accepted) {
    EXPECT_TRUE(AcceptsText(automaton, text)) << text;
  }
  for (const std::string& text : GetParam().refused) {
    EXPECT_FALSE(AcceptsText(automaton, text)) << text;
  }
}

const std::vector<AcceptCase>& AcceptCases() {
  static const std::vector<AcceptCase> kCases = {
      {"Null", R"({"type":"null"})", {"null"}, {"", "nul", "nulll", "0", "true"}},
      {"Boolean", R"({"type":"boolean"})", {"true", "false"}, {"null", "tru", "True"}},
      {"TypeList", R"({"type":["boolean","null"]})", {"true", "null"}, {"1", "\"\""}},
      {"Integer",
       R"({"type":"integer"})",
       {"0", "7", "-7", "1234567890123456", "-1234567890123456"},
       {"-0", "01", "1.5", "1e3", "12345678901234567", "+1", "-", ""}},
      {"IntegerRange",
       R"({"type":"integer","minimum":-12,"maximum":130})",
       {"-12", "-9", "-1", "0", "9", "10", "99", "100", "130"},
       {"-13", "-20", "-100", "131", "200", "1000", "-0", "00"}},
      {"IntegerExclusive",
       R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":4})",
       {"1", "3"},
       {"0", "4", "-1", "10"}},
      {"IntegerAboveFraction",
       R"({"type":"integer","minimum":0.5,"maximum":2.5})",
       {"1", "2"},
       {"0", "3"}},
      {"Number",
       R"({"type":"number"})",
       {"0", "-1", "0.5", "-0.5", "1e10", "1E-7", "12.25e+3", "1234567890123456.1234567890123456"},
       {"-0", "-0.0", ".5", "1.", "1e", "1e100", "-0e1", "01.5"}},
      {"NumberRange",
       R"({"type":"number","minimum":0,"exclusiveMaximum":1})",
       {"0", "0.0", "0.5", "0.9999", "0.0001"},
       {"1", "1.0", "-0.1", "0e0", "2", "-1"}},
      {"NumberRangeOfFractions",
       R"({"type":"number","minimum":-1.25,"maximum":3.5})",
       {"-1.25", "-1.2", "-1.250", "-0.001", "0", "3.5", "3.50", "3.49", "3", "2.99"},
       {"-1.26", "-1.3", "-2", "3.51", "3.6", "4", "10", "-0"}},
      {"NumberBelowZero",
       R"({"type":"number","maximum":-2.5})",
       {"-2.5", "-2.51", "-3", "-100"},
       {"-2.4", "0", "2.5", "-2", "-1"}},
      {"String",
       R"({"type":"string"})",
       {R"("")", R"("a")", R"("\n\t\"\\")", R"("\u0001\u001f")", "\"ж𝄞\"", "\"\x7f\""},
       {R"("a)", "\"\n\"", R"("\/")", R"("\u000a")", R"("\u0041")", R"("\x")", "\"\xC0\x80\"",
        "\"\xED\xA0\x80\"", "\"\xF5\x80\x80\x80\"", R"('a')"}},
      {"Length",
       R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")", "\"жж\"", R"("\n\n\n")"},
       {R"("a")", R"("abcd")", "\"ж\"", "\"жжжж\""}},
      {"Pattern",
       R"({"type":"string","pattern":"^[A-Z]{3}-[0-9]{2,4}$"})",
       {R"("ABC-12")", R"("ABC-1234")"},
       {R"("AB-12")", R"("ABC-1")", R"("ABC-12345")", R"("xABC-12")"}},
      {"PatternInside",
       R"({"type":"string","pattern":"a\"b"})",
       {R"("a\"b")", R"("xxa\"byy")", "\"жa\\\"b\\n\""},
       {R"("ab")", R"("")"}},
      {"PatternAndLength",
       R"({"type":"string","pattern":"^a*$","minLength":2,"maxLength":4})",
       {R"("aa")", R"("aaaa")"},
       {R"("a")", R"("aaaaa")", R"("ab")"}},
      {"Date",
       R"({"type":"string","format":"date"})",
       {R"("2024-02-28")", R"("1999-12-31")"},
       {R"("2024-02-30")", R"("2024-13-01")", R"("24-01-01")"}},
      {"Enum",
       R"({"enum":["a",1,null,true,"ж\"\\",[1,{"k":"v"}]]})",
       {R"("a")", "1", "null", "true", R"("ж\"\\")", R"([1,{"k":"v"}])"},
       {"2", "false", R"("b")", "[1]"}},
      {"EnumOfType", R"({"type":"integer","enum":[1,"a",2.5,30]})", {"1", "30"}, {R"("a")", "2.5"}},
      {"EnumWithin", R"({"enum":[1,5,9],"minimum":2,"exclusiveMaximum":9})", {"5"}, {"1", "9"}},
      {"Const", R"({"const":{"deep":[1,"two"]}})", {R"({"deep":[1,"two"]})"}, {"{}"}},
      {"ConstInEnum", R"({"const":2,"enum":[1,2]})", {"2"}, {"1"}},
      {"Object",
       R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":[1]},)"
       R"("c":{"type":"null"}},"required":["b"]})",
       {R"({"b":1})", R"({"a":true,"b":1})", R"({"a":true,"b":1,"c":null})", R"({"b":1,"c":null})",
        R"({"a": true, "b": 1})"},
       {"{}", R"({"a":true})", R"({"b":1,"a":true})", R"({"b":1,})", R"({"b" :1})",
        R"({"b":1,"d":2})", R"({"b":  1})", R"({ "b":1})", R"({"b":1,"b":1})"}},
      {"EmptyObject",
       R"({"type":"object","properties":{},"additionalProperties":false})",
       {"{}"},
       {R"({"a":1})"}},
      {"AdditionalSchema",
       R"({"type":"object","properties":{"a":{"const":1}},)"
       R"("additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":true})", R"({"ab":true,"":false})", R"({"A":true})"},
       {R"({"a":true})", R"({"b":1})", R"({"b":true,"a":true})"}},
      {"RequiredButNotDeclared",
       R"({"type":"object","required":["x"],"additionalProperties":{"type":"null"}})",
       {R"({"x":null})", R"({"x":null,"y":null})"},
       {"{}", R"({"y":null})"}},
      {"AnyObject", R"({"type":"object"})", {"{}", R"({"a":[1,{"b":null}],"c":"x"})"}, {"[]", "1"}},
      {"Anything",
       "true",
       {"1", "-2.5e3", R"("x")", "null", "[]", "{}", R"([[[]],{"a":{}}])", "[1, 2]"},
       {"", "[1,]", "[", "{a:1}", "nulls", "[ 1]"}},
      {"Array",
       R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":3})",
       {"[true,false]", "[true, true, true]"},
       {"[]", "[true]", "[true,true,true,true]", "[1,2]"}},
      {"ArrayOfNone",
       R"({"type":"array","items":{"enum":["a"]},"maxItems":0})",
       {"[]"},
       {R"(["a"])"}},
      {"Tuple",
       R"({"type":"array","prefixItems":[{"type":"boolean"},{"enum":["k"]}],"items":false,)"
       R"("minItems":2})",
       {R"([true,"k"])"},
       {"[true]", "[]", R"([true,"k",1])", R"(["k",true])"}},
      {"OpenTuple",
       R"({"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"boolean"},"maxItems":3})",
       {"[]", "[null]", "[null,true]", "[null,true,false]"},
       {"[true]", "[null,null]", "[null,true,true,true]"}},
      {"AnyOf",
       R"({"anyOf":[{"type":"boolean"},{"type":"object","properties":{"y":{"enum":[1,2]}},)"
       R"("required":["y"]}]})",
       {"true", R"({"y":2})"},
       {"{}", "null"}},
      {"AnyOfBesides",
       R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},)"
       R"("anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}"}},
      {"OneOf", R"({"oneOf":[{"const":"a"},{"const":"b"}]})", {R"("a")", R"("b")"}, {R"("c")"}},
      {"OneOfByProperty",
       R"({"oneOf":[{"$ref":"#/$defs/c"},{"$ref":"#/$defs/d"}],"$defs":{)"
       R"("c":{"type":"object","properties":{"k":{"const":"c","type":"string"},"n":{"type":"null"}},)"
       R"("required":["k"]},)"
       R"("d":{"type":"object","properties":{"k":{"const":"d"},"n":{"const":3}},"required":["k"]}}})",
       {R"({"k":"c","n":null})", R"({"k":"d","n":3})", R"({"k":"d"})"},
       {R"({"k":"c","n":3})", R"({"k":"d","n":null})"}},
      {"AllOfOne", R"({"allOf":[{"enum":["a","b"]}]})", {R"("a")"}, {R"("c")"}},
      {"AllOfObjects",
       R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},)"
       R"({"type":"object","properties":{"b":{"type":"null"},"a":{"minimum":3,"maximum":4}},)"
       R"("required":["b"]}]})",
       {R"({"a":3,"b":null})"},
       {R"({"a":2,"b":null})", R"({"a":3})", R"({"b":null})"}},
      {"AllOfClosed",
       R"({"allOf":[{"properties":{"a":{"type":"null"}},"additionalProperties":false},)"
       R"({"properties":{"b":{"type":"null"}}}]})",
       {"{}", R"({"a":null})"},
       {R"({"b":null})", R"({"a":null,"b":null})"}},
      {"Defs",
       R"({"$defs":{"color":{"enum":["red","blue"]}},"type":"array",)"
       R"("items":{"$ref":"#/$defs/color"}})",
       {"[]", R"(["red","blue"])"},
       {R"(["green"])"}},
      {"RefWithPercentAndTilde",
       R"({"$defs":{"a/b c":{"const":1}},"$ref":"#/$defs/a~1b%20c"})",
       {"1"},
       {"2"}},
      {"RefBesideKeywords",
       R"({"$defs":{"n":{"type":"integer"}},"$ref":"#/$defs/n","minimum":5,"maximum":6})",
       {"5"},
       {"4", "7"}},
      {"Recursion",
       R"({"$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[{"type":"null"},)"
       R"({"$ref":"#/$defs/node"}]}},"required":["next"]}},"$ref":"#/$defs/node"})",
       {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
       {"{}", R"({"next":{}})"}},
      {"RecursionOfRoot",
       R"({"type":"array","items":{"$ref":"#"}})",
       {"[]", "[[],[[]]]"},
       {"[1]", "["}},
      {"KeysNeedEscapes",
       R"({"type":"object","properties":{"a\"b\\":{"const":1},"ключ":{"const":2},"":{"const":3}},)"
       R"("required":["a\"b\\","ключ",""]})",
       {R"({"a\"b\\":1,"ключ":2,"":3})"},
       {}},
      {"NullKeywordsAreNone", R"({"type":"null","uniqueItems":false})", {"null"}, {}},
      {"Nullable",
       R"({"type":"string","enum":["a",null],"nullable":true})",
       {R"("a")", "null"},
       {R"("b")"}},
      // OpenAPI: it adds to `type`; without that, and with an enum without null, it says nothing.
      {"NullableWithoutType",
       R"({"anyOf":[{"type":"integer"},{"enum":["a"],"type":"string","nullable":true}],)"
       R"("nullable":true})",
       {"1", R"("a")"},
       {"null"}},
      {"NamesAreStrings",
       R"({"type":"object","propertyNames":{"type":"string","title":"t"},)"
       R"("additionalProperties":{"type":"integer"}})",
       {R"({"a":1})", "{}"},
       {R"({"a":"b"})"}},
      {"ImpliedType", R"({"minimum":3,"maximum":5})", {"3", "4.5"}, {"2", "null", R"("x")"}},
      {"NeverInside",
       R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})",
       {"{}", R"({"b":null})"},
       {R"({"a":1})"}},
  };
  return kCases;
}

std::string NameOfAccept(const testing::TestParamInfo<AcceptCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Schemas, AcceptTest, testing::ValuesIn(AcceptCases()), NameOfAccept);

struct RefuseCase {
  std::string name;
  std::string schema;
  std::string id;
  std::string message;  // a part of it
};

class RefuseTest : public testing::TestWithParam<RefuseCase> {};

TEST_P(RefuseTest, NamesThePlace) {
  const auto grammar = CompileSchema(GetParam().schema);
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().id, GetParam().id) << grammar.error().message;
  EXPECT_EQ(grammar.error().kind, ErrorKind::kUsage);
  EXPECT_THAT(grammar.error().message, testing::HasSubstr(GetParam().message));
}

std::string WithX(const std::string& schema) {
  return R"({"type":"object","properties":{"x":)" + schema + R"(},"required":["x"]})";
}

// References that follow one another and end.
std::string LongChain() {
  std::string definitions;
  for (int i = 0; i < 1'000; ++i) {
    definitions += fmt::format(R"("a{}":{{"$ref":"#/$defs/a{}"}},)", i, i + 1);
  }
  return R"({"$defs":{)" + definitions + R"("a1000":{"type":"null"}},"$ref":"#/$defs/a0"})";
}

std::vector<RefuseCase> RefuseCases() {
  std::vector<RefuseCase> cases = {
      {"NoJson", "{", "schema.invalid", "not valid JSON"},
      {"NotUtf8", "\"\xFF\"", "schema.invalid", "UTF-8"},
      {"KeyTwice", R"({"type":"null","type":"null"})", "schema.invalid", "'type' twice"},
      {"NoSchema", "\"object\"", "schema.invalid", "expected an object"},
      {"UnknownType", WithX(R"({"type":"strnig"})"), "schema.invalid",
       "schema.properties.x.type: no type is called 'strnig'"},
      {"TypeNumber", R"({"type":7})", "schema.invalid", "schema.type"},
      {"PropertiesList", R"({"type":"object","properties":["x"]})", "schema.invalid",
       "schema.properties"},
      {"EnumEmpty", WithX(R"({"enum":[]})"), "schema.invalid", "schema.properties.x.enum"},
      {"Range", WithX(R"({"type":"integer","minimum":5,"maximum":1})"), "schema.invalid",
       "schema.properties.x"},
      {"IntegerBetween", WithX(R"({"type":"integer","minimum":1.2,"maximum":1.8})"),
       "schema.invalid", "no finite value"},
      {"Length", WithX(R"({"type":"string","minLength":5,"maxLength":1})"), "schema.invalid",
       "maxLength"},
      {"Items", WithX(R"({"type":"array","minItems":5,"maxItems":1})"), "schema.invalid",
       "maxItems"},
      {"MinLengthNegative", WithX(R"({"minLength":-1})"), "schema.invalid", "found -1"},
      {"RefNowhere", WithX(R"({"$ref":"#/$defs/nowhere"})"), "schema.invalid", "leads nowhere"},
      {"RefRing",
       R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "schema.invalid", "without an end"},
      {"RefSelf", R"({"$ref":"#"})", "schema.invalid", "without an end"},
      {"Endless",
       R"({"$defs":{"a":{"type":"object","properties":{"x":{"$ref":"#/$defs/a"}},)"
       R"("required":["x"]}},"$ref":"#/$defs/a"})",
       "schema.invalid", "without an end"},
      {"RequiredNotAllowed",
       R"({"type":"object","properties":{},"required":["x"],"additionalProperties":false})",
       "schema.invalid", "no finite value"},
      {"Pattern", WithX(R"({"type":"string","pattern":"^[a"})"), "schema.invalid", "] is missing"},
      {"PatternOfNothing", WithX(R"({"pattern":"a^b"})"), "schema.invalid", "matches no text"},
      {"Never", "false", "schema.invalid", "no finite value"},
      {"RemoteRef", WithX(R"({"$ref":"https://example.com/schema.json"})"), "schema.unsupported",
       "outside the document"},
      {"Backreference", WithX(R"({"type":"string","pattern":"^(a)\\1$"})"), "schema.unsupported",
       "back-reference"},
      {"LookAhead", WithX(R"({"type":"string","pattern":"^(?=a)b$"})"), "schema.unsupported",
       "look-around"},
      {"NullableText", WithX(R"({"nullable":"yes"})"), "schema.invalid", "x.nullable"},
      {"NamesOfAPattern", WithX(R"({"propertyNames":{"pattern":"^a"}})"), "schema.unsupported",
       "x.propertyNames"},
      {"TypeInCapitals", R"({"type":"STRING"})", "schema.invalid", "no type is called"},
      {"BoundOfDraft4", R"({"minimum":0,"exclusiveMinimum":true})", "schema.invalid",
       "schema.exclusiveMinimum"},
      {"OneOfOverlaps", R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "schema.unsupported",
       "anyOf"},
      {"EnumOfListsBeside", R"({"enum":[[1]],"minItems":1})", "schema.unsupported",
       "together with"},
      {"Counted", WithX(R"({"pattern":"^((a{1,1000}){1,1000}){1,1000}$"})"), "schema.too_large",
       "repeats"},
      {"ManyStates", WithX(R"({"pattern":"(a|b)*a(a|b){20}$"})"), "schema.too_large", "states"},
      {"LongString", WithX(R"({"maxLength":10001})"), "schema.too_large", "10000"},
      {"ManyItems", WithX(R"({"type":"array","minItems":1000000000})"), "schema.too_large",
       "x.minItems: found 1000000000, expected at most 1000000"},
      {"LongNumber", R"({"const":)" + std::string(400, '9') + "}", "schema.invalid",
       "too large for a double"},
      {"AfterNul", std::string(R"({"type":"null"})") + '\0' + "x", "schema.invalid",
       "not valid JSON"},
      {"LongChain", LongChain(), "schema.too_large", "references follow one another"},
  };
  for (const std::string keyword : {"not",
                                    "if",
                                    "then",
                                    "else",
                                    "patternProperties",
                                    "propertyNames",
                                    "unevaluatedItems",
                                    "unevaluatedProperties",
                                    "dependentRequired",
                                    "dependentSchemas",
                                    "contains",
                                    "minContains",
                                    "maxContains",
                                    "uniqueItems",
                                    "multipleOf",
                                    "minProperties",
                                    "maxProperties",
                                    "contentEncoding",
                                    "contentMediaType",
                                    "contentSchema",
                                    "$dynamicRef"}) {
    std::string name = "Keyword_" + keyword;
    std::erase(name, '$');
    cases.push_back({name, WithX("{\"" + keyword + "\":1}"), "schema.unsupported",
                     "schema.properties.x." + keyword});
  }
  return cases;
}

std::string NameOfRefuse(const testing::TestParamInfo<RefuseCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Schemas, RefuseTest, testing::ValuesIn(RefuseCases()), NameOfRefuse);

TEST(SchemaCompiler, NamesKeywordsWithoutAMeaning) {
  const Json schema = Json::parse(
      R"({"type":"string","format":"int64","discriminator":{},"x-note":1,"title":"t"})");
  GrammarBuilder builder;
  SchemaCompiler compiler(builder, {});
  ASSERT_TRUE(compiler.Add(schema, "schema"));
  EXPECT_THAT(compiler.ignored(), testing::ElementsAre("discriminator", "format", "x-note"));
}

// A schema inside `depth` others.
std::string NestedSchema(int depth) {
  std::string schema = R"({"type":"null"})";
  for (int i = 0; i < depth; ++i) schema = WithX(schema);
  return schema;
}

TEST(SchemaCompiler, LimitsDepth) {
  EXPECT_TRUE(CompileSchema(NestedSchema(32)));
  const auto deep = CompileSchema(NestedSchema(33));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().id, "schema.too_large");
  const auto deeper = CompileSchema(std::string(100'000, '['));
  ASSERT_FALSE(deeper);
  EXPECT_EQ(deeper.error().id, "schema.too_large");
}

std::string ListOf(size_t count, const std::string& prefix) {
  std::string list;
  for (size_t i = 0; i < count; ++i) {
    list += (i > 0 ? ",\"" : "\"") + prefix + std::to_string(i) + "\"";
  }
  return list;
}

TEST(SchemaCompiler, LimitsValues) {
  const auto most = CompileSchema("{\"enum\":[" + ListOf(30'000, "value ") + "]}");
  ASSERT_TRUE(most) << most.error().ToString();
  Automaton automaton(*most);
  EXPECT_TRUE(AcceptsText(automaton, "\"value 29999\""));
  EXPECT_FALSE(AcceptsText(automaton, "\"value 30000\""));
  const auto more = CompileSchema("{\"enum\":[" + ListOf(50'001, "") + "]}");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().id, "schema.too_large");
}

TEST(SchemaCompiler, LimitsProperties) {
  const auto schema_of = [](size_t count) {
    std::string properties;
    for (size_t i = 0; i < count; ++i) {
      properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":"boolean"})";
    }
    return R"({"type":"object","properties":{)" + properties + "}}";
  };
  const auto most = CompileSchema(schema_of(5'000));
  ASSERT_TRUE(most) << most.error().ToString();
  Automaton automaton(*most);
  EXPECT_TRUE(AcceptsText(automaton, R"({"p17":true,"p4999":false})"));
  EXPECT_FALSE(AcceptsText(automaton, R"({"p17":true,"p16":false})"));
  const auto more = CompileSchema(schema_of(5'001));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().id, "schema.too_large");
}

// References to one schema are one branch, however many there are.
TEST(SchemaCompiler, MergesEqualBranches) {
  std::string defs = R"("d12":{"type":"null"})";
  for (int i = 0; i < 12; ++i) {
    const std::string ref = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    std::string refs = ref;
    for (int k = 1; k < 8; ++k) refs += "," + ref;
    defs += ",\"d" + std::to_string(i) + "\":{\"anyOf\":[" + refs + "]}";
  }
  const auto grammar = CompileSchema("{\"$ref\":\"#/$defs/d0\",\"$defs\":{" + defs + "}}");
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  EXPECT_LT((*grammar)->state_count(), 200U);
}

// So are schemas that hold all together.
TEST(SchemaCompiler, FollowsEachReferenceOnce) {
  std::string defs = R"("d30":{"type":"null"})";
  for (int i = 0; i < 30; ++i) {
    const std::string ref = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    defs += ",\"d" + std::to_string(i) + "\":{\"allOf\":[" + ref + "," + ref + "]}";
  }
  const auto grammar = CompileSchema("{\"$ref\":\"#/$defs/d0\",\"$defs\":{" + defs + "}}");
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  Automaton automaton(*grammar);
  EXPECT_TRUE(AcceptsText(automaton, "null"));
}

// Each part of the work that grows with what a client sends looks at the clock by itself.
TEST(SchemaCompiler, EndsWhenTimeIsOver) {
  const CompileDeadline over(std::chrono::seconds(-1));
  const auto expect_over = [](const auto& result, const char* what) {
    ASSERT_FALSE(result) << what;
    EXPECT_EQ(result.error().id, "schema.too_large") << what;
    EXPECT_THAT(result.error().message, testing::HasSubstr("more than a second")) << what;
  };
  const ContentDfa dfa = *AllBut({}, LongDeadline());
  expect_over(CompilePattern("a", over), "a pattern");
  expect_over(Intersection(dfa, dfa, over), "two patterns");
  expect_over(WithLength(dfa, 1, 2, over), "a length");
  expect_over(AllBut({}, over), "other keys");
  expect_over(BareKeysBut({}, over), "other bare keys");
  const Json schema = Json::parse(R"({"enum":[1,2],"type":"integer"})");
  SchemaReader reader(schema, "schema");
  const auto node = reader.Read(reader.root());
  ASSERT_TRUE(node);
  expect_over(Merge({*node, *node}, over), "two lists of values");
  expect_over(Alternatives(reader, {{reader.root()}}, over), "alternatives");
  expect_over(AreApart(reader, {}, {}, 0, over), "two alternatives");
  GrammarBuilder builder;
  expect_over(SchemaCompiler(builder, {}, over).Add(schema, "schema"), "a schema");
}

// Inside kMaxFrames nested rules only the end is left.
TEST(SchemaCompiler, ClosesWhatNestsTooDeep) {
  const auto grammar = CompileSchema(R"({"type":"array","items":{"$ref":"#"}})");
  ASSERT_TRUE(grammar);
  Automaton automaton(*grammar);
  ConfigId config = automaton.start();
  size_t depth = 0;
  while (automaton.Step(config, '[') != Automaton::kNowhere) {
    config = automaton.Step(config, '[');
    ASSERT_LT(++depth, 1'000U);
  }
  EXPECT_GT(depth, 100U);
  for (; depth > 0; --depth) config = automaton.Step(config, ']');
  EXPECT_TRUE(automaton.must_end(config));
}

// Ways to understand a text that double with each level.
TEST(SchemaCompiler, LimitsStacks) {
  const auto grammar =
      CompileSchema(R"({"anyOf":[{"type":"array","items":{"$ref":"#"},"maxItems":2},)"
                    R"({"type":"array","items":{"$ref":"#"},"maxItems":3}]})");
  ASSERT_TRUE(grammar);
  Automaton automaton(*grammar);
  ConfigId config = automaton.start();
  for (int i = 0; i < 60; ++i) {
    config = automaton.Step(config, '[');
    ASSERT_NE(config, Automaton::kNowhere);
    EXPECT_LE(automaton.threads(config).size(), 4 * Automaton::kMaxStacks);
  }
  for (int i = 0; i < 60; ++i) config = automaton.Step(config, ']');
  EXPECT_TRUE(automaton.must_end(config));
}

TEST(SchemaCompiler, WritesArgumentsOfToolCalls) {
  const std::string schema =
      R"({"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer"},)"
      R"("tags":{"type":"array","items":{"enum":["a","b\"c"]}},"o":{"type":"object"}},)"
      R"("required":["city"]})";
  const auto grammar = CompileSchema(schema, MarkedSyntax());
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  Automaton automaton(*grammar);
  const auto accepts = [&](std::string_view text) {
    return AcceptsText(automaton, text, /*marked=*/true);
  };
  EXPECT_TRUE(accepts(R"({city:<|"|>a "b" \ {}<|"|>})"));
  EXPECT_TRUE(accepts("{city:<|\"|>line\nline<|\"|>,n:3}"));
  EXPECT_TRUE(accepts(R"({city:<|"|><|"|>,tags:[<|"|>a<|"|>,<|"|>b"c<|"|>],o:{a-b.c:[1,{}]}})"));
  EXPECT_FALSE(accepts(R"({"city":<|"|>a<|"|>})"));
  EXPECT_FALSE(accepts(R"({city:"a"})"));
  EXPECT_FALSE(accepts(R"({city: <|"|>a<|"|>})"));
  EXPECT_FALSE(accepts(R"({city:<|"|>a<|"|>,tags:[<|"|>c<|"|>]})"));
}

// A text between markers that spells the marker would end there when it is read.
TEST(SchemaCompiler, SpellsNoMarkers) {
  for (const std::string schema : {R"({"type":"string"})", R"({"type":"string","maxLength":20})",
                                   R"({"type":"string","pattern":"^[^a]*$"})"}) {
    const auto grammar = CompileSchema(schema, MarkedSyntax());
    ASSERT_TRUE(grammar) << grammar.error().ToString();
    Automaton automaton(*grammar);
    const auto is_open = [&](std::string_view text) {
      ConfigId config = automaton.Step(automaton.start(), kFirstMarker);
      for (const char byte : text) config = automaton.Step(config, static_cast<uint8_t>(byte));
      return config != Automaton::kNowhere;
    };
    EXPECT_FALSE(is_open(R"(<|"|>)")) << schema;
    EXPECT_FALSE(is_open(R"(x<|<|"|>)")) << schema;
    EXPECT_FALSE(is_open(R"(<<|"|>)")) << schema;
    EXPECT_TRUE(is_open(R"(<|"|)")) << schema;
    EXPECT_TRUE(is_open(R"(<|"| >)")) << schema;
    EXPECT_TRUE(is_open(R"(<|"<|"|<<)")) << schema;
  }
}

// A key stands between markers where it would be read differently without.
TEST(SchemaCompiler, WritesAnyKeyOfToolCalls) {
  const auto grammar = CompileSchema(
      R"({"type":"object","properties":{"$filter":{"const":1},"filter[id]":{"const":2},)"
      R"("Due date":{"const":3},"größe":{"const":4},"xml:lang":{"const":5},"a,b":{"const":6},)"
      R"(" ":{"const":7},"":{"const":8},"\"q":{"const":9},"o":{"const":{"{x}":1,"y z":2}}}})",
      MarkedSyntax());
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  Automaton automaton(*grammar);
  EXPECT_TRUE(AcceptsText(automaton,
                          R"({$filter:1,filter[id]:2,Due date:3,größe:4,<|"|>xml:lang<|"|>:5,)"
                          R"(<|"|>a,b<|"|>:6,<|"|> <|"|>:7,<|"|><|"|>:8,<|"|>"q<|"|>:9,)"
                          R"(o:{<|"|>{x}<|"|>:1,y z:2}})",
                          /*marked=*/true));
  EXPECT_FALSE(AcceptsText(automaton, R"({xml:lang:5})", /*marked=*/true));
  EXPECT_FALSE(AcceptsText(automaton, R"({<|"|>$filter<|"|>:1})", /*marked=*/true));
}

TEST(SchemaCompiler, RefusesWhatToolCallsCannotWrite) {
  const auto key =
      CompileSchema(R"({"type":"object","properties":{"a<|\"|>b":{}}})", MarkedSyntax());
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().id, "schema.unsupported");
  const auto value = CompileSchema(R"({"enum":["<|\"|>"]})", MarkedSyntax());
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().id, "schema.unsupported");
}

}  // namespace
}  // namespace rullama::constraint
