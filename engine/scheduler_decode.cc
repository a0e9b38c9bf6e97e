// The part of Scheduler that draws tokens.
#include <algorithm>

#include "engine/scheduler.h"

namespace rullama {

bool Scheduler::DecodeStep(bool all) {
  bool waited = false;
  for (Group& group : groups_) {
    if (!group.started) waited |= StartGroup(group);
  }
  const bool in_flight = !started_groups_.empty();
  if (in_flight) FinishGroup(*started_groups_.front());
  while (all && !started_groups_.empty()) FinishGroup(*started_groups_.front());
  return waited || in_flight;
}

void Scheduler::ChooseSlots(Group& group) {
  group.slots.clear();
  size_t writing = 0;  // of all groups
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const auto& running = slots_[slot];
    if (!running || !running->token) continue;
    if (!running->in_step && running->job->channel->full()) continue;
    ++writing;
    if (!running->in_step) group.slots.push_back(static_cast<int32_t>(slot));
  }
  const size_t share = (writing + groups_.size() - 1) / groups_.size();
  if (group.slots.size() <= share) return;
  std::ranges::stable_sort(group.slots, {}, [this](int32_t slot) {
    return slots_[static_cast<size_t>(slot)]->last_step;
  });
  group.slots.resize(share);
}

bool Scheduler::StartGroup(Group& group) {
  ChooseSlots(group);
  if (group.slots.empty()) return false;
  if (const Status drafted = MakeDrafts(group.slots); !drafted) {
    for (const int32_t slot : group.slots) EndFailed(slot, drafted.error());
    return true;
  }
  group.rows.clear();
  matchers_.clear();
  for (const int32_t slot : group.slots) {
    if (const Status added = AddRows(group, slot); !added) Fail(slot, added.error());
  }
  std::erase_if(group.slots, [this](int32_t slot) { return !slots_[static_cast<size_t>(slot)]; });
  if (group.slots.empty()) return true;
  group.begin = EngineClock::now();
  if (const Status started = group.batch.Start(group.rows); !started) {
    for (const int32_t slot : group.slots) EndFailed(slot, started.error());
    return true;
  }
  ++steps_;
  for (const int32_t slot : group.slots) {
    Running& running = *slots_[static_cast<size_t>(slot)];
    running.in_step = true;
    running.last_step = steps_;
  }
  group.started = true;
  started_groups_.push_back(&group);
  return true;
}

void Scheduler::FinishGroup(Group& group) {
  const auto results = group.batch.Finish(group.rows);
  CountStep(&EngineStats::decode, group.rows.size(), group.begin);
  group.started = false;
  std::erase(started_groups_, &group);
  for (const int32_t slot : group.slots) slots_[static_cast<size_t>(slot)]->in_step = false;
  if (!results) {
    for (const int32_t slot : group.slots) EndFailed(slot, results.error());
    return;
  }
  for (size_t row = 0; row < group.rows.size();) row = TakeRows(group.rows, row, *results);
}

Status Scheduler::AddRows(Group& group, int32_t slot) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  RL_ASSIGN_OR_RETURN(const RowSampling sampling, SamplingOf(running, session_.past(slot)));
  group.rows.push_back({.slot = slot,
                        .token = *running.token,
                        .sampling = sampling,
                        .top_logprobs = running.job->top_logprobs});
  if (!running.draft.empty()) AddDraftRows(group, slot);
  return OkStatus();
}

}  // namespace rullama
