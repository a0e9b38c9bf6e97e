#include "core/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace rullama {
namespace {

TEST(Utf8, LengthsOfValidSequences) {
  EXPECT_EQ(Utf8SequenceLength("a"), 1u);
  EXPECT_EQ(Utf8SequenceLength("\xC3\x84"), 2u);
  EXPECT_EQ(Utf8SequenceLength("\xE2\x96\x81x"), 3u);
  EXPECT_EQ(Utf8SequenceLength("\xF0\x9F\xA6\x99"), 4u);
}

TEST(Utf8, OverlongSurrogateAndTooLargeAreInvalid) {
  for (const char* text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF"}) {
    bool incomplete = true;
    EXPECT_EQ(Utf8SequenceLength(text, &incomplete), 0u);
    EXPECT_FALSE(incomplete);
  }
}

TEST(Utf8, PrefixesAreIncompleteNotInvalid) {
  const std::string llama = "\xF0\x9F\xA6\x99";
  for (size_t length = 1; length < llama.size(); ++length) {
    bool incomplete = false;
    EXPECT_EQ(Utf8SequenceLength(llama.substr(0, length), &incomplete), 0u);
    EXPECT_TRUE(incomplete) << length;
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8("caf\xC3\xA9"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("caf\xC3"), 3u);
  EXPECT_EQ(FindInvalidUtf8(std::string("a\0b\xFF", 4)), 3u);
}

}  // namespace
}  // namespace rullama
