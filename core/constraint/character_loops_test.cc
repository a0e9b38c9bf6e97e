// Which configurations of schemas' grammars lead back to themselves.
#include "core/constraint/character_loops.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/constraint/constraint_test_util.h"

namespace rullama::constraint {
namespace {

struct LoopCase {
  std::string_view name;
  std::string_view schema;
  std::string_view begin;  // of a text
  bool loops = false;      // on characters that are plain in JSON
  bool raw = false;        // the text is between markers, and loops on all but <
};

class CharacterLoopsTest : public testing::TestWithParam<LoopCase> {};

TEST_P(CharacterLoopsTest, FindsConfigurationsThatLeadBack) {
  const auto grammar =
      CompileSchema(GetParam().schema, GetParam().raw ? MarkedSyntax() : ValueSyntax{});
  ASSERT_TRUE(grammar) << grammar.error().ToString();
  Automaton automaton(*grammar);
  ConfigId config = automaton.start();
  for (const Symbol symbol : SymbolsOfText(GetParam().begin, GetParam().raw)) {
    config = automaton.Step(config, symbol);
    ASSERT_NE(config, Automaton::kNowhere);
  }
  CharacterLoops loops(automaton);
  for (int i = 0; i < 2; ++i) {  // the second answer is the one that was kept
    EXPECT_EQ(loops.Has(config, CharacterSet::kJsonPlain), GetParam().loops);
    // Inside a JSON string a quote, which the other set has, leads out.
    EXPECT_EQ(loops.Has(config, CharacterSet::kRawPlain), GetParam().raw);
  }
  EXPECT_FALSE(loops.Has(Automaton::kNowhere, CharacterSet::kJsonPlain));
}

std::string NameOfLoop(const testing::TestParamInfo<LoopCase>& param) {
  return std::string(param.param.name);
}

constexpr std::string_view kOpen =
    R"({"type":"object","properties":{"the":{}},"additionalProperties":{}})";

INSTANTIATE_TEST_SUITE_P(
    Schemas, CharacterLoopsTest,
    testing::Values(
        LoopCase{"FreeString", R"({"type":"string"})", "\"ab", true},
        LoopCase{"BeforeTheString", R"({"type":"string"})", "", false},
        LoopCase{"InsideACharacter", R"({"type":"string"})", "\"\xC3", false},
        LoopCase{"AfterABackslash", R"({"type":"string"})", "\"\\", false},
        LoopCase{"CountedString", R"({"type":"string","maxLength":100})", "\"ab", false},
        LoopCase{"AfterItsMinimum", R"({"type":"string","minLength":2})", "\"ab", true},
        LoopCase{"BeforeItsMinimum", R"({"type":"string","minLength":4})", "\"ab", false},
        LoopCase{"OneByteOut", R"({"type":"string","pattern":"^[^0-9]*[0-9]?$"})", "\"ab", false},
        LoopCase{"NoCharactersOfTwoBytes", R"({"type":"string","pattern":"^[\\u0000-\\u007f]*$"})",
                 "\"ab", false},
        LoopCase{"OneOfThreeBytesOut", R"({"type":"string","pattern":"^[^\u20ac]*$"})", "\"ab",
                 false},
        LoopCase{"AfterAMatch", R"({"type":"string","pattern":"b"})", "\"ab", true},
        LoopCase{"BeforeAMatch", R"({"type":"string","pattern":"c"})", "\"ab", false},
        LoopCase{"BetweenMarkers", R"({"type":"string"})", "<|\"|>ab", false, true},
        LoopCase{"KeyThatMayBeKnown", kOpen, "{\"th", false},
        LoopCase{"KeyThatIsNoneOfTheKnown", kOpen, "{\"tx", true}),
    NameOfLoop);

}  // namespace
}  // namespace rullama::constraint
