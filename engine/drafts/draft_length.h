// How many tokens a draft should have: as many as pay.
//
// A step that checks n guessed tokens takes longer than one of a single row, and so does guessing
// them. The gain is the number of right ones. All three are measured while requests run; where the
// length could change an answer, which must not follow the clock, the costs are assumed.
//
// Thread safety: value types and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace rullama {

inline constexpr int64_t kMaxDraftLength = 16;

// Seconds of steps, as decaying means of those that were measured.
class DraftCosts {
 public:
  // A decode step of `rows` rows.
  void CountStep(int64_t rows, double seconds);
  // A draft of `tokens` tokens for each of its slots.
  void CountDraft(int64_t tokens, double seconds);

  // Whether a step of `rows` rows was measured.
  [[nodiscard]] bool Knows(int64_t rows) const;
  // Seconds of a step of `rows` rows: as measured, or between and beyond what was measured. 0: no
  // step was.
  [[nodiscard]] double StepSeconds(int64_t rows) const;
  // Seconds of a token of a draft; 0: none was measured.
  [[nodiscard]] double TokenSeconds() const { return token_.seconds; }

 private:
  struct Mean {
    int64_t count = 0;
    double seconds = 0;
    void Add(double value);
  };
  std::array<Mean, kMaxDraftLength + 2> steps_ = {};  // by rows
  Mean token_;
};

// The costs that are assumed on a backend where a length could change an answer, in steps of one
// row (docs/adr/0049-lengths-of-drafts.md, docs/adr/0054-costs-of-rows-by-backend.md).
[[nodiscard]] DraftCosts UsualCosts(std::string_view backend);

// How likely the tokens of a draft are right.
class DraftAcceptance {
 public:
  // After a step that checked a draft.
  void Count(int64_t drafted, int64_t accepted);
  // Right tokens that a draft of n tokens is expected to have.
  [[nodiscard]] double Expected(int64_t n) const;
  // What to expect of an answer after others with this acceptance: another text may be easier, so
  // it is between theirs and that of trained assistants.
  [[nodiscard]] DraftAcceptance OfNextAnswer() const;

 private:
  std::array<int64_t, kMaxDraftLength> counts_ = {};  // of drafts that reached the place
  // Of the token at each place, given that those before it are right. They begin where drafts of
  // trained assistants usually are.
  std::array<double, kMaxDraftLength> right_ = {0.75, 0.65, 0.6,  0.6,  0.55, 0.55, 0.5, 0.5,
                                                0.45, 0.45, 0.45, 0.45, 0.4,  0.4,  0.4, 0.4};
};

// The length of the next draft, within [0, most], in a step that has `others` rows of other slots:
// the one with the most tokens per second. 0 if no length makes the step 3 % faster per token, and
// until a step without a draft was measured; then kFirstDraftLength until a draft was.
[[nodiscard]] int64_t BestDraftLength(const DraftCosts& costs, const DraftAcceptance& acceptance,
                                      int64_t others, int64_t most);

inline constexpr int64_t kFirstDraftLength = 4;

}  // namespace rullama
