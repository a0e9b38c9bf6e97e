#include "cli/chat/canvas_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama::cli {
namespace {

using ::testing::ElementsAre;

constexpr TerminalSize kWide{.columns = 80, .rows = 24};

TEST(CanvasLayout, UndecidedPiecesAreDim) {
  const std::vector<CanvasPiece> pieces = {
      {"The", true}, {" pr", false}, {"in", false}, {"ce", true}};
  EXPECT_THAT(LayOutCanvas(pieces, 0, kWide), ElementsAre("The\x1b[2m prin\x1b[0mce"));
}

TEST(CanvasLayout, DimEndsWithTheLine) {
  const std::vector<CanvasPiece> pieces = {{"ab\ncd", false}};
  EXPECT_THAT(LayOutCanvas(pieces, 0, kWide), ElementsAre("\x1b[2mab\x1b[0m", "\x1b[2mcd\x1b[0m"));
}

TEST(CanvasLayout, WrapsInFrontOfTheLastColumn) {
  const std::vector<CanvasPiece> pieces = {{"abcdefgh", true}};
  EXPECT_THAT(LayOutCanvas(pieces, 0, {.columns = 5, .rows = 24}), ElementsAre("abcd", "efgh"));
  EXPECT_THAT(LayOutCanvas(pieces, 3, {.columns = 5, .rows = 24}), ElementsAre("a", "bcde", "fgh"));
  EXPECT_THAT(LayOutCanvas(pieces, 5, {.columns = 5, .rows = 24}), ElementsAre("", "abcd", "efgh"));
}

TEST(CanvasLayout, WideCharactersTakeTwoColumnsAndCombiningOnesNone) {
  const std::vector<CanvasPiece> wide = {{"\u6771\u4eac\u90fd", true}};  // three ideographs
  EXPECT_THAT(LayOutCanvas(wide, 0, {.columns = 5, .rows = 24}),
              ElementsAre("\u6771\u4eac", "\u90fd"));
  const std::vector<CanvasPiece> combining = {{"e\u0301e\u0301e\u0301", true}};
  EXPECT_THAT(LayOutCanvas(combining, 0, {.columns = 4, .rows = 24}),
              ElementsAre("e\u0301e\u0301e\u0301"));
}

TEST(CanvasLayout, OnlyTheLastLinesThatFitTheScreen) {
  const std::vector<CanvasPiece> pieces = {{"1\n2\n3\n4", true}};
  EXPECT_THAT(LayOutCanvas(pieces, 0, {.columns = 80, .rows = 3}), ElementsAre("3", "4"));
}

// Text from a model must not move the cursor, change colours or set the title.
TEST(CanvasLayout, ControlCharactersAreHarmless) {
  const std::vector<CanvasPiece> pieces = {{"a\x1b[2Jb\rc\td\x7f", true}};
  EXPECT_THAT(LayOutCanvas(pieces, 0, kWide), ElementsAre("a?[2Jb?c d?"));
}

TEST(CanvasLayout, AnEmptyCanvasIsAnEmptyLine) {
  EXPECT_THAT(LayOutCanvas({}, 0, kWide), ElementsAre(""));
}

}  // namespace
}  // namespace rullama::cli
