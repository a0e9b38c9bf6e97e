#include "engine/drafts/cut_points.h"

#include <gmock/gmock.h>

#include <utility>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> Cuts(int64_t tokens, int64_t chunk, std::vector<int64_t> borders = {}) {
  return CutPoints(tokens, chunk, {.turns = std::move(borders)});
}

TEST(CutPoints, AreWholeChunksWithoutTurns) {
  EXPECT_THAT(Cuts(0, 256), IsEmpty());
  EXPECT_THAT(Cuts(255, 256), IsEmpty());
  EXPECT_THAT(Cuts(256, 256), ElementsAre(256));
  EXPECT_THAT(Cuts(700, 256), ElementsAre(256, 512));
}

TEST(CutPoints, AreAtTurnBordersThatAreFarEnoughFromTheLastCut) {
  EXPECT_THAT(Cuts(100, 256, {63}), IsEmpty());
  EXPECT_THAT(Cuts(100, 256, {64}), ElementsAre(64));
  EXPECT_THAT(Cuts(400, 256, {70, 100, 134}), ElementsAre(70, 134, 390));
  EXPECT_THAT(Cuts(600, 256, {256, 300, 330}), ElementsAre(256, 330, 586));
  EXPECT_THAT(Cuts(300, 32, {70, 100}), ElementsAre(32, 64, 96, 128, 160, 192, 224, 256, 288));
}

TEST(CutPoints, AreBeforeTheLastPassageOfATurnToo) {
  const PromptBorders borders = {.turns = {300, 420}, .passages = {280, 330}};
  EXPECT_THAT(CutPoints(500, 256, borders), ElementsAre(256, 330, 420))
      << "280 and 300 are too near to 256";
  EXPECT_THAT(CutPoints(500, 512, borders), ElementsAre(280, 300, 420))
      << "a passage does not take the cut of its turn";
  // A prompt that grows keeps them.
  EXPECT_THAT(CutPoints(310, 512, {.turns = {300}, .passages = {280}}), ElementsAre(280, 300));
}

TEST(CutPoints, AreAfterEachPictureAndSound) {
  const std::vector<SoftRows> media = {
      {.first = 10, .count = 20}, {.first = 31, .count = 300}, {.first = 400, .count = 4}};
  EXPECT_THAT(CutPoints(450, 128, {}, media), ElementsAre(30, 158, 286, 331, 404))
      << "a sound may be cut";
}

TEST(CutPoints, LeaveAPictureWhoseRowsSeeEachOtherWhole) {
  const std::vector<SoftRows> media = {{.first = 100, .count = 60, .see_each_other = true},
                                       {.first = 161, .count = 200, .see_each_other = true}};
  EXPECT_THAT(CutPoints(500, 128, {}, media), ElementsAre(100, 160, 161, 361, 489));
  EXPECT_THAT(CutPoints(500, 160, {}, media), ElementsAre(160, 161, 361));
}

TEST(CutPoints, SnapshotsAreWorthTheirMemoryAtBordersEveryEighthChunkAndTheEnd) {
  std::vector<int64_t> cuts = {70, 102};  // a turn border and a whole chunk
  while (cuts.size() < 12) cuts.push_back(cuts.back() + 32);
  std::vector<int64_t> kept;
  for (const int64_t cut : cuts) {
    if (IsSnapshotPoint(cuts, cut, 32)) kept.push_back(cut);
  }
  EXPECT_THAT(kept, ElementsAre(cuts[7], cuts[11]));
  EXPECT_TRUE(IsSnapshotPoint(cuts, 70, 96));
}

TEST(CutPoints, TheLastWholeChunkBeforeTheLastBorderIsWorthASnapshot) {
  const std::vector<int64_t> chat = {70, 102, 134, 166, 180};
  EXPECT_TRUE(IsSnapshotPoint(chat, 166, 32)) << "the border at 180 ends the prompt";
  EXPECT_TRUE(IsSnapshotPoint(chat, 180, 32));
  EXPECT_FALSE(IsSnapshotPoint(chat, 134, 32));
  const std::vector<int64_t> question = {512, 1024, 1390, 1400};  // of a passage and a turn
  EXPECT_TRUE(IsSnapshotPoint(question, 1024, 512)) << "the passage may be within the question";
  EXPECT_FALSE(IsSnapshotPoint(question, 512, 512));
  const std::vector<int64_t> text = {32, 64, 96};
  EXPECT_FALSE(IsSnapshotPoint(text, 64, 32)) << "no border follows";
}

TEST(CutPoints, StayWhereTheyAreWhenThePromptGoesOn) {
  const std::vector<int64_t> borders = {40, 90, 130, 400, 470, 471, 900};
  const std::vector<int64_t> whole = Cuts(1000, 256, borders);
  for (int64_t tokens = 0; tokens <= 1000; ++tokens) {
    std::vector<int64_t> known;
    for (const int64_t border : borders) {
      if (border <= tokens) known.push_back(border);
    }
    const std::vector<int64_t> cuts = Cuts(tokens, 256, known);
    ASSERT_LE(cuts.size(), whole.size());
    EXPECT_TRUE(std::equal(cuts.begin(), cuts.end(), whole.begin())) << tokens;
    EXPECT_TRUE(cuts.size() == whole.size() || whole[cuts.size()] > tokens) << tokens;
  }
}

}  // namespace
}  // namespace rullama
