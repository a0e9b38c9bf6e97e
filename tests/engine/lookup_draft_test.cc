#include "engine/drafts/lookup_draft.h"

#include <gmock/gmock.h>

#include <vector>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Drafted(const std::vector<int32_t>& tokens, int64_t most = 3) {
  std::vector<int32_t> draft;
  LookUpDraft(tokens, kMinLookup, most, draft);
  return draft;
}

TEST(LookUpDraft, ContinuesAsBefore) {
  EXPECT_THAT(Drafted({1, 2, 3, 4, 5, 6, 1, 2, 3}), ElementsAre(4, 5, 6));
  EXPECT_THAT(Drafted({1, 2, 3, 4, 5, 6, 1, 2, 3}, 1), ElementsAre(4));
}

TEST(LookUpDraft, PrefersTheLongestAndThenTheLatestRun) {
  EXPECT_THAT(Drafted({1, 2, 3, 7, 9, 2, 3, 8, 9, 1, 2, 3}, 1), ElementsAre(7));
  EXPECT_THAT(Drafted({2, 3, 7, 9, 2, 3, 8, 9, 1, 2, 3}, 1), ElementsAre(8));
}

TEST(LookUpDraft, GoesRoundARunThatReachesTheEnd) {
  EXPECT_THAT(Drafted({9, 1, 2, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(Drafted({4, 4, 4}, 4), ElementsAre(4, 4, 4, 4));
}

TEST(LookUpDraft, NeedsARunOfTwoTokens) {
  EXPECT_THAT(Drafted({}), IsEmpty());
  EXPECT_THAT(Drafted({1}), IsEmpty());
  EXPECT_THAT(Drafted({1, 2, 3, 4, 3}), IsEmpty());
}

}  // namespace
}  // namespace rullama
