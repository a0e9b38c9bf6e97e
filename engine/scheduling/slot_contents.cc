#include "engine/scheduling/slot_contents.h"

#include <memory>
#include <utility>

#include "core/runtime/snapshot.h"

namespace rullama {
namespace {

constexpr auto kReturnsNowhere = [](int32_t /*slot*/, int64_t /*position*/) { return false; };

}  // namespace

SlotContents::SlotContents(Session& session, const SchedulerOptions& options)
    : session_(session),
      table_(options.slots),
      prefixes_(session, options.prefix_bytes, options.warn, options.snapshots) {}

SlotTable::Choice SlotContents::Choose(const Job& job) const {
  const bool reuses = job.reuse_prefix && ReadsChunks(job.kind);
  const auto cuts = reuses ? std::span(job.cuts) : std::span<const int64_t>();
  const auto choice = table_.Choose(
      job.prompt, cuts, job.reuse_answers, job.space,
      [this](int32_t slot, int64_t position) { return CanReturn(slot, position); }, job.slot);
  const bool longer = prefixes_.Find(job.prompt, cuts, job.space, choice->reused) > 0;
  return longer ? ChooseUnused(job) : *choice;
}

SlotTable::Choice SlotContents::ChooseUnused(const Job& job) const {
  return *table_.Choose(job.prompt, {}, /*answers=*/false, job.space, kReturnsNowhere, job.slot);
}

void SlotContents::Take(const SlotTable::Choice& choice, const PromptSpace& space) {
  prefixes_.GiveUp(choice.slot, choice.reused);
  table_.Take(choice, space);
}

Result<int64_t> SlotContents::Restore(int32_t slot, const Job& job, int64_t chosen) {
  RL_RETURN_IF_ERROR(Return(slot, chosen));
  if (!ReadsChunks(job.kind) || !job.reuse_prefix) return chosen;
  return CopyPrefix(slot, job, chosen);
}

Result<int64_t> SlotContents::CopyPrefix(int32_t slot, const Job& job, int64_t held) {
  const std::span<const int32_t> prompt = job.prompt;
  const int64_t found = prefixes_.Find(prompt, job.cuts, job.space, held);
  if (found == 0) return held;
  const Status copied = prefixes_.Copy(slot, prompt, found, job.space);
  if (copied) {
    Append(slot, prompt.subspan(static_cast<size_t>(held), static_cast<size_t>(found - held)));
    return found;
  }
  if (copied.error().kind != ErrorKind::kOutOfMemory) return tl::unexpected(copied.error());
  // The prompt is read instead, from its beginning if the copy has failed halfway.
  if (session_.past(slot) == held) return held;
  table_.Forget(slot);
  prefixes_.Lose(slot);
  return 0;
}

Status SlotContents::Load(int32_t slot, const Job& job) {
  RL_RETURN_IF_ERROR(session_.Restore(slot, job.stored->snapshot));
  Append(slot, job.prompt);
  Keep(slot, job.prompt, job);
  return OkStatus();
}

Result<int64_t> SlotContents::Copy(int32_t from, std::span<const int32_t> to,
                                   std::span<const int32_t> prompt, int64_t rows) {
  if (rows > 0) {
    const auto snapshot = session_.Save(from, session_.past(from));
    if (snapshot) {
      for (const int32_t slot : to) RL_RETURN_IF_ERROR(session_.Restore(slot, *snapshot));
    } else if (snapshot.error().kind == ErrorKind::kOutOfMemory) {
      rows = 0;
    } else {
      return tl::unexpected(snapshot.error());
    }
  }
  for (const int32_t slot : to) {
    if (rows == 0) session_.ForgetSlot(slot);
    Append(slot, prompt.first(static_cast<size_t>(rows)));
  }
  return rows;
}

Result<StoredSlot> SlotContents::Store(int32_t slot, uint64_t client) {
  const std::span<const int32_t> tokens = table_.tokens(slot);
  if (tokens.empty() || table_.space(slot).client != client) {
    return MakeError(ErrorKind::kUsage, "slot.empty",
                     "slot {} holds nothing of this client; run a request in it first", slot);
  }
  StoredSlot stored;
  stored.tokens.assign(tokens.begin(), tokens.end());
  stored.chunked = table_.chunked(slot);
  RL_ASSIGN_OR_RETURN(Snapshot all, session_.Save(slot, static_cast<int32_t>(tokens.size())));
  stored.all = std::make_shared<const Snapshot>(std::move(all));
  RL_ASSIGN_OR_RETURN(stored.rings,
                      prefixes_.CopyRings(slot, tokens.first(static_cast<size_t>(stored.chunked)),
                                          table_.space(slot)));
  return stored;
}

Status SlotContents::Fill(int32_t slot, const StoredSlot& stored, const PromptSpace& space) {
  RL_RETURN_IF_ERROR(session_.CheckFits(slot, *stored.all));
  prefixes_.GiveUp(slot, 0);
  if (const Status restored = session_.Restore(slot, *stored.all); !restored) {
    Lose(slot);
    return restored;
  }
  table_.Fill(slot, stored.tokens, stored.chunked, space);
  const std::span<const int32_t> tokens = stored.tokens;
  for (const std::shared_ptr<Snapshot>& rings : stored.rings) {
    if (!session_.Adopt(slot, *rings)) continue;  // the rest is read again
    prefixes_.KeepRings(slot, tokens.first(static_cast<size_t>(rings->position())), space, rings);
  }
  return OkStatus();
}

std::vector<int32_t> SlotContents::Erase(int32_t slot, uint64_t client) {
  const std::span<const int32_t> tokens = table_.tokens(slot);
  if (tokens.empty() || table_.space(slot).client != client) return {};
  std::vector<int32_t> erased(tokens.begin(), tokens.end());
  prefixes_.Erase(tokens, table_.space(slot));
  Lose(slot);
  return erased;
}

void SlotContents::Lose(int32_t slot) {
  table_.Forget(slot);
  prefixes_.Lose(slot);
  session_.ForgetSlot(slot);
}

bool SlotContents::CanReturn(int32_t slot, int64_t position) const {
  return session_.CanGoBack(slot, static_cast<int32_t>(position)) ||
         prefixes_.HoldsRings(slot, position);
}

Status SlotContents::Return(int32_t slot, int64_t position) {
  const auto p = static_cast<int32_t>(position);
  if (session_.CanGoBack(slot, p)) return session_.SetPast(slot, p);
  return prefixes_.Return(slot, position);
}

}  // namespace rullama
