#include "core/config/device_codecs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/config/device_name.h"
#include "core/config/layered_config.h"

namespace rullama {
namespace {

// placement.split of a configuration in which it has this value, and its error.
Result<LayerSplit> Read(const std::string& text) {
  LayeredConfig config;
  RL_RETURN_IF_ERROR(config.ApplyYaml("placement: {split: " + text + "}", "test"));
  return config.values().placement.split;
}

TEST(LayerSplitCodec, ReadsLayersSharesAndAuto) {
  EXPECT_EQ(*Read("auto"), LayerSplit());
  EXPECT_EQ(*Read("[20, 15]"), (LayerSplit{.layers = {20, 15}, .shares = {}}));
  EXPECT_EQ(*Read("[0.75, 0.25]"), (LayerSplit{.layers = {}, .shares = {0.75, 0.25}}));
  EXPECT_EQ(*Read("[3.0, 1]"), (LayerSplit{.layers = {}, .shares = {3, 1}}));
}

TEST(LayerSplitCodec, WhatItPrintsIsReadBack) {
  for (const LayerSplit& split : {LayerSplit{}, LayerSplit{.layers = {1, 2, 3}, .shares = {}},
                                  LayerSplit{.layers = {}, .shares = {3, 1}},
                                  LayerSplit{.layers = {}, .shares = {0.001, 1e6}}}) {
    EXPECT_EQ(*Read(LayerSplitCodec().Print(split)), split);
  }
}

TEST(LayerSplitCodec, ReadsTextWithoutBrackets) {
  LayeredConfig config;
  ASSERT_TRUE(config.Set("placement.split", "3.0,1.0", Origin::kFlag, "test"));
  EXPECT_EQ(config.values().placement.split, (LayerSplit{.layers = {}, .shares = {3, 1}}));
  const Status wrong = config.Set("placement.split", "3,-1", Origin::kFlag, "test");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().id, "config.range");
}

TEST(DeviceListCodec, ReadsAListAndTextWithoutBrackets) {
  const std::vector<DeviceSetting> expected = {{.name = "vulkan:0"}, {.name = "cpu"}};
  LayeredConfig config;
  ASSERT_TRUE(config.ApplyYaml("backend: {devices: [\"vulkan:0\", cpu]}", "test"));
  EXPECT_EQ(config.values().backend.devices, expected);
  ASSERT_TRUE(config.Set("backend.devices", "vulkan:0,cpu", Origin::kFlag, "test"));
  EXPECT_EQ(config.values().backend.devices, expected);
  const Status wrong = config.Set("backend.devices", "vulkan:0,", Origin::kFlag, "test");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().id, "config.type");
}

TEST(DeviceListCodec, ReadsOptionsOfADevice) {
  LayeredConfig config;
  ASSERT_TRUE(
      config.ApplyYaml("backend:\n"
                       "  devices:\n"
                       "    - cpu\n"
                       "    - {device: \"vulkan:1\", options: {persistent: off}}\n"
                       "    - {device: \"cpu:0\", options: {threads: 4}}\n"
                       "  options: {threads: 2, isa: avx2}\n",
                       "test"));
  const BackendConfig& backend = config.values().backend;
  using Options = std::map<std::string, std::string>;
  EXPECT_EQ(OptionsOf(backend, 0), (Options{{"isa", "avx2"}, {"threads", "2"}}));
  EXPECT_EQ(OptionsOf(backend, 1), (Options{{"persistent", "off"}})) << "not the first backend";
  EXPECT_EQ(OptionsOf(backend, 2), (Options{{"isa", "avx2"}, {"threads", "4"}}));
  LayeredConfig again;
  ASSERT_TRUE(again.ApplyYaml(config.ToYaml(), "shown"));
  EXPECT_EQ(again.values().backend.devices, backend.devices);
}

TEST(DeviceListCodec, RefusesBlocksThatAreNoDevice) {
  for (const char* item : {"{}", "{options: {threads: 4}}", "{device: cpu, threads: 4}",
                           "{device: cpu, options: 4}", "{device: cpu, options: {Threads: 4}}"}) {
    LayeredConfig config;
    const Status status = config.ApplyYaml(fmt::format("backend: {{devices: [{}]}}", item), "test");
    ASSERT_FALSE(status.has_value()) << item;
    EXPECT_EQ(status.error().id, "config.type") << item;
  }
}

TEST(LayerSplitCodec, RefusesWhatIsNoSplit) {
  for (const char* text : {"[]", "even", "7", "[one, two]", "{a: 1}"}) {
    const auto split = Read(text);
    ASSERT_FALSE(split.has_value()) << text;
    EXPECT_EQ(split.error().id, "config.type") << text;
  }
  for (const char* text : {"[0, 5]", "[-1, 5]", "[0.0, 1.0]", "[1e3]", "[-0.5, 1.5]"}) {
    const auto split = Read(text);
    ASSERT_FALSE(split.has_value()) << text;
    EXPECT_EQ(split.error().id, "config.range") << text;
  }
}

}  // namespace
}  // namespace rullama
