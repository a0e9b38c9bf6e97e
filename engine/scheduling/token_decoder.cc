#include "engine/scheduling/token_decoder.h"

#include <algorithm>

namespace rullama {

CheckedDraft CheckDraft(std::span<const RowRequest> rows, size_t first,
                        std::span<const RowResult> results) {
  size_t end = first + 1;
  while (end < rows.size() && rows[end].slot == rows[first].slot) ++end;
  size_t last = first;  // the last row whose token the model drew
  while (last + 1 < end && results[last].token == rows[last + 1].token) ++last;
  return {.end = end,
          .drafted = static_cast<int64_t>(end - first - 1),
          .accepted = static_cast<int64_t>(last - first)};
}

TokenDecoder::TokenDecoder(Session& session, const SchedulerOptions& options,
                           SlotContents& contents, SlotJobs& jobs, EngineCounters& counters)
    : session_(session),
      contents_(contents),
      jobs_(jobs),
      counters_(counters),
      drafts_(session, options, jobs, counters),
      adapters_(options.graphs.adapters),
      acceptance_(options.drafts.acceptance) {
  const size_t lanes = session.lanes();
  for (size_t lane = 0; lane < std::max<size_t>(lanes, 1); ++lane) {
    groups_.emplace_back(session, options.graphs, options.vocabulary,
                         lanes > 0 ? StepLane(lane) : std::nullopt);
  }
}

bool TokenDecoder::Step(bool all) {
  bool waited = false;
  for (Group& group : groups_) {
    if (!group.started) waited |= Start(group);
  }
  const bool in_flight = !started_.empty();
  if (in_flight) Finish(*started_.front());
  if (all) Finish();
  return waited || in_flight;
}

void TokenDecoder::Finish() {
  while (!started_.empty()) Finish(*started_.front());
}

void TokenDecoder::ChooseSlots(Group& group) const {
  group.slots.clear();
  size_t writing = 0;  // of all groups
  for (int32_t slot = 0; slot < jobs_.size(); ++slot) {
    const RunningJob* running = jobs_.Find(slot);
    if (running == nullptr || !running->token) continue;
    if (!running->in_step && running->job->channel->full()) continue;
    ++writing;
    if (!running->in_step) group.slots.push_back(slot);
  }
  KeepAlike(group.slots);
  const size_t share = (writing + groups_.size() - 1) / groups_.size();
  if (group.slots.size() <= share) return;
  std::ranges::stable_sort(group.slots, {},
                           [this](int32_t slot) { return jobs_.At(slot).last_step; });
  group.slots.resize(share);
}

void TokenDecoder::KeepAlike(std::vector<int32_t>& slots) const {
  if (!adapters_ || slots.empty()) return;
  const auto needs_several = [this](int32_t slot) {
    return adapters_->NeedSeveral(jobs_.At(slot).job->space.adapters.get());
  };
  const int32_t next = *std::ranges::min_element(
      slots, {}, [this](int32_t slot) { return jobs_.At(slot).last_step; });
  const bool several = needs_several(next);
  std::erase_if(slots, [&](int32_t slot) { return needs_several(slot) != several; });
}

bool TokenDecoder::Start(Group& group) {
  ChooseSlots(group);
  if (group.slots.empty()) return false;
  if (const Status drafted = drafts_.Make(group.slots); !drafted) {
    for (const int32_t slot : group.slots) jobs_.EndFailed(slot, drafted.error());
    return true;
  }
  group.rows.clear();
  for (const int32_t slot : group.slots) {
    if (const Status added = AddRows(group, slot); !added) jobs_.Fail(slot, added.error());
  }
  std::erase_if(group.slots, [this](int32_t slot) { return jobs_.Find(slot) == nullptr; });
  if (group.slots.empty()) return true;
  group.begin = EngineClock::now();
  if (const Status started = group.batch.Start(group.rows); !started) {
    for (const int32_t slot : group.slots) jobs_.EndFailed(slot, started.error());
    return true;
  }
  ++steps_;
  for (const int32_t slot : group.slots) {
    jobs_.At(slot).in_step = true;
    jobs_.At(slot).last_step = steps_;
  }
  group.started = true;
  started_.push_back(&group);
  return true;
}

void TokenDecoder::Finish(Group& group) {
  const auto results = group.batch.Finish(group.rows);
  counters_.CountStep(&EngineStats::decode, group.rows.size(), group.begin);
  drafts_.CountStep(group.rows.size(), group.begin);
  group.started = false;
  std::erase(started_, &group);
  for (const int32_t slot : group.slots) jobs_.At(slot).in_step = false;
  if (!results) {
    for (const int32_t slot : group.slots) jobs_.EndFailed(slot, results.error());
    return;
  }
  for (size_t row = 0; row < group.rows.size();) row = TakeRows(group.rows, row, *results);
}

Status TokenDecoder::AddRows(Group& group, int32_t slot) {
  RunningJob& running = jobs_.At(slot);
  RL_ASSIGN_OR_RETURN(const RowSampling sampling, jobs_.SamplingOf(running, session_.past(slot)));
  group.rows.push_back({.slot = slot,
                        .token = *running.token,
                        .sampling = sampling,
                        .top_logprobs = running.job->top_logprobs,
                        .adapters = running.job->space.adapters.get()});
  if (!running.draft.empty()) drafts_.AddRows(slot, group.rows);
  return OkStatus();
}

CheckedDraft TokenDecoder::WithChance(CheckedDraft checked) {
  if (!acceptance_) return checked;
  checked.accepted = 0;
  std::bernoulli_distribution is_right(acceptance_->load());
  while (checked.accepted < checked.drafted && is_right(random_)) ++checked.accepted;
  return checked;
}

size_t TokenDecoder::TakeRows(std::span<const RowRequest> rows, size_t first,
                              std::span<const RowResult> results) {
  const int32_t slot = rows[first].slot;
  const CheckedDraft checked = WithChance(CheckDraft(rows, first, results));
  // The position after the first row.
  const auto past = session_.past(slot) - static_cast<int32_t>(checked.drafted);
  if (checked.drafted > 0) drafts_.Count(jobs_.At(slot), checked.drafted, checked.accepted);
  const auto keep = [&](int32_t position) -> Status {
    return session_.past(slot) > position ? session_.SetPast(slot, position) : OkStatus();
  };
  if (const Status kept = keep(past + static_cast<int32_t>(checked.accepted)); !kept) {
    jobs_.Fail(slot, kept.error());
    return checked.end;
  }
  for (int32_t i = 0; i <= checked.accepted && jobs_.Find(slot) != nullptr; ++i) {
    const size_t row = first + static_cast<size_t>(i);
    contents_.AppendDrawn(slot, rows[row].token);
    const bool by_chance = acceptance_ && i < checked.accepted;
    jobs_.TakeToken(slot, past + i,
                    by_chance ? RowResult{.token = rows[row + 1].token} : results[row]);
    // The answer may end before tokens that the model would draw.
    if (jobs_.Find(slot) == nullptr) (void)keep(past + i);
  }
  return checked.end;
}

}  // namespace rullama
