#include "core/sdk/processor.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace rullama::sdk {
namespace {

TEST(PhysicalCores, FollowsTheAffinityOfTheThread) {
  EXPECT_GE(PhysicalCores(), 1);
  int pinned = 0;
  std::thread([&pinned] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    pinned = PhysicalCores();
  }).join();
  EXPECT_EQ(pinned, 1);
}

}  // namespace
}  // namespace rullama::sdk
