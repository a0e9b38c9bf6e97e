#include "core/config/device_codecs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace rullama {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr IntegerRange kCounts = Integers(1, std::numeric_limits<int32_t>::max());
constexpr RealRange kShares = Reals(0.001, 1e6);

Parsed<DeviceSetting> ParseBlock(const YamlNode& node, const ValueContext& context) {
  DeviceSetting device;
  for (const YamlEntry& entry : node.entries) {
    if (entry.key.text == "device") {
      auto name = NameCodec{}.Parse(entry.value, context);
      if (!name) return tl::unexpected(std::move(name).error());
      device.name = *std::move(name);
    } else if (entry.key.text == "options" && entry.value.kind == YamlNode::Kind::kMap) {
      for (const YamlEntry& option : entry.value.entries) {
        auto key = OptionNameCodec{}.Parse(option.key, context);
        if (!key) return tl::unexpected(std::move(key).error());
        auto value = TextCodec{}.Parse(option.value, context);
        if (!value) return tl::unexpected(std::move(value).error());
        device.options.insert_or_assign(*std::move(key), *std::move(value));
      }
    } else {
      return tl::unexpected(ValueFault{
          ValueFault::Kind::kType, &entry.key, "device, and options with a block of them", {}});
    }
  }
  return device;
}

// A name, or a block.
struct DeviceCodec {
  using Value = DeviceSetting;
  [[nodiscard]] Parsed<DeviceSetting> Parse(const YamlNode& node,
                                            const ValueContext& context) const {
    if (node.kind != YamlNode::Kind::kMap) {
      return NameCodec{}.Parse(node, context).map([](std::string name) {
        return DeviceSetting{.name = std::move(name)};
      });
    }
    auto device = ParseBlock(node, context);
    if (!device || !device->name.empty()) return device;
    return tl::unexpected(ValueFault{ValueFault::Kind::kType, &node, Describe(), "add device"});
  }
  [[nodiscard]] std::string Describe() const {
    return NameCodec{}.Describe() + ", or a block with device and options";
  }
  [[nodiscard]] std::string Print(const DeviceSetting& value) const {
    std::string text;
    for (const auto& [key, option] : value.options) {
      text += (text.empty() ? "" : ", ") + OptionNameCodec{}.Print(key) + ": " +
              TextCodec{}.Print(option);
    }
    const std::string name = NameCodec{}.Print(value.name);
    return text.empty() ? name : "{device: " + name + ", options: {" + text + "}}";
  }
};

constexpr ListCodec<DeviceCodec> kDevices;

// A text as the list of what stands between its commas; any other node as it is.
YamlNode AsList(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.text.empty()) return node;
  YamlNode list = node;
  list.kind = YamlNode::Kind::kSequence;
  for (size_t begin = 0; begin <= node.text.size();) {
    const size_t end = std::min(node.text.find(',', begin), node.text.size());
    YamlNode& item = list.items.emplace_back(node);
    item.quoted = false;
    item.text = node.text.substr(begin, end - begin);
    begin = end + 1;
  }
  return list;
}

bool IsFraction(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && node.text.find('.') != std::string::npos;
}

// `list` is where the items come from.
Parsed<LayerSplit> ParseItems(const std::vector<YamlNode>& items, const YamlNode& list,
                              const ValueContext& context) {
  LayerSplit split;
  const auto refused = [&](ValueFault fault) {
    if (list.kind == YamlNode::Kind::kScalar) fault.node = &list;
    return tl::unexpected(std::move(fault));
  };
  const bool shares = std::ranges::any_of(items, IsFraction);
  for (const YamlNode& item : items) {
    if (shares) {
      const auto share = RealCodec{kShares}.Parse(item, context);
      if (!share) return refused(share.error());
      split.shares.push_back(*share);
    } else {
      const auto count = IntegerCodec{kCounts}.Parse(item, context);
      if (!count) return refused(count.error());
      split.layers.push_back(*count);
    }
  }
  return split;
}

}  // namespace

Parsed<std::vector<DeviceSetting>> DeviceListCodec::Parse(const YamlNode& node,
                                                          const ValueContext& context) const {
  // A bracket begins a list that is not valid YAML.
  if (node.kind != YamlNode::Kind::kScalar || node.text.starts_with('[')) {
    return kDevices.Parse(node, context);
  }
  auto devices = kDevices.Parse(AsList(node), context);
  if (devices) return devices;
  ValueFault fault = std::move(devices).error();
  fault.node = &node;  // the list does not live on
  return tl::unexpected(std::move(fault));
}

std::string DeviceListCodec::Describe() const { return kDevices.Describe(); }

std::string DeviceListCodec::Print(const Value& value) const { return kDevices.Print(value); }

Parsed<LayerSplit> LayerSplitCodec::Parse(const YamlNode& node, const ValueContext& context) const {
  if (node.kind == YamlNode::Kind::kScalar && node.text == kAuto) return LayerSplit();
  const bool text = node.kind == YamlNode::Kind::kScalar && node.text.find(',') != node.text.npos;
  if (text) return ParseItems(AsList(node).items, node, context);
  if (node.kind != YamlNode::Kind::kSequence || node.items.empty()) {
    return tl::unexpected(ValueFault{ValueFault::Kind::kType, &node, Describe(),
                                     "write [a, b], one number for each device"});
  }
  return ParseItems(node.items, node, context);
}

std::string LayerSplitCodec::Describe() const {
  return "auto, a list of whole numbers from 1 on, or a list of shares, of which one has a decimal "
         "point";
}

std::string LayerSplitCodec::Print(const LayerSplit& value) const {
  if (!value.layers.empty()) return fmt::format("[{}]", fmt::join(value.layers, ", "));
  if (value.shares.empty()) return std::string(kAuto);
  std::string text;
  for (const double share : value.shares) {
    std::string number = fmt::format("{}", share);
    if (number.find('.') == std::string::npos) number += ".0";
    text += (text.empty() ? "" : ", ") + number;
  }
  return "[" + text + "]";
}

}  // namespace rullama
