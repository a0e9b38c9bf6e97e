// Escaped and shortened text, and the checks of markup themselves.
#include "core/drawing/markup.h"

#include <gtest/gtest.h>

#include "core/drawing/markup_test_util.h"

namespace rullama::drawing {
namespace {

TEST(MarkupTest, MarkupAndControlCharactersAreEscaped) {
  EXPECT_EQ(Escaped("a<b>&\"'\n\x1b"), "a&lt;b&gt;&amp;&quot;&#39; \\x1b");
  EXPECT_EQ(Escaped("\xff"), "\\xff");
  EXPECT_EQ(Escaped("größer → 4"), "größer → 4");
}

TEST(MarkupTest, FittedTextKeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(Fitted("blk.12.attn.q", 20), "blk.12.attn.q");
  EXPECT_EQ(Fitted("abcdefghij", 5), "ab…ij");
  EXPECT_EQ(Fitted("äöüäöüäöü", 4), "ä…öü");
}

TEST(MarkupTest, CheckOfTheTestsFindsFaults) {
  EXPECT_EQ(MarkupFault("<p class=\"a\">x<br></p>"), "");
  EXPECT_NE(MarkupFault("<p>x"), "");
  EXPECT_NE(MarkupFault("<p><b></p></b>"), "");
  EXPECT_NE(MarkupFault("<p a=\"1\"b=\"2\"></p>"), "");
  EXPECT_NE(MarkupFault("<p a=\"1\" a=\"2\"></p>"), "");
  EXPECT_NE(MarkupFault("a < b"), "");
  EXPECT_NE(ForeignPart("<p style=\"background:url(x)\"></p>"), "");
  EXPECT_NE(ForeignPart("<svg onload=\"x\"/>"), "");
}

}  // namespace
}  // namespace rullama::drawing
