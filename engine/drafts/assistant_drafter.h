// Drafts by the assistant of a model (models/common/assistant.h), which reads the caches of the
// model's own session: one step gives the drafts of all slots.
//
// Ownership: borrows the session. Thread safety: one thread at a time, that of the session.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/drafts/draft_request.h"
#include "engine/model_program.h"

namespace rullama {

class AssistantDrafter {
 public:
  // `graphs`: of the session, with drafts. `end_tokens` end an answer.
  AssistantDrafter(Session& session, const DraftGraphs& graphs, std::vector<int32_t> end_tokens)
      : session_(session), graphs_(graphs), end_tokens_(std::move(end_tokens)) {}

  // Drafts for the requests that have no draft yet. A draft ends before a token that ends the
  // answer, or that is less likely than the request asks for. Returns
  // the tokens that were guessed for each of them, also those that nobody asked for; 0 if no
  // request drafts. Errors: those of Session::Run.
  Result<int64_t> Draft(std::span<DraftRequest> requests);

 private:
  // Adds the rows of a step, and finds the graph of at least as many tokens as the longest draft.
  void AddRow(const DraftRequest& request);
  Status RunStep(const DraftGraphs::Length& length, bool judging);
  // Takes the draft of row `row` of `tokens` tokens.
  void Take(size_t row, size_t tokens);

  Session& session_;
  DraftGraphs graphs_;
  std::vector<int32_t> end_tokens_;
  // Memory that is reused from step to step.
  std::vector<DraftRequest*> drafting_;
  StepRows step_;
  std::vector<int32_t> from_;
  std::vector<int32_t> after_;
  std::vector<int32_t> drafted_;
  std::vector<float> probabilities_;  // empty: they were not asked for
};

}  // namespace rullama
