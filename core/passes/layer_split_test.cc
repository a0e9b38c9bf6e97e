#include "core/passes/layer_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/passes/layers.h"
#include "core/passes/mini_model_for_test.h"

namespace rullama {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The cuts of a model whose layers can be parted anywhere.
std::vector<bool> AllCuts(size_t layers) {
  std::vector<bool> possible(layers, true);
  possible[0] = false;
  return possible;
}

// The first `free` layers can be cut off, the others share caches.
std::vector<bool> FirstCuts(size_t free, size_t layers) {
  std::vector<bool> possible(layers, false);
  for (size_t i = 1; i <= free; ++i) possible[i] = true;
  return possible;
}

void ExpectError(const Result<LayerCounts>& split, const std::string& id, const std::string& part) {
  ASSERT_FALSE(split.has_value());
  EXPECT_EQ(split.error().id, id);
  EXPECT_EQ(split.error().kind, ErrorKind::kUsage);
  EXPECT_THAT(split.error().message, HasSubstr(part));
}

TEST(LayerSplit, CountsAreTakenAsGiven) {
  EXPECT_THAT(*SplitByCount(std::vector<int64_t>{2, 3, 1}, 3, AllCuts(6)), ElementsAre(2, 3, 1));
  EXPECT_THAT(*SplitByCount(std::vector<int64_t>{6}, 1, AllCuts(6)), ElementsAre(6));
}

TEST(LayerSplit, CountsThatFitNeitherDevicesNorModelAreRefused) {
  const auto cuts = AllCuts(6);
  ExpectError(SplitByCount(std::vector<int64_t>{3, 3}, 3, cuts), "split.numbers",
              "2 numbers for 3 devices");
  ExpectError(SplitByCount(std::vector<int64_t>{3, 4}, 2, cuts), "split.numbers",
              "[3, 4], but the model has 6 layers");
  ExpectError(SplitByCount(std::vector<int64_t>{3, 2}, 2, cuts), "split.numbers", "6 layers");
  ExpectError(SplitByCount(std::vector<int64_t>{6, 0}, 2, cuts), "split.numbers", "from 1 on");
  ExpectError(SplitByCount(std::vector<int64_t>{7, -1}, 2, cuts), "split.numbers", "from 1 on");
  ExpectError(SplitByCount(std::vector<int64_t>{4, 2}, 2, FirstCuts(3, 6)), "split.cut",
              "before layer 4, where layers share a KV cache; a device may begin at the "
              "layers 1 to 3");
}

TEST(LayerSplit, SharesAreFollowedAsCloselyAsCutsAllow) {
  EXPECT_THAT(*SplitByShare(std::vector<double>{3, 1}, 2, AllCuts(8)), ElementsAre(6, 2));
  EXPECT_THAT(*SplitByShare(std::vector<double>{0.5, 0.5}, 2, AllCuts(5)), ElementsAre(3, 2));
  EXPECT_THAT(*SplitByShare(std::vector<double>{0.7, 0.3}, 2, FirstCuts(3, 10)), ElementsAre(3, 7));
  EXPECT_THAT(*SplitByShare(std::vector<double>{1e-6, 1, 1}, 3, AllCuts(5)), ElementsAre(1, 2, 2));
  ExpectError(SplitByShare(std::vector<double>{1, 0}, 2, AllCuts(8)), "split.numbers", "above 0");
  ExpectError(SplitByShare(std::vector<double>{1}, 2, AllCuts(8)), "split.numbers",
              "1 number for 2 devices");
}

TEST(LayerSplit, MoreDevicesThanPartsAreRefused) {
  ExpectError(SplitByShare(std::vector<double>{1, 1, 1}, 3, FirstCuts(1, 6)), "split.devices",
              "into 2 parts at most, for 3 devices");
  const std::vector<uint64_t> bytes(6, 1);
  const std::vector<DeviceRoom> rooms(2, DeviceRoom{6});
  ExpectError(SplitByRoom(bytes, rooms, FirstCuts(0, 6)), "split.devices", "into 1 part at most");
}

TEST(LayerSplit, RoomIsFilledEvenly) {
  const std::vector<uint64_t> bytes = {1, 1, 1, 1, 1, 1, 1, 5};  // the head is heavy
  const auto split = [&](std::vector<DeviceRoom> rooms) {
    return *SplitByRoom(bytes, rooms, AllCuts(bytes.size()));
  };
  EXPECT_THAT(split({{100}, {100}}), ElementsAre(6, 2));
  EXPECT_THAT(split({{100}, {300}}), ElementsAre(3, 5));
  EXPECT_THAT(split({{4}, {8}}), ElementsAre(4, 4)) << "nothing else fits";
  // A processor takes what the graphics cards have no room for.
  EXPECT_THAT(split({{100}, {1000, true}}), ElementsAre(7, 1));
  EXPECT_THAT(split({{5}, {1000, true}}), ElementsAre(5, 3));
  EXPECT_THAT(split({{1000, true}, {100}}), ElementsAre(1, 7));
  EXPECT_THAT(split({{2}, {2}, {1000, true}}), ElementsAre(2, 2, 4));
}

TEST(LayerSplit, BytesOfLayersAreTheirWeightsAndStates) {
  Graph graph = MiniModel::Build();
  const std::vector<std::string> outputs = {"scaled", "blk.0.out", "blk.1.out", "blk.2.out"};
  const std::vector<size_t> layers = *LayersOf(graph, outputs);
  const auto before = BytesOfLayers(graph, layers, 3, 1);
  ASSERT_EQ(before.size(), 3U);
  EXPECT_GT(before[1], 2U * 2 * 6 * 4 * sizeof(uint16_t)) << "two caches, and weights";
  // The op that reads the table of a per-layer embedding goes to the host.
  graph.ops[OpOf(graph, "blk.1.ple")].device = 1;
  const auto after = BytesOfLayers(graph, layers, 3, 1);
  EXPECT_EQ(before[1] - after[1], MiniModel::kVocabulary * MiniModel::kPleWidth * sizeof(float));
  EXPECT_EQ(before[0], after[0]);
  EXPECT_EQ(before[2], after[2]);
}

}  // namespace
}  // namespace rullama
