#include "engine/drafts/model_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/media/soft_row_ids.h"

namespace rullama {
namespace {

// The most rows of a slot after which a step draws.
constexpr int64_t kShortRest = DraftModelRows(1);

int64_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t most = std::min(a.size(), b.size());
  return std::ranges::mismatch(a.first(most), b.first(most)).in1 - a.begin();
}

}  // namespace

ModelDrafter::ModelDrafter(std::unique_ptr<ModelSession> session)
    : session_(std::move(session)),
      batch_(session_->session(), session_->graphs(), session_->model().facts().vocabulary),
      slots_(static_cast<size_t>(session_->slots())) {}

Status ModelDrafter::Draft(std::span<DraftRequest> requests) {
  drafting_.clear();
  for (DraftRequest& request : requests) {
    // The last token of a draft needs no row.
    request.most = std::min(request.most, session_->capacity() - std::ssize(request.tokens) + 1);
    if (!request.draft.empty() || request.most <= 0) continue;
    if (std::ranges::any_of(request.tokens, IsSoftRow)) continue;
    RL_ASSIGN_OR_RETURN(const bool ready, CatchUp(request));
    if (ready) drafting_.push_back(&request);
  }
  while (!drafting_.empty()) RL_RETURN_IF_ERROR(DrawTokens());
  return OkStatus();
}

Result<bool> ModelDrafter::CatchUp(const DraftRequest& request) {
  Session& session = session_->session();
  Slot& slot = slots_[static_cast<size_t>(request.slot)];
  const auto all_but_last = request.tokens.first(request.tokens.size() - 1);
  int64_t common = CommonTokens(slot.tokens, all_but_last);
  if (slot.client != request.client) common = 0;
  slot.client = request.client;
  if (session.CanGoBack(request.slot, static_cast<int32_t>(common))) {
    RL_RETURN_IF_ERROR(session.SetPast(request.slot, static_cast<int32_t>(common)));
  } else {
    session.ForgetSlot(request.slot);
    common = 0;
  }
  slot.tokens.resize(static_cast<size_t>(common));
  if (std::ssize(request.tokens) - common <= kShortRest) return true;
  const auto missing = all_but_last.subspan(static_cast<size_t>(common));
  const auto chunk =
      missing.first(std::min(missing.size(), static_cast<size_t>(session_->chunk())));
  RL_RETURN_IF_ERROR(batch_.Read(request.slot, chunk, {}));
  slot.tokens.insert(slot.tokens.end(), chunk.begin(), chunk.end());
  return chunk.size() == missing.size();
}

Status ModelDrafter::DrawTokens() {
  rows_.clear();
  for (const DraftRequest* request : drafting_) {
    Slot& slot = slots_[static_cast<size_t>(request->slot)];
    const auto add = [&](int32_t token) {
      rows_.push_back({.slot = request->slot, .token = token, .sampling = request->sampling});
      slot.tokens.push_back(token);
    };
    while (slot.tokens.size() < request->tokens.size()) {
      add(request->tokens[slot.tokens.size()]);
    }
    if (!request->draft.empty()) add(request->draft.back());
  }
  RL_ASSIGN_OR_RETURN(const auto results, batch_.Decode(rows_));
  size_t row = 0;
  for (DraftRequest*& request : drafting_) {
    while (row + 1 < rows_.size() && rows_[row + 1].slot == request->slot) ++row;
    RL_ASSIGN_OR_RETURN(const int32_t token, results[row++].token);
    const bool ends = IsEnd(token);
    if (!ends) request->draft.push_back(token);
    if (ends || std::ssize(request->draft) >= request->most) request = nullptr;
  }
  std::erase(drafting_, nullptr);
  return OkStatus();
}

bool ModelDrafter::IsEnd(int32_t token) const {
  const auto ends = session_->tokenizer().end_of_generation_ids();
  return std::ranges::find(ends, token) != ends.end();
}

}  // namespace rullama
