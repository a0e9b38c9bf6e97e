#include "backends/gpu/block_memory.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "backends/gpu/fake_driver_test_util.h"

namespace rullama::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kMib = uint64_t{1} << 20;

// The error text if memory does not suffice.
std::string Refusal(const std::function<void()>& allocate) {
  try {
    allocate();
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), RL_OUT_OF_MEMORY);
    return error.what();
  }
  return "no error";
}

TEST(BlockMemory, SmallAllocationsShareABlockAndLargeOnesHaveTheirOwn) {
  FakeHost host;
  FakeDriver driver(host);
  BlockMemory memory(driver, 0);
  const Allocation first = memory.Allocate(100), second = memory.Allocate(100);
  const Allocation large = memory.Allocate(65 * kMib);
  EXPECT_EQ(&first.block(), &second.block());
  EXPECT_NE(&first.block(), &large.block());
  EXPECT_GE(second.address(), first.address() + 100);
  EXPECT_EQ(first.mapped() + (second.address() - first.address()), second.mapped());
  EXPECT_THAT(driver.blocks, ElementsAre(64 * kMib, 65 * kMib + 256));
}

TEST(BlockMemory, WhatIsGivenBackIsUsedAgain) {
  FakeHost host;
  FakeDriver driver(host);
  BlockMemory memory(driver, 0);
  DeviceAddress address = 0;
  {
    const Allocation gone = memory.Allocate(60 * kMib);
    address = gone.address();
  }
  EXPECT_EQ(memory.Allocate(60 * kMib).address(), address);
  EXPECT_THAT(driver.blocks, SizeIs(1));
}

TEST(BlockMemory, SharedMemoryHasBlocksOfItsOwnWhereThereIsSuch) {
  for (const bool has_shared : {false, true}) {
    FakeHost host;
    FakeDriver driver(host);
    driver.memory.has_shared = has_shared;
    BlockMemory memory(driver, 0);
    const Allocation near = memory.Allocate(16), shared = memory.Allocate(16, Residence::kShared);
    EXPECT_EQ(&near.block() != &shared.block(), has_shared);
  }
}

TEST(BlockMemory, RefusalsSayWhatIsMissing) {
  FakeHost host;
  FakeDriver driver(host);
  driver.memory = {.total = 256 * kMib, .free = 3 * kMib, .max_allocation = 8 * kMib};
  BlockMemory memory(driver, 0);
  EXPECT_THAT(
      Refusal([&] { memory.Allocate(257 * kMib); }),
      AllOf(HasSubstr("no room for 257.0 MiB more"), HasSubstr("has 256.0 MiB, 3.0 MiB of")));
  EXPECT_THAT(Refusal([&] { memory.Allocate(9 * kMib); }),
              HasSubstr("one allocation may have 8.0 MiB"));
  EXPECT_THAT(Refusal([&] { memory.Allocate(UINT64_MAX); }), HasSubstr("no room for"));
  // Nor is a block larger than that.
  const Allocation small = memory.Allocate(16);
  EXPECT_THAT(driver.blocks, ElementsAre(8 * kMib));
}

class FullDriver final : public FakeDriver {
 public:
  using FakeDriver::FakeDriver;
  std::unique_ptr<MemoryBlock> NewBlock(uint64_t /*bytes*/, Residence /*residence*/) override {
    throw sdk::Error(code, "the driver says no");
  }
  rl_code code = RL_OUT_OF_MEMORY;
};

TEST(BlockMemory, TheDriversOwnRefusalIsQuoted) {
  FakeHost host;
  FullDriver driver(host);
  BlockMemory memory(driver, 0);
  EXPECT_THAT(Refusal([&] { memory.Allocate(16); }),
              AllOf(HasSubstr("no room for 16 bytes"), HasSubstr("(the driver says no)")));
  driver.code = RL_DEVICE_LOST;
  try {
    memory.Allocate(16);
    ADD_FAILURE() << "no error";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), RL_DEVICE_LOST);
  }
}

TEST(BlockMemory, PiecesOfWeightsFitIntoOneAllocation) {
  FakeHost host;
  FakeDriver driver(host);
  driver.memory.max_allocation = 1000;
  EXPECT_EQ(BlockMemory(driver, 0).max_piece(), 512U);  // and 256 that stay unused, in whole 256
  EXPECT_EQ(BlockMemory(driver, 20000).max_piece(), 19712U);
  EXPECT_EQ(MaxBufferBytes(1000), 512U);
}

}  // namespace
}  // namespace rullama::gpu
