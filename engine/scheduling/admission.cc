#include "engine/scheduling/admission.h"

#include <iterator>
#include <utility>

namespace rullama {

void Admission::Admit() {
  const auto has_slot = [this](const Job& job) { return contents_.IsFreeFor(job); };
  while (std::unique_ptr<Job> job = waiting_.TakeNext(contents_.free_slots(), has_slot)) {
    if (IsSlotJob(job->kind)) {
      DoWithSlot(*job);
      continue;
    }
    auto choices = std::exchange(job->choices, {});
    contents_.KeepLoaded(*job);
    job->loaded.reset();
    const SlotTable::Choice choice = contents_.Choose(*job);
    jobs_.Start(choice, std::move(job), std::nullopt);
    for (std::unique_ptr<Job>& other : choices) {
      const SlotTable::Choice unused = contents_.ChooseUnused(*other);
      jobs_.Start(unused, std::move(other), choice.slot);
    }
    const Status begun = Begin(choice.slot, choice.reused);
    if (!begun) jobs_.Fail(choice.slot, begun.error());
  }
}

void Admission::DoWithSlot(const Job& job) {
  Result<SlotResult> result = ResultOf(job);
  counters_.UpdateSlot(job.slot,
                       [&](SlotActivity& state) { state.tokens = contents_.tokens(job.slot); });
  if (result) {
    job.channel->Push(*std::move(result));
  } else {
    job.channel->Push(result.error());
  }
}

Result<SlotResult> Admission::ResultOf(const Job& job) {
  if (job.kind == Job::Kind::kEraseSlot) {
    SlotResult result{.adapters = contents_.space(job.slot).adapters};
    result.erased = contents_.Erase(job.slot, job.space.client);
    result.tokens = std::ssize(result.erased);
    return result;
  }
  if (job.kind == Job::Kind::kFillSlot) {
    RL_RETURN_IF_ERROR(contents_.Fill(job.slot, *job.stored_slot, job.space));
    return SlotResult{.tokens = std::ssize(job.stored_slot->tokens)};
  }
  RL_ASSIGN_OR_RETURN(StoredSlot stored, contents_.Store(job.slot, job.space.client));
  const int64_t tokens = std::ssize(stored.tokens);
  return SlotResult{.tokens = tokens,
                    .stored = std::make_shared<StoredSlot>(std::move(stored)),
                    .adapters = contents_.space(job.slot).adapters};
}

Status Admission::Begin(int32_t slot, int64_t chosen) {
  RunningJob& running = jobs_.At(slot);
  const Job& job = *running.job;
  RL_ASSIGN_OR_RETURN(running.reused, contents_.Restore(slot, job, chosen));
  running.read = running.reused;
  if (job.kind == Job::Kind::kLoad) {
    RL_RETURN_IF_ERROR(contents_.Load(slot, job));
    jobs_.End(slot, StopReason::kEndOfGeneration);
    return OkStatus();
  }
  if (!ReadsChunks(job.kind)) return OkStatus();
  running.media.Drop(running.read);
  const ReadProgress progress{running.read, std::ssize(job.prompt), running.reused};
  job.channel->Push(progress);
  for (const int32_t sharer : jobs_.SharersOf(slot)) {
    RunningJob& other = jobs_.At(sharer);
    other.reused = running.reused;
    other.job->channel->Push(progress);
  }
  counters_.Update([&running](EngineStats& stats) {
    ++(running.reused > 0 ? stats.prefix_hits : stats.prefix_misses);
  });
  return OkStatus();
}

}  // namespace rullama
