#include "core/base/printable.h"

#include <gtest/gtest.h>

#include "core/base/utf8.h"

namespace rullama {
namespace {

TEST(PrintableTest, ShownTextStaysAsItIs) {
  for (const char* text : {"", "plain [x.y]", "Gr\u00FC\u00DFe \u4F60\u597D \U0001F600", "a b"}) {
    EXPECT_EQ(Printable(text, 100), text);
  }
}

TEST(PrintableTest, ControlCharactersAreSpeltOut) {
  EXPECT_EQ(Printable("\x1b[2J\x07\x7f", 100), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(Printable("one\ntwo\tthree\r", 100), "one two three ");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3), 100), "a\\x00b");
  EXPECT_EQ(Printable("\u009B2J", 100), "\\u009b2J");  // CSI in one character
  EXPECT_EQ(Printable("abc\u202Egpj.exe", 100), "abc\\u202egpj.exe");
}

TEST(PrintableTest, InvalidUtf8IsSpeltOut) {
  EXPECT_EQ(Printable("a\xFF\xC3", 100), "a\\xff\\xc3");
  EXPECT_EQ(Printable("\xED\xA0\x80", 100), "\\xed\\xa0\\x80");  // half a surrogate pair
}

TEST(PrintableTest, NoByteComesThroughThatMayAct) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& text : {all, std::string(all.rbegin(), all.rend())}) {
    const std::string shown = Printable(text, 1000);
    EXPECT_FALSE(FindInvalidUtf8(shown));
    for (const char c : shown) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
}

TEST(PrintableTest, QuotedTextIsOnOneLine) {
  EXPECT_EQ(QuotedText("a\"\\\n\tb \xc3\xa9"), "\"a\\\"\\\\\\n\\x09b \xc3\xa9\"");
}

TEST(PrintableTest, LongTextLosesItsMiddle) {
  const std::string text = "begin" + std::string(60'000, 'x') + "end";
  const std::string shown = Printable(text, 90);
  EXPECT_LT(shown.size(), 130U);
  EXPECT_TRUE(shown.starts_with("begin"));
  EXPECT_TRUE(shown.ends_with("end"));
  EXPECT_NE(shown.find("(59918 bytes left out)"), std::string::npos) << shown;
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\U0001F600";
  for (size_t limit = 0; limit < 40; ++limit) {
    const std::string cut = Printable(wide, limit);
    EXPECT_FALSE(FindInvalidUtf8(cut));
    EXPECT_EQ(cut.find('\\'), std::string::npos) << "a character was cut at limit " << limit;
  }
}

}  // namespace
}  // namespace rullama
