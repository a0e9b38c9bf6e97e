#include "core/config/device_codecs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace rullama {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr IntegerRange kCounts = Integers(1, std::numeric_limits<int32_t>::max());
constexpr RealRange kShares = Reals(0.001, 1e6);

constexpr ListCodec<NameCodec> kNames;

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

Parsed<std::vector<std::string>> DeviceListCodec::Parse(const YamlNode& node,
                                                        const ValueContext& context) const {
  // A bracket begins a list that is no valid YAML.
  if (node.kind != YamlNode::Kind::kScalar || node.text.starts_with('[')) {
    return kNames.Parse(node, context);
  }
  auto names = kNames.Parse(AsList(node), context);
  if (names) return names;
  ValueFault fault = std::move(names).error();
  fault.node = &node;  // the list does not live on
  return tl::unexpected(std::move(fault));
}

std::string DeviceListCodec::Describe() const { return kNames.Describe(); }

std::string DeviceListCodec::Print(const Value& value) const { return kNames.Print(value); }

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
