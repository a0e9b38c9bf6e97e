// The slots of a server without context.slots, by the memory of the GPU that alone has the layers
// of its model; elsewhere there are kFewestAutoSlots. Pure functions.
#pragma once

#include <cstdint>
#include <functional>

#include "core/plugin/device.h"
#include "engine/loading/auto_settings.h"

namespace rullama {

// The fewest that are chosen.
inline constexpr int64_t kFewestAutoSlots = 4;
// With more, a step of one row takes other kernels on some devices, and longer (docs/server.md,
// "Limits").
inline constexpr int64_t kMostAutoSlots = 8;  // a power of two times kFewestAutoSlots
// No context is made shorter than this.
inline constexpr int64_t kLeastAutoCapacity = 2048;

// The memory of a device, in bytes.
struct SlotRoom {
  uint64_t free = 0;    // before the model is loaded
  uint64_t budget = 0;  // of `free`, what may be taken by choice (MemoryBudget)
  uint64_t taken = 0;   // by a session of kFewestAutoSlots slots
};

struct SlotChoice {
  int64_t slots = kFewestAutoSlots;
  int64_t capacity = 0;  // tokens of each

  friend bool operator==(const SlotChoice&, const SlotChoice&) = default;
};

[[nodiscard]] SlotRoom SlotRoomOf(const DeviceDescription& device, uint64_t taken);

// kFewestAutoSlots slots of `capacity` tokens, or the most for which there is room, doubled each
// time. If not even these fit and `may_shorten` holds, `capacity` is halved until they do, down to
// kLeastAutoCapacity. `slot_bytes`: of the caches of a slot with a capacity.
[[nodiscard]] SlotChoice ChooseSlots(const SlotRoom& room, int64_t capacity, bool may_shorten,
                                     const std::function<uint64_t(int64_t capacity)>& slot_bytes);

}  // namespace rullama
