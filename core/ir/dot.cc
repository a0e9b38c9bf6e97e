#include "core/ir/dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/printable.h"

namespace rullama {
namespace {

// One colour for each kind of leaf; ops are boxes.
std::string_view ColourOf(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kInput:
      return "lightblue";
    case Lifetime::kConstant:
      return "lightgrey";
    case Lifetime::kState:
      return "khaki";
    case Lifetime::kTransient:
      break;
  }
  return "white";
}

// Collects the nodes of each block before it writes them, since a cluster is written in one piece.
class DotPrinter {
 public:
  DotPrinter(const Graph& graph, const std::optional<BlockRange>& blocks)
      : graph_(graph), blocks_(blocks) {}

  std::string Print() {
    for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
      if (IsDrawn(i)) DrawOp(i);
    }
    if (!blocks_) {
      for (ValueId id = 0; id < graph_.values.size(); ++id) {
        if (graph_.value(id).producer == kNoOp) DrawUnread(id);
      }
    }
    DrawOutputs();
    std::string text =
        fmt::format("digraph {} {{\n  node [fontname=\"monospace\"];\n", QuotedText(graph_.name));
    for (const auto& [block, nodes] : nodes_) {
      if (block == kNoBlock) {
        text += nodes;
      } else {
        text += fmt::format("  subgraph cluster_{0} {{\n  label=\"block {0}\";\n{1}  }}\n", block,
                            nodes);
      }
    }
    return text + edges_ + "}\n";
  }

 private:
  [[nodiscard]] int64_t BlockOfOp(OpIndex i) const {
    return BlockOfName(graph_.value(graph_.ops[i].results[0]).name);
  }

  [[nodiscard]] bool IsDrawn(OpIndex i) const {
    if (!blocks_) return true;
    const int64_t block = BlockOfOp(i);
    return block >= blocks_->first && block <= blocks_->last;
  }

  void DrawOp(OpIndex i) {
    const Op& op = graph_.ops[i];
    const Value& result = graph_.value(op.results[0]);
    const int64_t block = BlockOfOp(i);
    nodes_[block] += fmt::format("  op{} [shape=box, label={}];\n", i,
                                 QuotedText(fmt::format("{} -> {} : {}", NameOf(op.kind),
                                                        result.name, ToString(result.type))));
    std::map<std::string, int> reads;
    std::vector<std::string> sources;
    for (const ValueId input : op.inputs) {
      sources.push_back(input == kNoValue ? std::string() : SourceOf(input, block));
      ++reads[sources.back()];
    }
    const auto& operands = InfoOf(op.kind).operands;
    for (size_t k = 0; k < sources.size(); ++k) {
      if (sources[k].empty()) continue;
      const bool parallel = reads[sources[k]] > 1 && k < operands.size();
      edges_ +=
          fmt::format("  {} -> op{}{};\n", sources[k], i,
                      parallel ? fmt::format(" [label={}]", QuotedText(operands[k].name)) : "");
    }
  }

  // The node an op of `block` reads: the op that makes the value, or the value itself.
  std::string SourceOf(ValueId id, int64_t block) {
    const Value& value = graph_.value(id);
    if (value.producer == kNoOp) return Leaf(id, block);
    if (!IsDrawn(value.producer)) return Foreign(id);
    return fmt::format("op{}", value.producer);
  }

  // Inputs have a node in each block that reads them; constants and states one where they belong.
  std::string Leaf(ValueId id, int64_t reader) {
    const Value& value = graph_.value(id);
    const bool copied = value.lifetime == Lifetime::kInput && reader != kNoBlock;
    std::string node = copied ? fmt::format("v{}_{}", id, reader) : fmt::format("v{}", id);
    if (drawn_.insert(node).second) {
      nodes_[copied ? reader : BlockOfName(value.name)] +=
          fmt::format("  {} [label={}, style=filled, fillcolor={}];\n", node,
                      QuotedText(fmt::format("{} : {}", value.name, ToString(value.type))),
                      ColourOf(value.lifetime));
    }
    read_.insert(id);
    return node;
  }

  // A value of an op that is not drawn.
  std::string Foreign(ValueId id) {
    const Value& value = graph_.value(id);
    std::string node = fmt::format("v{}", id);
    if (drawn_.insert(node).second) {
      nodes_[kNoBlock] +=
          fmt::format("  {} [label={}, style=dashed];\n", node,
                      QuotedText(fmt::format("{} : {}", value.name, ToString(value.type))));
    }
    return node;
  }

  void DrawUnread(ValueId id) {
    if (!read_.contains(id)) Leaf(id, kNoBlock);
  }

  void DrawOutputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i].value;
      const OpIndex producer = graph_.value(id).producer;
      if (blocks_ && (producer == kNoOp || !IsDrawn(producer))) continue;
      nodes_[kNoBlock] += fmt::format("  out{} [label={}, shape=doubleoctagon];\n", i,
                                      QuotedText(graph_.outputs[i].name));
      edges_ += fmt::format("  {} -> out{};\n", SourceOf(id, kNoBlock), i);
    }
  }

  const Graph& graph_;
  const std::optional<BlockRange>& blocks_;
  std::map<int64_t, std::string> nodes_;  // of each block
  std::string edges_;
  std::set<std::string> drawn_;
  std::set<ValueId> read_;
};

}  // namespace

int64_t BlockOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  int64_t block = kNoBlock;
  if (!name.starts_with(kPrefix)) return kNoBlock;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, block);
  return error == std::errc() && block >= 0 && (rest == end || *rest == '.') ? block : kNoBlock;
}

std::string PrintDot(const Graph& graph, const std::optional<BlockRange>& blocks) {
  return DotPrinter(graph, blocks).Print();
}

}  // namespace rullama
