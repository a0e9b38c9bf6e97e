#include "backends/gpu/work_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

namespace rullama::gpu {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kOffset = 40;  // of the division, as in no shader in particular

Target DeviceOf(uint32_t groups) {
  Target target;
  target.prefers.few_groups = groups;
  target.can.subgroups = true;
  target.can.subgroup_size = 32;
  return target;
}

Dispatch Product(uint64_t rows, uint64_t bytes, uint32_t offset = 0) {
  Dispatch dispatch;
  dispatch.pipeline = {Shader::kMatVecDot, {512}};
  dispatch.shares = {.rows = rows, .bytes = bytes, .columns = 1024, .offset = offset};
  return dispatch;
}

Dispatch Other(uint32_t groups) {
  Dispatch dispatch;
  dispatch.pipeline = {Shader::kRows, {512}};
  dispatch.groups = {groups, 1, 1};
  return dispatch;
}

std::vector<uint32_t> GroupsOf(std::vector<Dispatch> dispatches,
                               const std::vector<uint32_t>& levels, uint32_t device_groups) {
  Balance(dispatches, levels, DeviceOf(device_groups), false);
  std::vector<uint32_t> groups;
  for (const Dispatch& dispatch : dispatches) groups.push_back(dispatch.groups[0]);
  return groups;
}

TEST(Balance, AProductAloneHasAllWorkgroups) {
  EXPECT_THAT(GroupsOf({Product(4096, 100), Product(50, 100)}, {0, 1}, 132), ElementsAre(132, 50));
}

TEST(Balance, TheFirstWorkgroupsOfAProductComeInAddition) {
  Dispatch adapted = Product(1000, 30);
  adapted.shares.first_groups = 2;
  EXPECT_THAT(GroupsOf({adapted, Product(1000, 10)}, {0, 0}, 102), ElementsAre(2 + 75, 25));
}

TEST(Balance, ProductsOfALevelShareByTheirBytes) {
  EXPECT_THAT(GroupsOf({Product(1000, 30), Product(1000, 10)}, {0, 0}, 100), ElementsAre(75, 25));
}

TEST(Balance, SharesOfUnevenProductsAreAllThereAre) {
  const std::vector<uint32_t> groups =
      GroupsOf({Product(1000, 7), Product(1000, 11), Product(1000, 13)}, {0, 0, 0}, 101);
  EXPECT_EQ(std::accumulate(groups.begin(), groups.end(), 0U), 101U);
}

TEST(Balance, OtherDispatchesKeepTheirWorkgroups) {
  EXPECT_THAT(GroupsOf({Other(2), Product(1000, 10), Other(1), Other(60)}, {0, 0, 0, 1}, 132),
              ElementsAre(2, 129, 1, 60));
}

TEST(Balance, ProductsHaveHalfOfThemAtLeast) {
  EXPECT_THAT(GroupsOf({Other(500), Product(1000, 10)}, {0, 0}, 132), ElementsAre(500, 66));
}

TEST(Balance, NoProductIsWithoutAWorkgroup) {
  EXPECT_THAT(GroupsOf({Product(100000, 1000), Product(1, 1)}, {0, 0}, 16), ElementsAre(15, 1));
  EXPECT_THAT(GroupsOf({Product(8, 1)}, {0}, 1), ElementsAre(1));
}

TEST(Balance, SaysWhoTakesWhichRows) {
  std::vector<Dispatch> dispatches = {Product(1000, 10, kOffset)};
  const std::vector<uint32_t> levels = {0};
  Balance(dispatches, levels, DeviceOf(132), false);
  std::array<uint32_t, 3> division{};  // lanes, rows per group, groups that get one row more
  std::memcpy(division.data(), dispatches[0].push.data() + kOffset, sizeof(division));
  EXPECT_TRUE(std::has_single_bit(division[0]));
  EXPECT_EQ(division[1], 7U);
  EXPECT_EQ(division[2], 1000U - 7 * 132);
}

TEST(Balance, OfNothingIsNothing) { EXPECT_THAT(GroupsOf({}, {}, 8), ElementsAre()); }

}  // namespace
}  // namespace rullama::gpu
