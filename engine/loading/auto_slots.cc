#include "engine/loading/auto_slots.h"

#include <algorithm>

namespace rullama {
namespace {

// The longest context, at most `capacity`, whose kFewestAutoSlots slots fit.
int64_t ShortenedCapacity(const SlotRoom& room, int64_t capacity,
                          const std::function<uint64_t(int64_t capacity)>& slot_bytes) {
  const uint64_t bytes = slot_bytes(capacity);
  int64_t shorter = capacity;
  uint64_t taken = room.taken;
  while (taken > room.free && shorter / 2 >= kLeastAutoCapacity) {
    shorter /= 2;
    const uint64_t saved = kFewestAutoSlots * (bytes - std::min(bytes, slot_bytes(shorter)));
    taken = room.taken - std::min(room.taken, saved);
  }
  return shorter;
}

}  // namespace

SlotRoom SlotRoomOf(const DeviceDescription& device, uint64_t taken) {
  return {.free = device.memory_free == 0 ? device.memory_total : device.memory_free,
          .budget = MemoryBudget(device),
          .taken = taken};
}

SlotChoice ChooseSlots(const SlotRoom& room, int64_t capacity, bool may_shorten,
                       const std::function<uint64_t(int64_t capacity)>& slot_bytes) {
  SlotChoice choice{.capacity = capacity};
  if (may_shorten) choice.capacity = ShortenedCapacity(room, capacity, slot_bytes);
  if (room.taken > room.budget) return choice;
  const uint64_t bytes = slot_bytes(capacity);
  uint64_t left = room.budget - room.taken;
  while (choice.slots < kMostAutoSlots) {
    const uint64_t more = static_cast<uint64_t>(choice.slots) * bytes;
    if (more > left) break;
    left -= more;
    choice.slots *= 2;
  }
  return choice;
}

}  // namespace rullama
