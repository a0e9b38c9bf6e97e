// Measuring tiles on a driver whose products take the time of a known device.
#include "backends/gpu/tile_tuning.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/device.h"
#include "backends/gpu/fake_driver_test_util.h"
#include "backends/gpu/kernel_source.h"
#include "backends/gpu/product_tiles.h"

namespace rullama::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The times of the device; its tiles are those of kMeasuredTileTimes.
const std::array kTimesOfDevice = {
    TileTimes{kMeasuredTileTimes[0].tile, 2, 300, 400, 900},
    TileTimes{kMeasuredTileTimes[1].tile, 1, 250, 250, 700},
    TileTimes{kMeasuredTileTimes[2].tile, 3, 100, 180, 300},
};

Target TargetWithMatrixUnits() {
  Target target = TargetOfFakes();
  target.can.matrix_units = target.can.subgroups = true;
  target.can.subgroup_size = kMatrixSubgroup;
  target.can.multiprocessors = 4;
  target.can.shared_bytes = 49152;
  return target;
}

uint32_t ConstantOf(const Dispatch& dispatch, const char* name) {
  return dispatch.pipeline.constants[FindConstant(dispatch.pipeline.shader, name)];
}

uint64_t TimeOnDevice(const Dispatch& dispatch) {
  if (dispatch.pipeline.shader != Shader::kMatMulCoop) return 5000;
  const CoopTile tile{ConstantOf(dispatch, "kTile"), ConstantOf(dispatch, "kColumns"),
                      ConstantOf(dispatch, "kSubgroupRows"),
                      ConstantOf(dispatch, "kSubgroupColumns")};
  const auto* times = std::ranges::find(kTimesOfDevice, tile, &TileTimes::tile);
  uint32_t terms = 0;
  std::memcpy(&terms, dispatch.push.data() + offsetof(kernels::ProductLayout, k), sizeof(terms));
  const auto [x, y, z] = dispatch.groups;
  const uint64_t groups = CeilDiv(uint64_t{x} * y * z, 4);  // on each multiprocessor
  uint64_t step = times->together;
  if (groups < times->resident) {
    step = times->alone + (times->together - times->alone) * (groups - 1) / (times->resident - 1);
  }
  return CeilDiv(groups, times->resident) * (step * (terms / 64) + times->other);
}

class TileTuningTest : public ::testing::Test {
 protected:
  std::unique_ptr<FakeDriver> NewDriver(const Target& target = TargetWithMatrixUnits()) const {
    auto driver = std::make_unique<FakeDriver>(host_, target);
    driver->time_of = TimeOnDevice;
    return driver;
  }

  FakeHost host_;
};

TEST_F(TileTuningTest, FindsTheTimesOfTheDeviceAndKeepsThem) {
  EXPECT_THAT(KeptTileTimes(*NewDriver()), IsEmpty());
  { const GpuDevice device(NewDriver(), {.tune = true}); }
  const std::vector<TileTimes> kept = KeptTileTimes(*NewDriver());
  ASSERT_EQ(kept.size(), kTimesOfDevice.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    const TileTimes& times = kTimesOfDevice[i];
    EXPECT_EQ(kept[i].tile, times.tile) << i;
    EXPECT_EQ(kept[i].resident, times.resident) << i;
    EXPECT_EQ(kept[i].alone, times.alone) << i;
    EXPECT_EQ(kept[i].together, times.together) << i;
    EXPECT_EQ(kept[i].other, times.other) << i;
  }
}

TEST_F(TileTuningTest, DropsDamagedTimes) {
  { const GpuDevice device(NewDriver(), {.tune = true}); }
  std::vector<std::byte>& blob = host_.blobs.at("tile times of fake");
  blob.pop_back();
  EXPECT_THAT(KeptTileTimes(*NewDriver()), IsEmpty());
  blob.assign(1000, std::byte{1});
  EXPECT_THAT(KeptTileTimes(*NewDriver()), IsEmpty());
}

TEST_F(TileTuningTest, NeedsMatrixUnits) {
  try {
    const GpuDevice device(NewDriver(TargetOfFakes()), {.tune = true});
    FAIL() << "expected an error";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), RL_INVALID_ARGUMENT);
    EXPECT_THAT(error.what(), HasSubstr("needs matrix units"));
  }
  EXPECT_THAT(host_.blobs["tile times of fake"], IsEmpty());
}

}  // namespace
}  // namespace rullama::gpu
