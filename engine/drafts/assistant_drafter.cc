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
  for (DraftRequest& request : requests) {
    const bool drafts = request.draft.empty() && request.most > 0 && request.follows_step;
    if (!drafts || session_.past(request.slot) < 1) continue;
    drafting_.push_back(&request);
    AddRow(request);
    longest = std::max(longest, request.most);
  }
  if (drafting_.empty()) return 0;
  const DraftGraphs::Length& graph = graphs_.Of(longest);
  step_.graph = graph.graph;
  RL_RETURN_IF_ERROR(RunStep(graph.tokens));
  const auto columns = static_cast<size_t>(graph.tokens);
  for (size_t row = 0; row < drafting_.size(); ++row) {
    Take(std::span(drafted_).subspan(row * columns, columns), *drafting_[row]);
  }
  return graph.tokens;
}

void AssistantDrafter::AddRow(const DraftRequest& request) {
  const int32_t past = session_.past(request.slot);
  step_.tokens.push_back(request.tokens.back());
  step_.pos.push_back(past);
  step_.slot.push_back(request.slot);
  from_.push_back(DraftGraphs::PlaceOf(request.slot, past - 1));
  after_.push_back(past + 1);
}

Status AssistantDrafter::RunStep(int64_t tokens) {
  step_.demand = DemandMode::kAllRows;
  RL_RETURN_IF_ERROR(session_.SetInput(draft_names::kFrom, std::as_bytes(std::span(from_))));
  RL_RETURN_IF_ERROR(session_.SetInput(draft_names::kAfter, std::as_bytes(std::span(after_))));
  RL_RETURN_IF_ERROR(session_.Run(step_));
  drafted_.resize(drafting_.size() * static_cast<size_t>(tokens));
  return session_.ReadOutput(draft_names::kTokens, std::as_writable_bytes(std::span(drafted_)));
}

void AssistantDrafter::Take(std::span<const int32_t> drafted, DraftRequest& request) const {
  const auto most = std::min(drafted.size(), static_cast<size_t>(request.most));
  for (const int32_t token : drafted.first(most)) {
    if (std::ranges::find(end_tokens_, token) != end_tokens_.end()) return;
    request.draft.push_back(token);
  }
}

}  // namespace rullama
