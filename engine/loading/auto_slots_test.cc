#include "engine/loading/auto_slots.h"

#include <gtest/gtest.h>

namespace rullama {
namespace {

// 10 bytes a slot, and one for each token.
uint64_t SlotBytes(int64_t capacity) { return 10 + static_cast<uint64_t>(capacity); }

constexpr int64_t kCapacity = 8192;
constexpr uint64_t kSlot = 10 + kCapacity;

TEST(AutoSlots, AGpuWithRoomHasTheMost) {
  const SlotRoom room{.free = 1'000'000, .budget = 1'000'000, .taken = 50'000};
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes), (SlotChoice{kMostAutoSlots, kCapacity}));
}

TEST(AutoSlots, SlotsDoubleAsLongAsTheyFitTheBudget) {
  constexpr uint64_t kTaken = 50'000;
  SlotRoom room{.free = 1'000'000, .budget = kTaken + 4 * kSlot, .taken = kTaken};
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes), (SlotChoice{8, kCapacity}));
  --room.budget;
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes), (SlotChoice{4, kCapacity}));
}

// More slots than four have to fit the budget; four have to fit the free memory.
TEST(AutoSlots, FourSlotsKeepTheirContextAsLongAsTheyFit) {
  SlotRoom room{.free = 50'000, .budget = 40'000, .taken = 50'000};
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes), (SlotChoice{4, kCapacity}));
  --room.free;
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes), (SlotChoice{4, kCapacity / 2}));
}

// 4 x 4,096 and 4 x 6,144 tokens less are 16,384 and 24,576 bytes less.
TEST(AutoSlots, TheContextIsHalvedUntilItFits) {
  SlotRoom room{.free = 33'616, .budget = 0, .taken = 50'000};
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes).capacity, 4096);
  --room.free;
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes).capacity, 2048);
  room.free = 1;
  EXPECT_EQ(ChooseSlots(room, kCapacity, true, SlotBytes).capacity, kLeastAutoCapacity);
}

TEST(AutoSlots, AContextThatIsAskedForStays) {
  const SlotRoom room{.free = 1, .budget = 0, .taken = 50'000};
  EXPECT_EQ(ChooseSlots(room, kCapacity, false, SlotBytes), (SlotChoice{4, kCapacity}));
  EXPECT_EQ(ChooseSlots(room, 3000, true, SlotBytes), (SlotChoice{4, 3000}))
      << "half of it would be too short";
}

TEST(AutoSlots, AFifthOfTheDeviceIsLeftToOthers) {
  DeviceDescription device;
  device.memory_total = 1000;
  SlotRoom room = SlotRoomOf(device, 10);
  EXPECT_EQ(room.free, 1000U) << "a driver that does not tell";
  EXPECT_EQ(room.budget, 800U);
  EXPECT_EQ(room.taken, 10U);
  device.memory_free = 600;
  room = SlotRoomOf(device, 10);
  EXPECT_EQ(room.free, 600U);
  EXPECT_EQ(room.budget, 400U);
}

}  // namespace
}  // namespace rullama
