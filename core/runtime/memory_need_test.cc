#include "core/runtime/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rullama {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

DeviceDescription DeviceWith(uint64_t free) {
  DeviceDescription device;
  device.name = "Small GPU";
  device.memory_total = 8 * kGibibyte;
  device.memory_free = free;
  return device;
}

// 5 GiB of 4-bit weights, 1 GiB of caches and 1 GiB of work memory.
constexpr MemoryNeed kNeed{5 * kGibibyte, 10 * kGibibyte, kGibibyte, kGibibyte};

TEST(CheckDeviceMemory, ExactlyEnoughIsEnough) {
  EXPECT_TRUE(CheckDeviceMemory(DeviceWith(7 * kGibibyte), kNeed, 0));
}

TEST(CheckDeviceMemory, OneByteTooFewIsRefused) {
  const Status status = CheckDeviceMemory(DeviceWith(7 * kGibibyte - 1), kNeed, 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "device.memory");
  EXPECT_EQ(status.error().kind, ErrorKind::kOutOfMemory);
}

TEST(CheckDeviceMemory, SaysWhatIsMissingAndWhatWouldFit) {
  const Status status = CheckDeviceMemory(DeviceWith(4 * kGibibyte + kGibibyte / 2), kNeed, 0);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("needs 7.00 GiB on device 'Small GPU'"));
  EXPECT_THAT(status.error().message, HasSubstr("4.50 GiB free of 8.00 GiB: 2.50 GiB are missing"));
  EXPECT_THAT(status.error().message, HasSubstr("at most 2.0 bits (these have 4.0) would fit"));
}

TEST(CheckDeviceMemory, WeightsCannotHelpWhereTheRestIsTooLarge) {
  const Status status = CheckDeviceMemory(DeviceWith(kGibibyte + kGibibyte / 2), kNeed, 0);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("a context or chunk that takes 512.0 MiB less"));
}

TEST(CheckDeviceMemory, WhatTheSessionHoldsIsNotFree) {
  EXPECT_TRUE(CheckDeviceMemory(DeviceWith(7 * kGibibyte), {0, 0, 0, kGibibyte}, 6 * kGibibyte));
  EXPECT_FALSE(
      CheckDeviceMemory(DeviceWith(7 * kGibibyte), {0, 0, 0, kGibibyte + 1}, 6 * kGibibyte));
  EXPECT_FALSE(CheckDeviceMemory(DeviceWith(7 * kGibibyte), {0, 0, 0, 1}, 8 * kGibibyte));
}

TEST(CheckDeviceMemory, ADeviceThatDoesNotSayIsBelieved) {
  EXPECT_TRUE(CheckDeviceMemory(DeviceWith(0), kNeed, 0));
}

}  // namespace
}  // namespace rullama
