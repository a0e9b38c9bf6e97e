// Drafts by a smaller model with the same vocabulary: it draws tokens as the requests do, with
// their settings and random numbers.
//
// Its slots follow those of the main session: before it drafts for a slot, it goes back to the
// tokens that both hold and reads the rest, at most a chunk at a time.
//
// Ownership: owns the session of the draft model. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "engine/drafts/draft_request.h"
#include "engine/model_session.h"
#include "engine/scheduling/batch_session.h"

namespace rullama {

// The wanted rows of a step of a draft model: after a draft that was accepted as a whole, a slot
// lacks its last token as well.
[[nodiscard]] constexpr int64_t DraftModelRows(int64_t slots) { return 2 * slots; }

class ModelDrafter {
 public:
  // `session`: of GraphOutputs::kBatch, with DraftModelRows() wanted rows and at least as many
  // spare rows as a draft has tokens.
  explicit ModelDrafter(std::unique_ptr<ModelSession> session);

  // Drafts for the requests that have no draft yet. A draft ends before a token that ends the
  // answer. It is empty if the draft model has read too little of the sequence so far, has no
  // room for it, or the sequence has pictures or sounds, which it does not read. Errors: those of
  // BatchSession.
  Status Draft(std::span<DraftRequest> requests);

  [[nodiscard]] ModelSession& session() { return *session_; }
  [[nodiscard]] const ModelSession& session() const { return *session_; }

 private:
  struct Slot {
    uint64_t client = 0;
    std::vector<int32_t> tokens = {};  // of its rows
  };

  // Goes back to the common tokens and reads a chunk of the rest, unless it is short. Returns
  // whether the rest is short.
  Result<bool> CatchUp(const DraftRequest& request);
  // Draws one token for each of drafting_, and takes those out that are done.
  Status DrawTokens();
  [[nodiscard]] bool IsEnd(int32_t token) const;

  std::unique_ptr<ModelSession> session_;
  BatchSession batch_;
  std::vector<Slot> slots_;
  std::vector<DraftRequest*> drafting_;
  std::vector<RowRequest> rows_;  // kept for its memory
};

}  // namespace rullama
