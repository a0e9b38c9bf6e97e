// The part of Scheduler that gives slots to jobs, with what is known of their prompts.
#include <algorithm>
#include <utility>

#include "core/runtime/snapshot.h"
#include "engine/scheduler.h"
#include "engine/soft_row_ids.h"

namespace rullama {
namespace {

constexpr auto kReturnsNowhere = [](int32_t /*slot*/, int64_t /*position*/) { return false; };

}  // namespace

std::deque<std::unique_ptr<Job>>::iterator Scheduler::NextWaiting() {
  return std::ranges::min_element(waiting_, {}, [this](const auto& job) {
    const auto last = last_turns_.find(job->client);
    return last == last_turns_.end() ? 0 : last->second;
  });
}

void Scheduler::Admit() {
  if (waiting_.empty()) last_turns_.clear();
  while (!waiting_.empty()) {
    const auto next = NextWaiting();
    if (table_.free_slots() < 1 + std::ssize((*next)->choices)) return;
    std::unique_ptr<Job> job = std::move(*next);
    waiting_.erase(next);
    last_turns_[job->client] = ++turns_;
    auto choices = std::exchange(job->choices, {});
    const SlotTable::Choice choice = ChooseSlot(*job);
    Occupy(choice, std::move(job), std::nullopt);
    for (std::unique_ptr<Job>& other : choices) {
      const auto any =
          table_.Choose(other->prompt, {}, /*answers=*/false, other->client, kReturnsNowhere);
      if (any) Occupy(*any, std::move(other), choice.slot);
    }
    if (const Status status = Begin(choice.slot, choice.reused); !status) {
      Fail(choice.slot, status.error());
    }
  }
}

SlotTable::Choice Scheduler::ChooseSlot(const Job& job) const {
  const bool reuses = job.reuse_prefix && ReadsChunks(job.kind);
  const auto cuts = reuses ? std::span(job.cuts) : std::span<const int64_t>();
  auto choice =
      table_.Choose(job.prompt, cuts, job.reuse_answers, job.client,
                    [this](int32_t slot, int64_t position) { return CanReturn(slot, position); });
  if (prefixes_.Find(job.prompt, cuts, job.client, choice->reused) > 0) {
    choice = table_.Choose(job.prompt, {}, /*answers=*/false, job.client, kReturnsNowhere);
  }
  return *choice;
}

void Scheduler::Occupy(const SlotTable::Choice& choice, std::unique_ptr<Job> job,
                       std::optional<int32_t> reader) {
  prefixes_.GiveUp(choice.slot, choice.reused);
  table_.Take(choice, job->client);
  Running running;
  if (!job->media.empty()) {
    running.media =
        PromptEncoder(std::move(job->media), SoftRowsOf(job->prompt, options_.whole_pictures));
  }
  running.job = std::move(job);
  running.reader = reader;
  running.goes_on = choice.goes_on;
  running.number = ++started_;
  running.started = EngineClock::now();
  slots_[static_cast<size_t>(choice.slot)] = std::move(running);
}

Status Scheduler::Begin(int32_t slot, int64_t held) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  const Job& job = *running.job;
  RL_RETURN_IF_ERROR(Return(slot, held));
  running.read = running.reused = held;
  if (!ReadsChunks(job.kind)) return job.kind == Job::Kind::kLoad ? Load(slot) : OkStatus();
  if (job.reuse_prefix) RL_RETURN_IF_ERROR(CopyPrefix(slot, held));
  running.media.Drop(running.read);
  const ReadProgress progress{running.read, std::ssize(job.prompt), running.reused};
  job.channel->Push(progress);
  for (const int32_t sharer : SharersOf(slot)) {
    Running& other = *slots_[static_cast<size_t>(sharer)];
    other.reused = running.reused;
    other.job->channel->Push(progress);
  }
  const std::lock_guard lock(mutex_);
  ++(running.reused > 0 ? stats_.prefix_hits : stats_.prefix_misses);
  return OkStatus();
}

Status Scheduler::CopyPrefix(int32_t slot, int64_t held) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  const Job& job = *running.job;
  const std::span<const int32_t> prompt = job.prompt;
  const int64_t found = prefixes_.Find(prompt, job.cuts, job.client, held);
  if (found == 0) return OkStatus();
  Status copied = prefixes_.Copy(slot, prompt, found, job.client);
  if (copied) {
    table_.Append(slot,
                  prompt.subspan(static_cast<size_t>(held), static_cast<size_t>(found - held)));
    running.read = running.reused = found;
    return OkStatus();
  }
  if (copied.error().kind != ErrorKind::kOutOfMemory) return copied;
  // The prompt is read instead, from its beginning if the copy has failed halfway.
  if (session_.past(slot) != held) {
    table_.Forget(slot);
    prefixes_.Lose(slot);
    running.read = running.reused = 0;
  }
  return OkStatus();
}

bool Scheduler::CanReturn(int32_t slot, int64_t position) const {
  return session_.CanGoBack(slot, static_cast<int32_t>(position)) ||
         prefixes_.HoldsRings(slot, position);
}

Status Scheduler::Return(int32_t slot, int64_t position) {
  const auto p = static_cast<int32_t>(position);
  if (session_.CanGoBack(slot, p)) return session_.SetPast(slot, p);
  return prefixes_.Return(slot, position);
}

std::vector<int32_t> Scheduler::SharersOf(int32_t slot) const {
  std::vector<int32_t> sharers;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] && slots_[i]->reader == slot) sharers.push_back(static_cast<int32_t>(i));
  }
  return sharers;
}

Status Scheduler::Share(int32_t slot, std::span<const int32_t> sharers) {
  if (sharers.empty()) return OkStatus();
  int64_t held = slots_[static_cast<size_t>(slot)]->read;
  if (held > 0) {
    const auto snapshot = session_.Save(slot, session_.past(slot));
    if (snapshot) {
      for (const int32_t sharer : sharers) {
        RL_RETURN_IF_ERROR(session_.Restore(sharer, *snapshot));
      }
    } else if (snapshot.error().kind == ErrorKind::kOutOfMemory) {
      held = 0;
    } else {
      return tl::unexpected(snapshot.error());
    }
  }
  for (const int32_t sharer : sharers) {
    Running& other = *slots_[static_cast<size_t>(sharer)];
    const std::span<const int32_t> prompt = other.job->prompt;
    if (held == 0) session_.ForgetSlot(sharer);
    table_.Append(sharer, prompt.first(static_cast<size_t>(held)));
    other.read = held;
    other.media.Drop(held);
    other.reused = std::min(other.reused, held);
    other.job->channel->Push(ReadProgress{other.read, std::ssize(prompt), other.reused});
    other.reader.reset();
  }
  return OkStatus();
}

}  // namespace rullama
