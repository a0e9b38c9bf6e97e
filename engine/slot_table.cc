#include "engine/slot_table.h"

#include <algorithm>

namespace rullama {

SlotTable::SlotTable(int64_t slots) : slots_(static_cast<size_t>(slots)) {}

// The rows that both begin with, but for the last of the prompt.
int64_t SlotTable::CommonRows(const Slot& slot, std::span<const int32_t> prompt) const {
  const size_t most = std::min(slot.prompt.size(), prompt.size() - 1);
  return std::mismatch(slot.prompt.begin(), slot.prompt.begin() + static_cast<std::ptrdiff_t>(most),
                       prompt.begin())
             .first -
         slot.prompt.begin();
}

bool SlotTable::Suits(const Choice& choice, const Choice& other) const {
  if (choice.reused != other.reused) return choice.reused > other.reused;
  const Slot& slot = slots_[static_cast<size_t>(choice.slot)];
  const Slot& than = slots_[static_cast<size_t>(other.slot)];
  if (slot.prompt.empty() != than.prompt.empty()) return slot.prompt.empty();
  return slot.last_used < than.last_used;
}

void SlotTable::Take(const Choice& choice, uint64_t client) {
  Slot& slot = slots_[static_cast<size_t>(choice.slot)];
  slot.busy = true;
  slot.client = client;
  slot.prompt.resize(static_cast<size_t>(choice.reused));
}

void SlotTable::Append(int32_t slot, std::span<const int32_t> chunk) {
  std::vector<int32_t>& prompt = slots_[static_cast<size_t>(slot)].prompt;
  prompt.insert(prompt.end(), chunk.begin(), chunk.end());
}

void SlotTable::Release(int32_t slot) {
  slots_[static_cast<size_t>(slot)].busy = false;
  slots_[static_cast<size_t>(slot)].last_used = ++uses_;
}

void SlotTable::Forget(int32_t slot) { slots_[static_cast<size_t>(slot)].prompt.clear(); }

}  // namespace rullama
