#include "backends/gpu/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace rullama::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Dispatch DispatchOf(Shader shader) {
  Dispatch dispatch;
  dispatch.pipeline = {shader, {64}};
  return dispatch;
}

TEST(LevelsOf, AReaderComesAfterItsWriter) {
  std::vector<Dispatch> dispatches(4, DispatchOf(Shader::kRows));
  dispatches[0].writes = {{100, 200}};
  dispatches[1].reads = {{150, 160}};
  dispatches[2].reads = {{200, 300}};   // next to the written range
  dispatches[3].writes = {{150, 151}};  // which dispatch 1 still reads
  EXPECT_THAT(LevelsOf(dispatches), ElementsAre(0, 1, 0, 2));
}

TEST(OrderOf, LevelsComeInOrderAndThoseOnMatrixUnitsFirst) {
  const std::vector<Dispatch> dispatches{
      DispatchOf(Shader::kRows), DispatchOf(Shader::kRope), DispatchOf(Shader::kMatMulCoop),
      DispatchOf(Shader::kToHalf), DispatchOf(Shader::kAttentionCoop)};
  EXPECT_THAT(OrderOf(dispatches, {1, 0, 1, 1, 1}), ElementsAre(1, 2, 4, 0, 3));
  EXPECT_THAT(OrderOf({}, {}), IsEmpty());
}

}  // namespace
}  // namespace rullama::gpu
