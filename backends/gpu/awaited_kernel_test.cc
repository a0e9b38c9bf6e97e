// How long a workgroup waits for a sum, on the host.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/gpu/kernel_source.h"

namespace rullama::gpu {
namespace {

// The dialect that the kernel is compiled with here; its memory gives a sum after some looks.
using Offset = uint64_t;
struct FakeMemory {
  uint64_t looks_until_sum = 0;
  uint64_t looks = 0;
  Offset place = 0;  // that was looked at
  bool stuck = false;
};
constexpr float kSum = 3.5F;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kNoSumYet = kernels::MatVecDot::kNoSumYet;
uint32_t Look(FakeMemory& memory, Offset place) {
  memory.place = place;
  return ++memory.looks > memory.looks_until_sum ? std::bit_cast<uint32_t>(kSum) : kNoSumYet;
}

#define uint uint32_t
#define ARGS_ FakeMemory &push,
#define MEMORY(name) push
#define as_float(bits) std::bit_cast<float>(bits)
#define LOOK_AT_WORD(memory, i) Look(memory, i)
#define STUCK() push.stuck = true
#define IS_STUCK() push.stuck
#include "backends/gpu/kernels/awaited.kernel"

TEST(AwaitedSum, IsNotLookedForIfItIsThere) {
  FakeMemory memory;
  EXPECT_EQ(AwaitedSum(memory, 0, std::bit_cast<uint32_t>(kSum)), kSum);
  EXPECT_EQ(memory.looks, 0U);
}

TEST(AwaitedSum, ComesLater) {
  for (const uint64_t looks : {0U, 1U, 1023U, 1024U, 100'000U, 10'000'000U}) {
    FakeMemory memory{.looks_until_sum = looks};
    EXPECT_EQ(AwaitedSum(memory, 7, kNoSumYet), kSum);
    EXPECT_EQ(memory.looks, looks + 1);
    EXPECT_EQ(memory.place, 7U);
    EXPECT_FALSE(memory.stuck);
  }
}

TEST(AwaitedSum, IsANumberThatNobodyAwaitsAfterAWaitInVain) {
  FakeMemory memory{.looks_until_sum = UINT64_MAX};
  const auto bits = std::bit_cast<uint32_t>(AwaitedSum(memory, 0, kNoSumYet));
  EXPECT_TRUE(memory.stuck);
  const uint64_t looks = memory.looks;
  EXPECT_GT(looks, 10'000'000U);
  EXPECT_NE(bits, kNoSumYet);
  EXPECT_TRUE(std::isnan(AwaitedSum(memory, 0, bits)));
  EXPECT_EQ(memory.looks, looks) << "the same sum was awaited twice";
}

TEST(AwaitedSum, IsNotAwaitedForLongAfterAnotherWasInVain) {
  FakeMemory memory{.looks_until_sum = UINT64_MAX, .stuck = true};
  EXPECT_TRUE(std::isnan(AwaitedSum(memory, 0, kNoSumYet)));
  EXPECT_LE(memory.looks, 1024U);
  EXPECT_TRUE(memory.stuck);
}

}  // namespace
}  // namespace rullama::gpu
