// The codecs (value_codec.h) of backend.devices and placement.split. Both also take the text of
// their list without brackets, for settings that are given as text.
#pragma once

#include <string>
#include <vector>

#include "core/config/value_codec.h"

namespace rullama {

// [vulkan:0, vulkan:1] or vulkan:0,vulkan:1. An empty list has no such text. An item may also be a
// block of device and options.
struct DeviceListCodec {
  using Value = std::vector<DeviceSetting>;
  [[nodiscard]] Parsed<Value> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const Value& value) const;
};

// `auto`, [20, 15] or [0.6, 0.4]. Numbers are shares if any of them has a decimal point.
struct LayerSplitCodec {
  using Value = LayerSplit;
  [[nodiscard]] Parsed<LayerSplit> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const LayerSplit& value) const;
};

}  // namespace rullama
