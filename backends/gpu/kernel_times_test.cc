#include "backends/gpu/kernel_times.h"

#include <gmock/gmock.h>

namespace rullama::gpu {
namespace {

using ::testing::ElementsAre;

TEST(KernelTimes, LongestFirst) {
  KernelTimes times;
  EXPECT_TRUE(times.empty());
  times.Add("rows 64", 1500);
  times.Add("matvec 128", 3000);
  times.Add("rows 64", 2500);
  EXPECT_FALSE(times.empty());
  EXPECT_THAT(times.Report(2),
              ElementsAre("2 steps took 7 us of the device's time", "       4.0 us     2 x rows 64",
                          "       3.0 us     1 x matvec 128"));
}

}  // namespace
}  // namespace rullama::gpu
