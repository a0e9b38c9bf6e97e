#include "engine/scheduling/draft_maker.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/drafts/lookup_draft.h"
#include "engine/media/soft_row_ids.h"

namespace rullama {
namespace {

// Rows that a decode step has for drafts, all slots together. Backends promise that a row has the
// same bytes in a step of this many rows as alone (docs/numerics.md), and on a GPU such a step
// takes little more time than one of a single row.
constexpr int64_t kDraftRows = 16;
// With an assistant a lookup has to be surer of its guess.
constexpr int64_t kLeastLookup = 4;
// At most that many steps are without a draft.
constexpr int64_t kMostPatience = 256;
// An assistant whose drafts begin with a wrong token more often than that belongs to another model.
constexpr int64_t kDraftsToJudge = 200;
constexpr double kLeastRight = 0.1;

}  // namespace

int64_t DecodeRows(int64_t slots, int64_t most_drafted) {
  if (most_drafted == 0) return slots;
  const int64_t of_one = most_drafted + 1;
  return std::max({slots, of_one, std::min(slots * of_one, kDraftRows)});
}

int64_t NextDraftLength(int64_t drafted, int64_t accepted, int64_t most) {
  const int64_t length = accepted == drafted ? 2 * drafted : accepted + 1;
  return std::clamp<int64_t>(length, 1, most);
}

int64_t DraftMaker::LengthAfterLast(const RunningJob& running, int64_t most) const {
  const int64_t length = running.draft_length > 0 ? running.draft_length : kFirstDraftLength;
  return std::min(most, std::max(length, options_.drafts.least));
}

DraftAcceptance DraftMaker::AcceptanceOf(const RunningJob& running) const {
  if (running.acceptance) return *running.acceptance;
  return options_.drafts.equal_rows ? acceptance_.OfNextAnswer() : DraftAcceptance();
}

int64_t DraftMaker::LengthThatPays(const RunningJob& running, int64_t others, int64_t most) const {
  const bool may_follow_others = options_.drafts.equal_rows;
  const int64_t best = BestDraftLength(may_follow_others ? costs_ : options_.drafts.usual_costs,
                                       AcceptanceOf(running), may_follow_others ? others : 0, most);
  const bool tries = running.undrafted > running.patience;
  return best == 0 && tries ? std::min(most, std::max<int64_t>(1, options_.drafts.least)) : best;
}

int64_t DraftMaker::MostFor(int32_t slot, int64_t rows) const {
  const RunningJob& running = jobs_.At(slot);
  const Job& job = *running.job;
  int64_t most = std::min(options_.drafts.most, job.max_draft.value_or(options_.drafts.most));
  // The row of the last token needs no draft after it.
  most = std::min(most, options_.CapacityOf(job) - session_.past(slot) - 1);
  if (job.max_tokens >= 0) most = std::min(most, job.max_tokens - running.drawn - 1);
  return std::max<int64_t>(0, std::min(most, rows));
}

Status DraftMaker::Make(std::span<const int32_t> writing) {
  matchers_.clear();
  if (options_.drafts.most == 0) return OkStatus();
  requests_.clear();
  // Where the length of a draft can change an answer, it is as if all slots were writing.
  const int64_t sharing = options_.drafts.equal_rows ? std::ssize(writing) : options_.slots;
  int64_t left = DecodeRows(options_.slots, options_.drafts.most) - sharing;
  const int64_t share = left / sharing;
  int64_t slots_left = sharing;
  for (const int32_t slot : writing) {
    RunningJob& running = jobs_.At(slot);
    ++running.undrafted;
    const int64_t rows = options_.drafts.equal_rows ? left / slots_left-- : share;
    const int64_t cap = MostFor(slot, rows);
    const int64_t guessed = options_.drafts.as_pays
                                ? LengthThatPays(running, std::ssize(writing) - 1, cap)
                                : LengthAfterLast(running, cap);
    // A lookup costs nothing, so whether guesses pay does not matter to it.
    const int64_t most = options_.drafts.lookup ? LengthAfterLast(running, cap) : guessed;
    const int64_t longest = std::max(most, guessed);
    if (longest < std::max<int64_t>(options_.drafts.least, 1)) continue;
    left -= longest;
    const Job& job = *running.job;
    requests_.push_back(
        {.slot = slot,
         .client = job.space.client,
         .tokens = running.sequence,
         .most = most,
         .most_guessed = guessed,
         .min_probability = job.min_draft_probability.value_or(options_.drafts.min_probability),
         .sampling = job.sampling});
  }
  RL_RETURN_IF_ERROR(Draft());
  TakeDrafts();
  return OkStatus();
}

Status DraftMaker::Draft() {
  const DraftOptions& drafts = options_.drafts;
  if (drafts.lookup) {
    const int64_t least = drafts.assistant != nullptr ? kLeastLookup : kMinLookup;
    for (DraftRequest& request : requests_) {
      LookUpDraft(request.tokens, least, request.most, request.draft);
      if (request.draft.empty()) request.most = request.most_guessed;
    }
  }
  if (drafts.drafter != nullptr) return drafts.drafter->Draft(requests_);
  if (drafts.assistant == nullptr) return OkStatus();
  const EngineClock::time_point begin = EngineClock::now();
  RL_ASSIGN_OR_RETURN(const int64_t tokens, drafts.assistant->Draft(requests_));
  costs_.CountDraft(tokens, SecondsBetween(begin, EngineClock::now()));
  return OkStatus();
}

void DraftMaker::TakeDrafts() {
  for (DraftRequest& request : requests_) {
    std::vector<int32_t>& draft = request.draft;
    const auto is_last = [this](int32_t token) {
      return options_.IsEnd(token) || IsSoftRow(token);
    };
    draft.erase(std::ranges::find_if(draft, is_last), draft.end());
    RunningJob& running = jobs_.At(request.slot);
    running.guessed = request.guessed;
    if (draft.empty() || std::ssize(draft) < options_.drafts.least) {
      // It took its time, and gave no token.
      if (request.guessed) CountGuess(running, 1, 0);
      continue;
    }
    running.draft = std::move(draft);
    running.undrafted = 0;
  }
}

void DraftMaker::AddRows(int32_t slot, std::vector<RowRequest>& rows) {
  RunningJob& running = jobs_.At(slot);
  const Job& job = *running.job;
  int32_t position = session_.past(slot);
  int64_t drawn = running.drawn;
  const std::optional<constraint::Matcher>* last = &job.constraint.matcher;
  for (const int32_t token : std::exchange(running.draft, {})) {
    std::optional<constraint::Matcher>& matcher = matchers_.emplace_back(*last);
    last = &matcher;
    if (matcher && (!matcher->Accept(token) || matcher->must_end())) return;
    const auto sampling = jobs_.SamplingOf(job, matcher, ++position, ++drawn);
    if (!sampling) return;  // only a guess leads there
    rows.push_back({.slot = slot,
                    .token = token,
                    .sampling = *sampling,
                    .top_logprobs = job.top_logprobs,
                    .adapters = job.space.adapters.get()});
  }
}

void DraftMaker::CountGuess(RunningJob& running, int64_t drafted, int64_t accepted) {
  if (!running.acceptance) running.acceptance = AcceptanceOf(running);
  running.acceptance->Count(drafted, accepted);
  acceptance_.Count(drafted, accepted);
  const int64_t longer = std::min(2 * running.patience, kMostPatience);
  running.patience = accepted > 0 ? kFirstPatience : longer;
  running.undrafted = 0;
}

void DraftMaker::Count(RunningJob& running, int64_t drafted, int64_t accepted) {
  running.drafts.drafted += drafted;
  running.drafts.accepted += accepted;
  running.draft_length = NextDraftLength(drafted, accepted, options_.drafts.most);
  if (running.guessed) {
    CountGuess(running, drafted, accepted);
    WarnOfWrongDrafts(accepted);
  }
  counters_.Update([=](EngineStats& stats) {
    stats.drafted += static_cast<uint64_t>(drafted);
    stats.drafts_accepted += static_cast<uint64_t>(accepted);
    for (int64_t i = 0; i < std::min<int64_t>(drafted, std::ssize(stats.drafted_at)); ++i) {
      ++stats.drafted_at[static_cast<size_t>(i)];
      if (i < accepted) ++stats.accepted_at[static_cast<size_t>(i)];
    }
  });
}

void DraftMaker::CountStep(size_t rows, EngineClock::time_point begin) {
  costs_.CountStep(static_cast<int64_t>(rows), SecondsBetween(begin, EngineClock::now()));
}

void DraftMaker::WarnOfWrongDrafts(int64_t accepted) {
  if (accepted > 0) ++began_right_;
  if (++checked_ != kDraftsToJudge || !options_.warn) return;
  const double right = static_cast<double>(began_right_) / static_cast<double>(checked_);
  if (right < kLeastRight) options_.warn("the drafter does not fit this model: it guesses wrongly");
}

}  // namespace rullama
