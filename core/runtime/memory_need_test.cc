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

// 5 GiB of weights of 4 bits, 1 GiB each of caches and work.
constexpr MemoryNeed kNeed{5 * kGibibyte, 10 * kGibibyte, kGibibyte, kGibibyte};

TEST(CheckRoom, ExactlyEnoughIsEnough) {
  EXPECT_TRUE(CheckRoom(DeviceWith(7 * kGibibyte), kNeed, 0));
}

TEST(CheckRoom, OneByteTooFewIsRefused) {
  const Status status = CheckRoom(DeviceWith(7 * kGibibyte - 1), kNeed, 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "device.memory");
  EXPECT_EQ(status.error().kind, ErrorKind::kOutOfMemory);
}

TEST(CheckRoom, SaysWhatIsMissingAndWhatWouldFit) {
  const Status status = CheckRoom(DeviceWith(4 * kGibibyte + kGibibyte / 2), kNeed, 0);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("needs 7.00 GiB on device 'Small GPU'"));
  EXPECT_THAT(status.error().message, HasSubstr("4.50 GiB free of 8.00 GiB: 2.50 GiB are missing"));
  EXPECT_THAT(status.error().message, HasSubstr("at most 2.0 bits (these have 4.0) would fit"));
}

TEST(CheckRoom, WeightsCannotHelpWhereTheRestIsTooLarge) {
  const Status status = CheckRoom(DeviceWith(kGibibyte + kGibibyte / 2), kNeed, 0);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("a context or chunk that takes 0.50 GiB less"));
}

TEST(CheckRoom, WhatTheSessionHoldsIsNotFree) {
  EXPECT_TRUE(CheckRoom(DeviceWith(7 * kGibibyte), {0, 0, 0, kGibibyte}, 6 * kGibibyte));
  EXPECT_FALSE(CheckRoom(DeviceWith(7 * kGibibyte), {0, 0, 0, kGibibyte + 1}, 6 * kGibibyte));
  EXPECT_FALSE(CheckRoom(DeviceWith(7 * kGibibyte), {0, 0, 0, 1}, 8 * kGibibyte));
}

TEST(CheckRoom, ADeviceThatDoesNotSayIsBelieved) {
  EXPECT_TRUE(CheckRoom(DeviceWith(0), kNeed, 0));
}

}  // namespace
}  // namespace rullama
