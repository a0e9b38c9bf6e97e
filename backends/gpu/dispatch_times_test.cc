#include "backends/gpu/dispatch_times.h"

#include <gtest/gtest.h>

#include <array>

namespace rullama::gpu {
namespace {

constexpr std::array<uint32_t, 2> kOps = {3, 5};

TEST(DispatchTimes, MoveToTheTimeOfSubmission) {
  DispatchTimes times(2);
  times.Start(1000);
  times.Add(kOps, 70, 80);
  times.Add(std::span(kOps).last(1), 85, 95);
  const auto records = times.records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].ops, kOps.data());
  EXPECT_EQ(records[0].op_count, 2U);
  EXPECT_EQ(records[0].begin, 1000U);
  EXPECT_EQ(records[0].end, 1010U);
  EXPECT_EQ(records[1].begin, 1015U);
  EXPECT_EQ(records[1].end, 1025U);
}

TEST(DispatchTimes, NeitherOverlapNorRunBackwards) {
  DispatchTimes times(3);
  times.Start(1000);
  times.Add(kOps, 70, 80);
  times.Add(kOps, 78, 90);  // the clock has ticks of more than the pause between them
  times.Add(kOps, 60, 50);
  const auto records = times.records();
  EXPECT_EQ(records[1].begin, 1010U);
  EXPECT_EQ(records[1].end, 1020U);
  EXPECT_EQ(records[2].begin, 1020U);
  EXPECT_EQ(records[2].end, 1020U);
}

TEST(DispatchTimes, BelongToTheLastExecution) {
  DispatchTimes times(1);
  times.Start(1000);
  times.Add(kOps, 70, 80);
  times.Start(2000);
  EXPECT_TRUE(times.records().empty());
  times.Add(kOps, 170, 180);
  EXPECT_EQ(times.records()[0].begin, 2000U);
}

}  // namespace
}  // namespace rullama::gpu
