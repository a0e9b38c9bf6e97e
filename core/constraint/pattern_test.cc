#include "core/constraint/pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/constraint/constraint_test_util.h"

namespace rullama::constraint {
namespace {

struct PatternCase {
  std::string pattern;
  std::vector<std::string> found;
  std::vector<std::string> not_found;
};

TEST(Pattern, IsFoundAsEcmaScriptDoes) {
  const std::vector<PatternCase> cases = {
      {"", {"", "a"}, {}},
      {"abc", {"abc", "xabcx"}, {"ab", "acb"}},
      {"^abc$", {"abc"}, {"xabc", "abcx", ""}},
      {"^a|b$", {"ax", "xb"}, {"xa", "bx", "x"}},
      {"^(a|bc)+$", {"a", "abc", "bcbc"}, {"", "b"}},
      {"^a?b*?c+$", {"c", "abbc"}, {"ab", "aac"}},
      {"^a{2}b{1,}c{0,2}$", {"aab", "aabbcc"}, {"ab", "aabccc"}},
      {"^a{,2}$", {"a{,2}"}, {"aa"}},
      {"^[a-c_-]+$", {"a-c_"}, {"d", ""}},
      {"^[^a-c]$", {"d", "ж", "\n"}, {"a", "dd"}},
      {"^[]$", {}, {}},
      {"^.$", {"a", "ж", "𝄞"}, {"\n", "\xE2\x80\xA8", ""}},
      {R"(^\d\D\w\W\s\S$)", {"1aa- x", "9x_\xC3\xA9\tx"}, {"aaaa x"}},
      {R"(^\u0436\x41\u{1D11E}\uD834\uDD1E$)", {"жA𝄞𝄞"}, {"жA𝄞"}},
      {R"(^[\b\]\\^]$)", {"\b", "]", "\\", "^"}, {"b"}},
      {R"(^\/\.\-$)", {"/.-"}, {"/a-"}},
      {R"(^\t\n\r\f\v\0\cA$)", {std::string("\t\n\r\f\v\0\x01", 7)}, {}},
      {"^(?:a)(?<name>b)$", {"ab"}, {"a"}},
      {"(^a)+b", {"ab"}, {"aab"}},
      {"^((){4000000000}a){2}(){9,}$", {"aa"}, {"a", "aaa"}},
      {"^^a$$", {"a"}, {"aa"}},
      {"[\xD0\xB0-\xD1\x8F]", {"ж", "xя"}, {"x", "Ж"}},
      {"^[\xC2\x80-\xF4\x8F\xBF\xBF]$", {"\xC2\x80", "€", "𝄞", "\xF4\x8F\xBF\xBF"}, {"a"}},
  };
  for (const PatternCase& test : cases) {
    SCOPED_TRACE(test.pattern);
    const auto dfa = CompilePattern(test.pattern, LongDeadline());
    if (test.found.empty()) {
      EXPECT_FALSE(dfa);
      continue;
    }
    ASSERT_TRUE(dfa) << dfa.error().ToString();
    for (const std::string& text : test.found) EXPECT_TRUE(dfa->Accepts(text)) << text;
    for (const std::string& text : test.not_found) EXPECT_FALSE(dfa->Accepts(text)) << text;
  }
}

// Texts of an automaton are UTF-8, whatever the pattern.
TEST(Pattern, TakesUtf8Only) {
  const auto dfa = CompilePattern("[^a]", LongDeadline());
  ASSERT_TRUE(dfa);
  for (const char* text :
       {"\x80", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "b\xFF"}) {
    EXPECT_FALSE(dfa->Accepts(text));
  }
}

TEST(Pattern, RefusesWhatItCannotDo) {
  struct RefusedPattern {
    std::string pattern;
    std::string id;
  };
  const std::vector<RefusedPattern> cases = {
      {"(a", "schema.invalid"},
      {"a)", "schema.invalid"},
      {"[a", "schema.invalid"},
      {"*a", "schema.invalid"},
      {"a**", "schema.invalid"},
      {"a{3,2}", "schema.invalid"},
      {"[b-a]", "schema.invalid"},
      {"[\\d-x]", "schema.invalid"},
      {"\\", "schema.invalid"},
      {"\\y", "schema.invalid"},
      {"\\x4", "schema.invalid"},
      {"\\u{110000}", "schema.invalid"},
      {"(?<n", "schema.invalid"},
      {"b^", "schema.invalid"},
      {"(a)\\1", "schema.unsupported"},
      {"\\k<a>", "schema.unsupported"},
      {"(?=a)", "schema.unsupported"},
      {"(?<!a)", "schema.unsupported"},
      {"\\ba", "schema.unsupported"},
      {"\\p{L}", "schema.unsupported"},
      {"(?i)a", "schema.unsupported"},
      {"^*", "schema.unsupported"},
      {std::string(200, '('), "schema.unsupported"},
      {"(a{1000}){1000}", "schema.too_large"},
      {"a{4294967299}", "schema.too_large"},
      {"(a|b)*a(a|b){20}", "schema.too_large"},
      {std::string(20'000, 'a'), "schema.too_large"},
  };
  for (const RefusedPattern& test : cases) {
    const auto dfa = CompilePattern(test.pattern, LongDeadline());
    ASSERT_FALSE(dfa) << test.pattern;
    EXPECT_EQ(dfa.error().id, test.id) << test.pattern << ": " << dfa.error().message;
  }
}

}  // namespace
}  // namespace rullama::constraint
