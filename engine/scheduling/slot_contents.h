// The contents of the slots of a session, and the known parts of a prompt before it is read: rows
// that a slot still has of an earlier request, and snapshots in host memory.
//
// Ownership: borrows the session. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "core/runtime/slot_file.h"
#include "engine/api/stats.h"
#include "engine/job.h"
#include "engine/scheduling/prefix_cache.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_table.h"

namespace rullama {

class SlotContents {
 public:
  SlotContents(Session& session, const SchedulerOptions& options);

  [[nodiscard]] int64_t free_slots() const { return table_.free_slots(); }
  // Whether the slot that a job asks for is free; it is for one that takes any.
  [[nodiscard]] bool IsFreeFor(const Job& job) const {
    return job.slot < 0 || !table_.busy(job.slot);
  }
  // The number of tokens whose rows a slot holds.
  [[nodiscard]] int64_t tokens(int32_t slot) const { return std::ssize(table_.tokens(slot)); }
  // A slot for the job, with the rows of its prompt that it holds; one is free.
  [[nodiscard]] SlotTable::Choice Choose(const Job& job) const;
  // A slot for a job that reuses nothing; one is free.
  [[nodiscard]] SlotTable::Choice ChooseUnused(const Job& job) const;
  // Gives the slot to a request of this space. What it held beyond the chosen rows will be
  // overwritten.
  void Take(const SlotTable::Choice& choice, const PromptSpace& space);
  // The slot is free; what it holds may be reused.
  void Release(int32_t slot) { table_.Release(slot); }

  // Lets the slot hold the rows of the job's prompt that were chosen, or more that the prefix cache
  // has. Returns how many.
  Result<int64_t> Restore(int32_t slot, const Job& job, int64_t chosen);
  // Lets the slot hold the snapshot of a job of kLoad.
  Status Load(int32_t slot, const Job& job);
  // Lets slots hold the first `rows` rows of the prompt, which `from` holds. Returns how many they
  // hold: none if there is no memory for a copy.
  Result<int64_t> Copy(int32_t from, std::span<const int32_t> to, std::span<const int32_t> prompt,
                       int64_t rows);

  // The session has appended rows to the slot: a chunk of a prompt, or a drawn token.
  void Append(int32_t slot, std::span<const int32_t> chunk) { table_.Append(slot, chunk); }
  void AppendDrawn(int32_t slot, int32_t token) { table_.AppendDrawn(slot, token); }
  // Keeps what the slot holds, which are `tokens` of the job's prompt, in the prefix cache.
  void Keep(int32_t slot, std::span<const int32_t> tokens, const Job& job) {
    prefixes_.Keep(slot, tokens, job.space, job.owner);
  }
  // Keeps the part of the job's prompt that was read from the disk.
  void KeepLoaded(const Job& job) {
    if (job.loaded) prefixes_.KeepLoaded(*job.loaded, job.space);
  }
  // As those of PrefixCache.
  [[nodiscard]] bool HasUnstored() const { return prefixes_.HasUnstored(); }
  void StoreNext() { prefixes_.StoreNext(); }

  // The following are for slots that are free.
  // What the slot holds for the client. Error slot.empty.
  Result<StoredSlot> Store(int32_t slot, uint64_t client);
  // Lets the slot hold what was stored, in place of what it held. Errors: snapshot.mismatch, after
  // which it holds what it held; those of the device.
  Status Fill(int32_t slot, const StoredSlot& stored, const PromptSpace& space);
  // Whose tokens the slot holds.
  [[nodiscard]] const PromptSpace& space(int32_t slot) const { return table_.space(slot); }
  // Forgets what the slot holds for the client, with its snapshots. Returns its tokens.
  std::vector<int32_t> Erase(int32_t slot, uint64_t client);

  // The slot holds nothing that may be reused.
  void Forget(int32_t slot) { table_.Forget(slot); }
  // The rows of the slot are lost.
  void Lose(int32_t slot);

  // Adds what the prefix cache holds and has done.
  void AddTo(EngineStats& stats) const { prefixes_.AddTo(stats); }

 private:
  // Whether the rows of a slot up to a position can be reused, and their reuse.
  [[nodiscard]] bool CanReturn(int32_t slot, int64_t position) const;
  Status Return(int32_t slot, int64_t position);
  // Lets the slot, which holds `held` rows of the prompt, hold those that the prefix cache has.
  // Returns how many it holds.
  Result<int64_t> CopyPrefix(int32_t slot, const Job& job, int64_t held);

  Session& session_;
  SlotTable table_;
  PrefixCache prefixes_;
};

}  // namespace rullama
