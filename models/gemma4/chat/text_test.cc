#include "models/gemma4/chat/text.h"

#include <gtest/gtest.h>

#include <vector>

#include "models/common/chat/trim.h"

namespace rullama::gemma4 {
namespace {

TEST(ChatText, TrimKnowsUnicodeSpaces) {
  EXPECT_EQ(chat::Trim(" \t\n\v\f\r\x1C\x1F x y \u00A0\u2003\u3000\u0085"), "x y");
  EXPECT_EQ(chat::Trim("\u200Bx\uFEFF"), "\u200Bx\uFEFF");  // zero-width: no white space
  EXPECT_EQ(chat::Trim(" \u2028 "), "");
  EXPECT_EQ(chat::Trim("é"), "é");
}

TEST(ChatText, StripThinking) {
  EXPECT_EQ(StripThinking("<|channel>thought\nx\n<channel|> Hello! "), "Hello!");
  EXPECT_EQ(StripThinking("a<|channel>x<channel|>b<|channel>y<channel|>c"), "abc");
  EXPECT_EQ(StripThinking("a<|channel>never closed"), "a");
  EXPECT_EQ(StripThinking("a<channel|>b"), "ab");
  EXPECT_EQ(StripThinking(""), "");
}

TEST(ChatText, FloatsPrintAsInPython) {
  const std::vector<std::pair<double, const char*>> cases = {
      {0.0, "0.0"},          {-0.0, "-0.0"},    {1.0, "1.0"},
      {1.5, "1.5"},          {0.1, "0.1"},      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},       {1e-4, "0.0001"},  {1e-5, "1e-05"},
      {-2.5e-7, "-2.5e-07"}, {1e100, "1e+100"}, {123456789.125, "123456789.125"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(FormatFloat(value), text);
}

}  // namespace
}  // namespace rullama::gemma4
