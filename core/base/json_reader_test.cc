// Foreign JSON: texts that are read, and texts that are refused.
#include "core/base/json_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace rullama {
namespace {

using namespace std::string_literals;

std::string FaultOf(const std::string& text, const JsonLimits& limits = {}) {
  const auto value = ReadJson(text, limits);
  return value ? "taken: " + value->dump() : value.error().ToString();
}

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonReader, TakesOneValue) {
  EXPECT_EQ(FaultOf(R"({"b": [1, null, "x\u00e9"], "a": {"b": 2.5}})"),
            R"(taken: {"a":{"b":2.5},"b":[1,null,"xé"]})");
  EXPECT_EQ(ReadOrderedJson(R"({"b": 1, "a": 2})")->dump(), R"({"b":1,"a":2})");
  EXPECT_EQ(FaultOf("\xef\xbb\xbf[1]\r\n"), "taken: [1]");
}

// Both readers build what the library's parser builds, to the types of numbers.
TEST(JsonReader, BuildsWhatTheTextSays) {
  for (const char* text :
       {"null", "true", "0", "-0", "-1", "18446744073709551615", "-9223372036854775808",
        "18446744073709551616", "0.1", "1e300", R"("")", R"("a\"\u0000\ud83d\ude00")", "[]", "{}",
        "[[], {}, [[1], 2], 3]", R"({"z": [], "a": {"y": {}, "b": [{"c": 1}, 2]}, "m": null})",
        R"([{"a": [{}]}, {"a": 1, "b": [1]}, "x"])", R"({"": {"": ""}})"}) {
    const auto expected = nlohmann::json::parse(text);
    const auto value = ReadJson(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(*value, expected) << text;
    EXPECT_EQ(value->type(), expected.type()) << text;
    EXPECT_EQ(ReadOrderedJson(text)->dump(), nlohmann::ordered_json::parse(text).dump());
  }
}

// Members in their order, without a look at all others for each of them.
TEST(JsonReader, KeepsTheOrderOfManyMembers) {
  constexpr int kMembers = 100'000;
  std::string text = "{";
  for (int i = kMembers; i > 0; --i) text += "\"" + std::to_string(i) + "\":[],";
  text.back() = '}';
  const auto value = ReadOrderedJson(text);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->dump(), text);
}

TEST(JsonReader, RefusesWhatIsNotOneValue) {
  EXPECT_EQ(FaultOf(R"({"a": })"), "is not valid JSON (byte 7)");
  EXPECT_EQ(FaultOf(""), "is not valid JSON (byte 1)");
  EXPECT_EQ(FaultOf("{} {}"), "is not valid JSON (byte 4)");
  EXPECT_EQ(FaultOf("{\"a\":1}\0garbage"s), "is not valid JSON (byte 8)");
  EXPECT_EQ(FaultOf("{\"a\":1}\0"s), "is not valid JSON (byte 8)");
  EXPECT_EQ(FaultOf("\"\0\""s), "is not valid JSON (byte 2)");
  EXPECT_EQ(FaultOf("[1e999]"), "has a number that is too large for a double and ends at byte 6");
  EXPECT_EQ(FaultOf("[\"\xff\"]"), "is not UTF-8 (byte 2)");
  EXPECT_EQ(FaultOf(R"(["\ud800"])").substr(0, 12), "is not UTF-8");
}

TEST(JsonReader, RefusesAKeyThatOccursTwice) {
  EXPECT_EQ(FaultOf(R"([{"a": 1, "a": 2}])"), "has the key 'a' twice in an object");
  EXPECT_EQ(FaultOf(R"({"a": 1, "a": 2})", {.keys_may_repeat = true}), R"(taken: {"a":2})");
  EXPECT_EQ(FaultOf(R"([{"a": {"a": 1}}, {"a": 2}])"), R"(taken: [{"a":{"a":1}},{"a":2}])");
  const char* twice = R"({"a": [1], "b": {}, "a": 2})";
  EXPECT_EQ(ReadOrderedJson(twice).error().ToString(), "has the key 'a' twice in an object");
  EXPECT_EQ(ReadOrderedJson(twice, {.keys_may_repeat = true})->dump(), R"({"a":2,"b":{}})");
}

TEST(JsonReader, HasLimits) {
  EXPECT_EQ(FaultOf(Nested(64)), "taken: " + Nested(64));
  EXPECT_EQ(FaultOf(Nested(65)), "is nested more than 64 deep");
  EXPECT_EQ(FaultOf(Nested(1'000'000)), "is nested more than 64 deep");
  EXPECT_EQ(FaultOf(Nested(4), {.depth = 3}), "is nested more than 3 deep");
  EXPECT_EQ(FaultOf("[1,2,3]", {.values = 4}), "taken: [1,2,3]");
  EXPECT_EQ(FaultOf("[1,2,3,4]", {.values = 4}), "has more than 4 values");
  EXPECT_EQ(FaultOf(R"({"a": {}, "b": []})", {.values = 2}), "has more than 2 values");
  EXPECT_EQ(FaultOf(R"([{}, [], {"a": []}])", {.depth = 3}), R"(taken: [{},[],{"a":[]}])");
}

}  // namespace
}  // namespace rullama
