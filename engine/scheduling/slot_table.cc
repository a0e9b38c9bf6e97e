#include "engine/scheduling/slot_table.h"

#include <algorithm>
#include <cstddef>

namespace rullama {

SlotTable::SlotTable(int64_t slots) : slots_(static_cast<size_t>(slots)) {}

// The rows of whole chunks that both begin with, but for the last of the prompt.
int64_t SlotTable::CommonRows(const Slot& slot, std::span<const int32_t> prompt) {
  const size_t most = std::min(slot.chunked, prompt.size() - 1);
  return std::mismatch(slot.tokens.begin(), slot.tokens.begin() + static_cast<std::ptrdiff_t>(most),
                       prompt.begin())
             .first -
         slot.tokens.begin();
}

bool SlotTable::GoesOn(const Slot& slot, std::span<const int32_t> prompt) {
  return slot.tokens.size() < prompt.size() &&
         std::equal(slot.tokens.begin(), slot.tokens.end(), prompt.begin());
}

bool SlotTable::Suits(const Choice& choice, const Choice& other) const {
  if (choice.reused != other.reused) return choice.reused > other.reused;
  const Slot& slot = slots_[static_cast<size_t>(choice.slot)];
  const Slot& than = slots_[static_cast<size_t>(other.slot)];
  if (slot.tokens.empty() != than.tokens.empty()) return slot.tokens.empty();
  return slot.last_used < than.last_used;
}

int64_t SlotTable::free_slots() const { return std::ranges::count(slots_, false, &Slot::busy); }

void SlotTable::Take(const Choice& choice, const PromptSpace& space) {
  Slot& slot = slots_[static_cast<size_t>(choice.slot)];
  slot.busy = true;
  slot.space = space;
  slot.tokens.resize(static_cast<size_t>(choice.reused));
  slot.chunked = std::min(slot.chunked, slot.tokens.size());
  slot.goes_on = choice.goes_on;
}

void SlotTable::Append(int32_t at, std::span<const int32_t> chunk) {
  Slot& slot = slots_[static_cast<size_t>(at)];
  slot.tokens.insert(slot.tokens.end(), chunk.begin(), chunk.end());
  if (!slot.goes_on) slot.chunked = slot.tokens.size();
}

void SlotTable::Fill(int32_t at, std::span<const int32_t> tokens, int64_t chunked,
                     const PromptSpace& space) {
  Slot& slot = slots_[static_cast<size_t>(at)];
  slot.tokens.assign(tokens.begin(), tokens.end());
  slot.chunked = static_cast<size_t>(chunked);
  slot.space = space;
  slot.last_used = ++uses_;
}

void SlotTable::AppendDrawn(int32_t slot, int32_t token) {
  slots_[static_cast<size_t>(slot)].tokens.push_back(token);
}

void SlotTable::Release(int32_t slot) {
  slots_[static_cast<size_t>(slot)].busy = false;
  slots_[static_cast<size_t>(slot)].last_used = ++uses_;
}

void SlotTable::Forget(int32_t at) {
  Slot& slot = slots_[static_cast<size_t>(at)];
  slot.tokens.clear();
  slot.chunked = 0;
}

}  // namespace rullama
