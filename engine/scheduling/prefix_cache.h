// Snapshots of prompts in host memory: what a slot held after a cut point of a prompt
// (cut_points.h), for requests of the same space that begin with the same tokens.
//
// A snapshot is taken with the rings only, as long as its slot holds the other rows. It is
// completed before the slot is given to another prompt, or when another slot is to have it. Of the
// snapshots of one conversation the shortest and the two longest stay, and of the others one for
// each power of two of their distance to the longest. Beyond the limit of bytes, those go first
// that save few tokens for their size and were not used for long. A snapshot that is larger than
// the limit of all is not kept.
//
// Ownership: borrows the session. Thread safety: one thread. A snapshot that cannot be made is not
// kept, which costs time only; errors are returned where a slot's content is concerned.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "core/runtime/snapshot.h"
#include "engine/adapters_in_force.h"
#include "engine/api/stats.h"
#include "engine/scheduling/snapshot_store.h"

namespace rullama {

class PrefixCache {
 public:
  // `limit`: bytes of host memory; 0 keeps nothing. `warn` is told about the first snapshot that is
  // larger than the limit.
  // `store`: for the snapshots that have an owner; null: they are lost at the end.
  PrefixCache(Session& session, uint64_t limit, std::function<void(std::string_view text)> warn,
              std::shared_ptr<SnapshotStore> store)
      : session_(session), limit_(limit), warn_(std::move(warn)), store_(std::move(store)) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();

  // The longest prefix of the prompt that is kept for requests of its space and is longer than
  // `beyond`; 0 if there is none. At least one token of the prompt follows it. `cuts` are those of
  // the prompt.
  [[nodiscard]] int64_t Find(std::span<const int32_t> prompt, std::span<const int64_t> cuts,
                             const PromptSpace& space, int64_t beyond) const;
  // Whether the rings of the slot at a position are kept, and its other rows are still there.
  [[nodiscard]] bool HoldsRings(int32_t slot, int64_t position) const;

  // Takes `slot` back to a position for which HoldsRings() is true.
  Status Return(int32_t slot, int64_t position);
  // Makes `slot`, whose content has been given up (GiveUp), hold the first `length` tokens of the
  // prompt, a length that Find() has returned.
  Status Copy(int32_t slot, std::span<const int32_t> prompt, int64_t length,
              const PromptSpace& space);

  // Keeps what `slot` holds, which are `tokens`.
  void Keep(int32_t slot, std::span<const int32_t> tokens, const PromptSpace& space,
            std::shared_ptr<const SnapshotStore::Owner> owner);
  // Keeps a complete snapshot that the store has, or lets the store remove one that does not fit.
  void KeepLoaded(const SnapshotStore::Prompt& prompt, const PromptSpace& space);

  // Whether there are snapshots that the store does not have yet.
  [[nodiscard]] bool HasUnstored() const { return unstored_ > 0; }
  // Hands one of them to the store: the ends of conversations first, and of those the one that was
  // used last.
  void StoreNext();

  // The rows of `slot` from `position` on are going to be overwritten.
  void GiveUp(int32_t slot, int64_t position);
  // The rows of `slot` are lost.
  void Lose(int32_t slot);

  // Copies of the rings that are kept for what `slot` holds, `tokens` of its space, ascending.
  Result<std::vector<std::shared_ptr<Snapshot>>> CopyRings(int32_t slot,
                                                           std::span<const int32_t> tokens,
                                                           const PromptSpace& space) const;
  // Keeps rings of `slot`, after `tokens`.
  void KeepRings(int32_t slot, std::span<const int32_t> tokens, const PromptSpace& space,
                 std::shared_ptr<const Snapshot> rings);
  // Drops all that begins with the same tokens as `tokens` and is not longer.
  void Erase(std::span<const int32_t> tokens, const PromptSpace& space);

  // Adds what it holds and has done.
  void AddTo(EngineStats& stats) const;

 private:
  struct Entry {
    PromptSpace space;
    std::vector<int32_t> tokens;
    int32_t slot = 0;  // with the other rows, unless the snapshot is complete
    uint64_t last_used = 0;
    std::shared_ptr<const Snapshot> snapshot;
    std::shared_ptr<const SnapshotStore::Owner> owner = {};  // null: it is not for the store
    PromptKey key = {};                                      // if it has an owner
    SnapshotStore::Time used = {};                           // the time of `last_used`
    bool stored = true;                                      // or is not for the store

    [[nodiscard]] int64_t position() const { return snapshot->position(); }
    [[nodiscard]] uint64_t bytes() const {
      return snapshot->bytes() + tokens.size() * sizeof(int32_t);
    }
    [[nodiscard]] bool IsIn(int32_t other) const { return !snapshot->complete() && slot == other; }
    // Whether `prompt` begins with its tokens.
    [[nodiscard]] bool Begins(std::span<const int32_t> prompt, const PromptSpace& of_space) const;
  };
  using Entries = std::list<Entry>;

  void Add(Entry entry);
  void Touch(Entry& entry);
  // Whether no longer snapshot continues it.
  [[nodiscard]] bool IsEnd(const Entry& entry) const;
  [[nodiscard]] Entries::const_iterator FindExact(std::span<const int32_t> tokens,
                                                  const PromptSpace& space) const;
  // Replaces the snapshot by a complete one; the entry is dropped if that cannot be made.
  Status Complete(Entries::iterator entry);
  // Drops snapshots of the conversation that ends with `tokens`.
  void Thin(std::span<const int32_t> tokens, const PromptSpace& space);
  void EvictBeyondLimit();
  void DropOversized(Entries::iterator entry);
  void Drop(Entries::iterator entry);

  Session& session_;
  uint64_t limit_;
  std::function<void(std::string_view text)> warn_;
  std::shared_ptr<SnapshotStore> store_;
  int64_t unstored_ = 0;   // entries
  bool rings_fit_ = true;  // into the limit
  uint64_t uses_ = 0;
  Entries entries_;
  uint64_t bytes_ = 0;
  uint64_t largest_ = 0;  // bytes of a snapshot so far
  uint64_t evictions_ = 0;
  uint64_t oversized_ = 0;  // snapshots larger than the limit
  Histogram save_seconds_;
  Histogram restore_seconds_;
};

// Which positions of snapshots of one conversation are kept; both are ascending. Pure function.
std::vector<int64_t> ThinnedPositions(std::span<const int64_t> positions);

}  // namespace rullama
