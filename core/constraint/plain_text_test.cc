#include "core/constraint/plain_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/constraint/constraint_test_util.h"

namespace rullama::constraint {
namespace {

std::shared_ptr<const Grammar> GrammarOfRule(GrammarBuilder builder, RuleId rule) {
  return std::make_shared<const Grammar>(std::move(builder).Finish(rule));
}

TEST(PlainText, PatternsMatchTheWholeText) {
  GrammarBuilder builder;
  const auto rule = AddPlainPattern(builder, "[0-9]{3}|a\"?\\n|ключ", LongDeadline());
  ASSERT_TRUE(rule) << rule.error().ToString();
  Automaton automaton(GrammarOfRule(std::move(builder), *rule));
  for (const char* text : {"123", "a\n", "a\"\n", "ключ"}) {
    EXPECT_TRUE(AcceptsText(automaton, text)) << text;
  }
  for (const char* text : {"", "12", "1234", " 123", "\"123\"", "a", "a\\n", "ключ1"}) {
    EXPECT_FALSE(AcceptsText(automaton, text)) << text;
  }
  // Parts that belong to no pattern alone do not make one together.
  GrammarBuilder other;
  EXPECT_EQ(AddPlainPattern(other, "a)|(b", LongDeadline()).error().id, "schema.invalid");
  EXPECT_EQ(AddPlainPattern(other, "a(?=b)", LongDeadline()).error().id, "schema.unsupported");
}

TEST(PlainText, TextsAreChosenFrom) {
  GrammarBuilder builder;
  const std::vector<std::string> texts = {"yes", "no", "yes, but", "кухня", "no"};
  const auto rule = AddPlainTexts(builder, texts);
  ASSERT_TRUE(rule) << rule.error().ToString();
  Automaton automaton(GrammarOfRule(std::move(builder), *rule));
  for (const std::string& text : texts) EXPECT_TRUE(AcceptsText(automaton, text)) << text;
  for (const char* text : {"", "ye", "yes,", "nope", "\"no\""}) {
    EXPECT_FALSE(AcceptsText(automaton, text)) << text;
  }
  GrammarBuilder other;
  const std::vector<std::string> large = {std::string(size_t{1} << 20, 'a'), "b"};
  EXPECT_EQ(AddPlainTexts(other, large).error().id, "schema.too_large");
}

}  // namespace
}  // namespace rullama::constraint
