// Foreign JSON: what is refused before anything is built.
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
}

TEST(JsonReader, HasLimits) {
  EXPECT_EQ(FaultOf(Nested(64)), "taken: " + Nested(64));
  EXPECT_EQ(FaultOf(Nested(65)), "is nested more than 64 deep");
  EXPECT_EQ(FaultOf(Nested(1'000'000)), "is nested more than 64 deep");
  EXPECT_EQ(FaultOf(Nested(4), {.depth = 3}), "is nested more than 3 deep");
  EXPECT_EQ(FaultOf("[1,2,3]", {.values = 4}), "taken: [1,2,3]");
  EXPECT_EQ(FaultOf("[1,2,3,4]", {.values = 4}), "has more than 4 values");
}

}  // namespace
}  // namespace rullama
