// The part of Scheduler that makes drafts and takes what a step says about them.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/lookup_draft.h"
#include "engine/scheduler.h"
#include "engine/soft_row_ids.h"

namespace rullama {
namespace {

// Rows that a decode step has for drafts, all slots together: backends promise the same bytes of a
// row in steps of so many rows and one (docs/numerics.md), and a step of so many takes little more
// time on a GPU.
constexpr int64_t kDraftRows = 16;
// The length of the first draft of an answer; then what was accepted decides.
constexpr int64_t kFirstLength = 4;

}  // namespace

int64_t DecodeRows(int64_t slots, int64_t most_drafted) {
  if (most_drafted == 0) return slots;
  const int64_t of_one = most_drafted + 1;
  return std::max({slots, of_one, std::min(slots * of_one, kDraftRows)});
}

int64_t Scheduler::MostDrafted(int32_t slot) const {
  const Running& running = *slots_[static_cast<size_t>(slot)];
  const Job& job = *running.job;
  if (!job.drafts) return 0;
  // The row of the last token needs no draft behind it.
  int64_t most = CapacityOf(job) - session_.past(slot) - 1;
  if (job.max_tokens >= 0) most = std::min(most, job.max_tokens - running.drawn - 1);
  const int64_t length = running.draft_length > 0 ? running.draft_length : kFirstLength;
  return std::min({most, options_.drafts.most, std::max(length, options_.drafts.least)});
}

Status Scheduler::MakeDrafts(std::span<const int32_t> writing) {
  if (options_.drafts.most == 0) return OkStatus();
  drafts_.clear();
  int64_t left = DecodeRows(options_.slots, options_.drafts.most) - std::ssize(writing);
  int64_t slots_left = std::ssize(writing);
  for (const int32_t slot : writing) {
    const Running& running = *slots_[static_cast<size_t>(slot)];
    const int64_t most = std::min(MostDrafted(slot), left / slots_left--);
    if (most < std::max<int64_t>(options_.drafts.least, 1)) continue;
    left -= most;
    DraftRequest& request = drafts_.emplace_back(DraftRequest{.slot = slot,
                                                              .client = running.job->client,
                                                              .tokens = running.sequence,
                                                              .most = most,
                                                              .sampling = running.job->sampling});
    if (options_.drafts.lookup) LookUpDraft(request.tokens, most, request.draft);
  }
  if (options_.drafts.drafter != nullptr) {
    RL_RETURN_IF_ERROR(options_.drafts.drafter->Draft(drafts_));
  }
  for (DraftRequest& request : drafts_) {
    std::vector<int32_t>& draft = request.draft;
    const auto is_last = [this](int32_t token) { return IsEnd(token) || IsSoftRow(token); };
    draft.erase(std::ranges::find_if(draft, is_last), draft.end());
    if (std::ssize(draft) < options_.drafts.least) continue;
    slots_[static_cast<size_t>(request.slot)]->draft = std::move(draft);
  }
  return OkStatus();
}

void Scheduler::AddDraftRows(Group& group, int32_t slot) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  const Job& job = *running.job;
  int32_t position = session_.past(slot);
  int64_t drawn = running.drawn;
  const std::optional<constraint::Matcher>* last = &job.constraint.matcher;
  for (const int32_t token : std::exchange(running.draft, {})) {
    std::optional<constraint::Matcher>& matcher = matchers_.emplace_back(*last);
    last = &matcher;
    if (matcher && (!matcher->Accept(token) || matcher->must_end())) return;
    const auto sampling = SamplingOf(job, matcher, ++position, ++drawn);
    if (!sampling) return;  // only a guess leads there
    group.rows.push_back(
        {.slot = slot, .token = token, .sampling = *sampling, .top_logprobs = job.top_logprobs});
  }
}

size_t Scheduler::TakeRows(std::span<const RowRequest> rows, size_t first,
                           std::span<const RowResult> results) {
  const int32_t slot = rows[first].slot;
  auto& running = slots_[static_cast<size_t>(slot)];
  size_t end = first + 1;
  while (end < rows.size() && rows[end].slot == slot) ++end;
  size_t last = first;  // the last row whose token the model drew
  while (last + 1 < end && results[last].token == rows[last + 1].token) ++last;
  const auto drafted = static_cast<int64_t>(end - first - 1);
  const auto accepted = static_cast<int64_t>(last - first);
  const auto past = session_.past(slot) - static_cast<int32_t>(drafted);  // behind the first row
  if (drafted > 0) CountDraft(*running, drafted, accepted);
  const auto keep = [&](int32_t position) -> Status {
    return session_.past(slot) > position ? session_.SetPast(slot, position) : OkStatus();
  };
  if (const Status kept = keep(past + static_cast<int32_t>(accepted)); !kept) {
    Fail(slot, kept.error());
    return end;
  }
  for (int32_t i = 0; i <= static_cast<int32_t>(accepted) && running; ++i) {
    const size_t row = first + static_cast<size_t>(i);
    table_.AppendDrawn(slot, rows[row].token);
    TakeResult(slot, past + i, results[row]);
    // The answer may end in front of tokens that the model would draw.
    if (!running) (void)keep(past + i);
  }
  return end;
}

void Scheduler::CountDraft(Running& running, int64_t drafted, int64_t accepted) {
  running.drafts.drafted += drafted;
  running.drafts.accepted += accepted;
  const int64_t length = accepted == drafted ? 2 * drafted : accepted + 1;
  running.draft_length = std::clamp<int64_t>(length, 1, options_.drafts.most);
  const std::lock_guard lock(mutex_);
  stats_.drafted += static_cast<uint64_t>(drafted);
  stats_.drafts_accepted += static_cast<uint64_t>(accepted);
}

}  // namespace rullama
