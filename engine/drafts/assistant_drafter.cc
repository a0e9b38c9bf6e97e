#include "engine/drafts/assistant_drafter.h"

#include <algorithm>

#include "core/ir/draft_names.h"

namespace rullama {

Result<int64_t> AssistantDrafter::Draft(std::span<DraftRequest> requests) {
  drafting_.clear();
  step_.tokens.clear();
  step_.pos.clear();
  step_.slot.clear();
  from_.clear();
  after_.clear();
  int64_t longest = 0;
  bool judging = false;
  for (DraftRequest& request : requests) {
    const bool drafts = request.draft.empty() && request.most > 0;
    if (!drafts || session_.past(request.slot) < 1) continue;
    request.guessed = true;
    drafting_.push_back(&request);
    AddRow(request);
    longest = std::max(longest, request.most);
    judging |= request.min_probability > 0;
  }
  if (drafting_.empty()) return 0;
  const DraftGraphs::Length& length = graphs_.Of(longest);
  RL_RETURN_IF_ERROR(RunStep(length, judging));
  for (size_t row = 0; row < drafting_.size(); ++row) {
    Take(row, static_cast<size_t>(length.tokens));
  }
  return length.tokens;
}

void AssistantDrafter::AddRow(const DraftRequest& request) {
  const int32_t past = session_.past(request.slot);
  step_.tokens.push_back(request.tokens.back());
  step_.pos.push_back(past);
  step_.slot.push_back(request.slot);
  from_.push_back(DraftGraphs::PlaceOf(request.slot, past - 1));
  after_.push_back(past + 1);
}

Status AssistantDrafter::RunStep(const DraftGraphs::Length& length, bool judging) {
  step_.graph = judging ? length.judging : length.graph;
  step_.demand = DemandMode::kAllRows;
  RL_RETURN_IF_ERROR(session_.SetInput(draft_names::kFrom, std::as_bytes(std::span(from_))));
  RL_RETURN_IF_ERROR(session_.SetInput(draft_names::kAfter, std::as_bytes(std::span(after_))));
  RL_RETURN_IF_ERROR(session_.Run(step_));
  const size_t count = drafting_.size() * static_cast<size_t>(length.tokens);
  drafted_.resize(count);
  RL_RETURN_IF_ERROR(
      session_.ReadOutput(draft_names::kTokens, std::as_writable_bytes(std::span(drafted_))));
  probabilities_.resize(judging ? count : 0);
  if (!judging) return OkStatus();
  return session_.ReadOutput(draft_names::kProbabilities,
                             std::as_writable_bytes(std::span(probabilities_)));
}

void AssistantDrafter::Take(size_t row, size_t tokens) {
  DraftRequest& request = *drafting_[row];
  const size_t end = row * tokens + std::min(tokens, static_cast<size_t>(request.most));
  for (size_t i = row * tokens; i < end; ++i) {
    if (std::ranges::find(end_tokens_, drafted_[i]) != end_tokens_.end()) return;
    // A probability that is not a number is not enough, either.
    const bool sure = request.min_probability <= 0 || probabilities_[i] >= request.min_probability;
    if (!sure) return;
    request.draft.push_back(drafted_[i]);
  }
}

}  // namespace rullama
