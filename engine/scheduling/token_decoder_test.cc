#include "engine/scheduling/token_decoder.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace rullama {
namespace {

// Rows of (slot, token), and the tokens that are drawn after them.
struct Step {
  std::vector<RowRequest> rows;
  std::vector<RowResult> results;

  void Add(int32_t slot, int32_t token, Result<int32_t> drawn) {
    rows.push_back({.slot = slot, .token = token});
    results.push_back({.token = std::move(drawn)});
  }
};

void ExpectChecked(const CheckedDraft& checked, size_t end, int64_t drafted, int64_t accepted) {
  EXPECT_EQ(checked.end, end);
  EXPECT_EQ(checked.drafted, drafted);
  EXPECT_EQ(checked.accepted, accepted);
}

TEST(CheckDraftTest, TokensCountUpToTheFirstWrongOne) {
  Step step;
  step.Add(0, 5, 6);
  step.Add(0, 6, 7);
  step.Add(0, 9, 10);  // 7 was drawn
  step.Add(0, 10, 11);
  ExpectChecked(CheckDraft(step.rows, 0, step.results), 4, 3, 1);
}

TEST(CheckDraftTest, SlotsAreApart) {
  Step step;
  step.Add(0, 5, 6);
  step.Add(1, 6, 7);
  step.Add(1, 7, 8);
  ExpectChecked(CheckDraft(step.rows, 0, step.results), 1, 0, 0);
  ExpectChecked(CheckDraft(step.rows, 1, step.results), 3, 1, 1);
}

TEST(CheckDraftTest, NothingFollowsARowThatFailed) {
  Step step;
  step.Add(0, 5, tl::unexpected(Error{ErrorKind::kRuntime, "backend.nan", "not finite"}));
  step.Add(0, 6, 7);
  ExpectChecked(CheckDraft(step.rows, 0, step.results), 2, 1, 0);
}

TEST(NextDraftLengthTest, FollowsWhatWasAccepted) {
  EXPECT_EQ(NextDraftLength(4, 4, 16), 8);
  EXPECT_EQ(NextDraftLength(4, 4, 6), 6) << "at most the most";
  EXPECT_EQ(NextDraftLength(8, 2, 16), 3);
  EXPECT_EQ(NextDraftLength(8, 0, 16), 1) << "at least one";
}

TEST(DecodeRowsTest, OneDraftFitsWholeAndAllShareTheRest) {
  EXPECT_EQ(DecodeRows(/*slots=*/4, /*most_drafted=*/0), 4);
  EXPECT_EQ(DecodeRows(1, 8), 9);
  EXPECT_EQ(DecodeRows(4, 8), 16);
  EXPECT_EQ(DecodeRows(32, 8), 32);
}

}  // namespace
}  // namespace rullama
