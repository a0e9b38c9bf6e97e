#include "engine/scheduling/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "core/base/clock.h"

namespace rullama {

std::vector<int64_t> ThinnedPositions(std::span<const int64_t> positions) {
  std::vector<int64_t> kept;
  int last_power = -1;
  for (size_t i = 0; i < positions.size(); ++i) {
    const int power = std::bit_width(static_cast<uint64_t>(positions.back() - positions[i]));
    const bool stays = i == 0 || i + 2 >= positions.size();
    if (stays || power != last_power) kept.push_back(positions[i]);
    if (!stays) last_power = power;
  }
  return kept;
}

bool PrefixCache::Entry::Begins(std::span<const int32_t> prompt,
                                const PromptSpace& of_space) const {
  return space == of_space && tokens.size() <= prompt.size() &&
         std::equal(tokens.begin(), tokens.end(), prompt.begin());
}

int64_t PrefixCache::Find(std::span<const int32_t> prompt, std::span<const int64_t> cuts,
                          const PromptSpace& space, int64_t beyond) const {
  int64_t longest = 0;
  for (const Entry& entry : entries_) {
    const int64_t position = entry.position();
    const bool better = position > std::max(beyond, longest) && position < std::ssize(prompt);
    if (better && std::ranges::binary_search(cuts, position) && entry.Begins(prompt, space)) {
      longest = position;
    }
  }
  return longest;
}

bool PrefixCache::HoldsRings(int32_t slot, int64_t position) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    return entry.IsIn(slot) && entry.position() == position;
  });
}

Status PrefixCache::Return(int32_t slot, int64_t position) {
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& one) { return one.IsIn(slot) && one.position() == position; });
  Touch(*entry);
  const Clock::time_point begin = Clock::now();
  Status status = session_.Restore(slot, *entry->snapshot);
  restore_seconds_.Observe(SecondsSince(begin));
  return status;
}

Status PrefixCache::Copy(int32_t slot, std::span<const int32_t> prompt, int64_t length,
                         const PromptSpace& space) {
  const auto found = FindExact(prompt.first(static_cast<size_t>(length)), space);
  const auto entry = entries_.erase(found, found);  // the same one, which may be changed
  Touch(*entry);
  if (!entry->snapshot->complete()) RL_RETURN_IF_ERROR(Complete(entry));
  const Clock::time_point begin = Clock::now();
  Status status = session_.Restore(slot, *entry->snapshot);
  restore_seconds_.Observe(SecondsSince(begin));
  EvictBeyondLimit();
  return status;
}

PrefixCache::~PrefixCache() {
  while (!entries_.empty()) Drop(entries_.begin());
}

void PrefixCache::Keep(int32_t slot, std::span<const int32_t> tokens, const PromptSpace& space,
                       std::shared_ptr<const SnapshotStore::Owner> owner) {
  if (limit_ == 0 || !rings_fit_ || FindExact(tokens, space) != entries_.end()) return;
  const Clock::time_point begin = Clock::now();
  auto snapshot = session_.Save(slot, session_.past(slot), SnapshotContent::kRings);
  save_seconds_.Observe(SecondsSince(begin));
  if (!snapshot) return;
  Add({.space = space,
       .tokens = {tokens.begin(), tokens.end()},
       .slot = slot,
       .snapshot = std::make_shared<const Snapshot>(*std::move(snapshot)),
       .owner = std::move(owner)});
}

void PrefixCache::KeepLoaded(const SnapshotStore::Prompt& prompt, const PromptSpace& space) {
  if (limit_ == 0 || FindExact(prompt.tokens, space) != entries_.end()) return;
  // A session of another capacity or with drafts holds it if its rings have not wrapped. If not,
  // the file gives way to one that this session makes.
  if (!session_.CheckFits(/*slot=*/0, *prompt.snapshot)) {
    store_->Discard(*prompt.owner, prompt.tokens);
    return;
  }
  Add({.space = space,
       .tokens = prompt.tokens,
       .snapshot = prompt.snapshot,
       .owner = prompt.owner});
}

void PrefixCache::Touch(Entry& entry) {
  entry.last_used = ++uses_;
  entry.used = std::chrono::system_clock::now();
}

bool PrefixCache::IsEnd(const Entry& entry) const {
  return std::ranges::none_of(entries_, [&entry](const Entry& other) {
    return other.tokens.size() > entry.tokens.size() && entry.Begins(other.tokens, other.space);
  });
}

void PrefixCache::StoreNext() {
  Entry* next = nullptr;
  bool next_is_end = false;
  for (Entry& entry : entries_) {
    if (entry.stored) continue;
    const bool is_end = IsEnd(entry);
    if (next != nullptr &&
        std::pair(is_end, entry.last_used) < std::pair(next_is_end, next->last_used)) {
      continue;
    }
    next = &entry;
    next_is_end = is_end;
  }
  if (next == nullptr) return;
  next->stored = true;
  --unstored_;
  std::shared_ptr<const Snapshot> snapshot = next->snapshot;
  if (!snapshot->complete()) {
    auto complete = session_.Complete(*snapshot);
    if (!complete) return;  // it is lost with the end of the program
    snapshot = std::make_shared<const Snapshot>(*std::move(complete));
  }
  store_->Write({next->owner, next->tokens, std::move(snapshot), next->used});
}

void PrefixCache::Add(Entry entry) {
  Touch(entry);
  if (entry.owner) {
    entry.key = SnapshotStore::KeyOf(*entry.owner, entry.tokens);
    entry.stored = store_->Has(entry.key);
    unstored_ += static_cast<int64_t>(!entry.stored);
    store_->SetInMemory(entry.key, true);
  }
  entries_.push_front(std::move(entry));
  const Entry& added = entries_.front();
  bytes_ += added.bytes();
  largest_ = std::max(largest_, added.bytes());
  // The rings of later prompts are at least as large.
  rings_fit_ = added.bytes() <= limit_;
  Thin(std::vector(added.tokens), PromptSpace(added.space));
  EvictBeyondLimit();
}

Result<std::vector<std::shared_ptr<Snapshot>>> PrefixCache::CopyRings(
    int32_t slot, std::span<const int32_t> tokens, const PromptSpace& space) const {
  std::vector<std::shared_ptr<Snapshot>> rings;
  for (const Entry& entry : entries_) {
    const bool usable = entry.snapshot->complete() || entry.IsIn(slot);
    if (!usable || !entry.Begins(tokens, space)) continue;
    RL_ASSIGN_OR_RETURN(Snapshot copy, session_.CopyRings(*entry.snapshot));
    rings.push_back(std::make_shared<Snapshot>(std::move(copy)));
  }
  std::ranges::sort(rings, {}, &Snapshot::position);
  return rings;
}

void PrefixCache::KeepRings(int32_t slot, std::span<const int32_t> tokens, const PromptSpace& space,
                            std::shared_ptr<const Snapshot> rings) {
  if (limit_ == 0 || !rings_fit_ || FindExact(tokens, space) != entries_.end()) return;
  Add({.space = space,
       .tokens = {tokens.begin(), tokens.end()},
       .slot = slot,
       .snapshot = std::move(rings)});
}

void PrefixCache::Erase(std::span<const int32_t> tokens, const PromptSpace& space) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto at = entry++;
    if (at->Begins(tokens, space)) Drop(at);
  }
}

void PrefixCache::GiveUp(int32_t slot, int64_t position) {
  // The longest prefix helps a continued conversation, the shortest one another request with the
  // same start.
  auto longest = entries_.end();
  auto shortest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!entry->IsIn(slot) || entry->position() <= position) continue;
    if (longest == entries_.end() || entry->position() > longest->position()) longest = entry;
    if (shortest == entries_.end() || entry->position() < shortest->position()) shortest = entry;
  }
  if (longest == entries_.end()) return;
  if (shortest != longest) static_cast<void>(Complete(shortest));
  static_cast<void>(Complete(longest));
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto at = entry++;
    if (at->IsIn(slot) && at->position() > position) Drop(at);
  }
  EvictBeyondLimit();
}

void PrefixCache::Lose(int32_t slot) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto at = entry++;
    if (at->IsIn(slot)) Drop(at);
  }
}

void PrefixCache::AddTo(EngineStats& stats) const {
  stats.prefix_bytes = static_cast<int64_t>(bytes_);
  stats.prefix_entries = std::ssize(entries_);
  stats.largest_snapshot = static_cast<int64_t>(largest_);
  stats.prefix_evictions = evictions_;
  stats.prefix_oversized = oversized_;
  stats.snapshot_save = save_seconds_;
  stats.snapshot_restore = restore_seconds_;
}

PrefixCache::Entries::const_iterator PrefixCache::FindExact(std::span<const int32_t> tokens,
                                                            const PromptSpace& space) const {
  return std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.tokens.size() == tokens.size() && entry.Begins(tokens, space);
  });
}

Status PrefixCache::Complete(Entries::iterator entry) {
  const Clock::time_point begin = Clock::now();
  auto snapshot = session_.Complete(*entry->snapshot);
  save_seconds_.Observe(SecondsSince(begin));
  if (!snapshot) {
    Drop(entry);
    return tl::unexpected(snapshot.error());
  }
  bytes_ -= entry->bytes();
  entry->snapshot = std::make_shared<const Snapshot>(*std::move(snapshot));
  bytes_ += entry->bytes();
  largest_ = std::max(largest_, entry->bytes());
  return OkStatus();
}

void PrefixCache::Thin(std::span<const int32_t> tokens, const PromptSpace& space) {
  std::vector<int64_t> positions;
  for (const Entry& entry : entries_) {
    if (entry.Begins(tokens, space)) positions.push_back(entry.position());
  }
  std::ranges::sort(positions);
  const std::vector<int64_t> kept = ThinnedPositions(positions);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto at = entry++;
    if (at->Begins(tokens, space) && !std::ranges::binary_search(kept, at->position())) Drop(at);
  }
}

void PrefixCache::EvictBeyondLimit() {
  const auto value = [this](const Entry& entry) {
    const double age = static_cast<double>(uses_ - entry.last_used + 1);
    return static_cast<double>(entry.position()) / static_cast<double>(entry.bytes()) / age;
  };
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto at = entry++;
    if (at->bytes() > limit_) DropOversized(at);
  }
  while (bytes_ > limit_) {
    const auto least = std::ranges::min_element(entries_, {}, value);
    Drop(least);
    ++evictions_;
  }
}

void PrefixCache::DropOversized(Entries::iterator entry) {
  if (++oversized_ == 1 && warn_) {
    warn_(fmt::format(
        "a snapshot of {} tokens has {} bytes, more than the {} of server.prefix_cache_mib, and is "
        "not kept; prompts of this length are read again from their beginning unless it is raised",
        entry->position(), entry->bytes(), limit_));
  }
  Drop(entry);
}

void PrefixCache::Drop(Entries::iterator entry) {
  if (entry->owner) {
    unstored_ -= static_cast<int64_t>(!entry->stored);
    store_->SetInMemory(entry->key, false);
  }
  bytes_ -= entry->bytes();
  entries_.erase(entry);
}

}  // namespace rullama
