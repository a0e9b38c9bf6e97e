#include "cli/reports/graph_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "cli/reports/graph_layout.h"
#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "core/drawing/markup.h"
#include "core/drawing/style.h"

namespace rullama::cli {
namespace {

constexpr double kLineHeight = 16;
constexpr double kColumnWidth = 7.3;  // of the monospaced font
constexpr double kPadding = 10;
constexpr double kMargin = 16;
constexpr double kTitleHeight = 34;
constexpr size_t kMaxLabels = 3;    // alike, of edges from one node
constexpr size_t kMaxColumns = 44;  // of a line in a box

// An op, a folded block, or a neighbour of the only block that is drawn.
enum class NodeKind { kOp, kBlock, kStub };

struct Node {
  NodeKind kind = NodeKind::kOp;
  int64_t block = kNoBlock;
  size_t colour = 0;               // of the device or, with dispatches, of the dispatch
  bool alone = false;              // no other op is in its dispatch
  std::vector<std::string> lines;  // the first is the heading
  // The members of a folded block.
  size_t ops = 0;
  std::set<size_t> dispatches = {};
  std::set<std::string> weights = {};
  std::set<std::string> states = {};
  std::set<std::string> attention = {};  // what its rows see
  uint64_t weight_bytes = 0;
};

struct Edge {
  size_t from = 0;
  size_t to = 0;
  std::string label;
  friend bool operator<(const Edge& a, const Edge& b) {
    return std::tie(a.from, a.to, a.label) < std::tie(b.from, b.to, b.label);
  }
};

struct Drawing {
  std::vector<Node> nodes;
  std::set<Edge> edges;          // alike ones are drawn once
  std::set<size_t> unread = {};  // nodes whose readers are folded and not joined to them
};

// `drawing` with its nodes at other places, of which several may be one; nowhere: left out. Edges
// within a place are left out too.
constexpr size_t kNowhere = SIZE_MAX;
Drawing Moved(Drawing drawing, const std::vector<size_t>& places) {
  Drawing result;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == result.nodes.size()) result.nodes.push_back(std::move(drawing.nodes[i]));
  }
  for (const Edge& edge : drawing.edges) {
    const size_t from = places[edge.from], to = places[edge.to];
    if (from != kNowhere && to != kNowhere && from != to) {
      result.edges.insert({from, to, edge.label});
    }
  }
  return result;
}

// "attn.q" of "blk.3.attn.q" inside block 3.
std::string NameWithin(const std::string& name, int64_t block) {
  const std::string prefix = fmt::format("blk.{}.", block);
  return block != kNoBlock && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

class DrawingBuilder {
 public:
  DrawingBuilder(const std::vector<DrawnPart>& parts, const DrawingOptions& options)
      : parts_(parts), options_(options) {}

  Drawing Build() {
    for (const DrawnPart& part : parts_) AddPart(part);
    for (Node& node : drawing_.nodes) {
      if (node.kind == NodeKind::kBlock) Describe(node);
    }
    for (const size_t result : results_) drawing_.unread.erase(result);
    return std::move(drawing_);
  }

 private:
  [[nodiscard]] bool IsOpened(int64_t block) const {
    if (block == kNoBlock || block == options_.only) return true;
    return options_.opened && block >= options_.opened->first && block <= options_.opened->last;
  }

  void AddPart(const DrawnPart& part) {
    node_of_op_.clear();
    ops_of_dispatch_.clear();
    for (const size_t dispatch : part.dispatch_of_op) ++ops_of_dispatch_[dispatch];
    for (OpIndex i = 0; i < part.graph->ops.size(); ++i) AddOp(part, i);
    for (const Output& output : part.graph->outputs) {
      const Value& value = part.graph->value(output.value);
      if (value.producer == kNoOp) continue;
      const size_t from = node_of_op_[value.producer];
      results_.insert(from);
      crossing_[output.name] = from;
      if (output.name != value.name) crossing_[value.name] = from;
    }
  }

  void AddOp(const DrawnPart& part, OpIndex index) {
    const Graph& graph = *part.graph;
    const Op& op = graph.ops[index];
    const Value& result = graph.value(op.results[0]);
    const int64_t block = BlockOfName(result.name);
    size_t node = 0;
    if (options_.only && block != *options_.only) {
      node = Stub(block, result.name);
    } else if (IsOpened(block)) {
      node = Append({.kind = NodeKind::kOp,
                     .block = block,
                     .colour = part.device,
                     .lines = {std::string(NameOf(op.kind)), NameWithin(result.name, block)}});
      if (!part.dispatch_of_op.empty()) Colour(part.dispatch_of_op[index], drawing_.nodes[node]);
    } else {
      node = FoldedBlock(block, part.device);
      ++drawing_.nodes[node].ops;
      if (op.kind == OpKind::kAttention) {
        const int64_t window = op.As<rl_attention_attrs>().window;
        drawing_.nodes[node].attention.insert(window > 0
                                                  ? fmt::format("attention to {} positions", window)
                                                  : "attention to all positions");
      }
      if (!part.dispatch_of_op.empty()) {
        drawing_.nodes[node].dispatches.insert(part.dispatch_of_op[index]);
      }
    }
    node_of_op_.push_back(node);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (op.inputs[k] != kNoValue) AddOperand(graph, op, k, node);
    }
  }

  void Colour(size_t dispatch, Node& node) const {
    node.colour = dispatch;
    node.alone = ops_of_dispatch_.at(dispatch) == 1;
  }

  size_t Append(Node node) {
    drawing_.nodes.push_back(std::move(node));
    return drawing_.nodes.size() - 1;
  }

  size_t FoldedBlock(int64_t block, size_t device) {
    const auto [at, is_new] = folded_.try_emplace({block, device}, drawing_.nodes.size());
    if (is_new) {
      Append({.kind = NodeKind::kBlock,
              .block = block,
              .colour = device,
              .lines = {fmt::format("block {}", block)}});
    }
    return at->second;
  }

  // A node for a neighbour of the only block that is drawn: another block, or a value.
  size_t Stub(int64_t block, const std::string& name) {
    const std::string label = block == kNoBlock ? name : fmt::format("block {}", block);
    const auto [at, is_new] = stubs_.try_emplace(label, drawing_.nodes.size());
    if (is_new) Append({.kind = NodeKind::kStub, .block = kNoBlock, .lines = {label}});
    return at->second;
  }

  void AddOperand(const Graph& graph, const Op& op, size_t operand, size_t reader) {
    const Value& value = graph.value(op.inputs[operand]);
    const auto& operands = InfoOf(op.kind).operands;
    const std::string role(operand < operands.size() ? operands[operand].name : "");
    if (value.producer != kNoOp && value.lifetime != Lifetime::kState) {
      return Connect(node_of_op_[value.producer], reader, graph, op, operand, role);
    }
    if (const auto at = crossing_.find(value.name); at != crossing_.end()) {
      return Connect(at->second, reader, graph, op, operand, role);
    }
    AddLeaf(drawing_.nodes[reader], value, role);
  }

  // The edge has the name of the operand where another operand has the same shape.
  void Connect(size_t from, size_t to, const Graph& graph, const Op& op, size_t operand,
               const std::string& role) {
    const auto is_outside = [&](size_t node) {
      return drawing_.nodes[node].kind == NodeKind::kStub;
    };
    if (from == to || (is_outside(from) && is_outside(to))) return;
    const TensorType& type = graph.type(op.inputs[operand]);
    // Positions, and what goes into caches, would hide how the layers follow each other.
    if (drawing_.nodes[to].kind == NodeKind::kBlock && type.dtype != DType::kF32) {
      if (drawing_.nodes[from].kind == NodeKind::kOp) drawing_.unread.insert(from);
      return;
    }
    size_t alike = 0;
    for (const ValueId input : op.inputs) {
      if (input != kNoValue && graph.type(input) == type) ++alike;
    }
    const bool named = alike > 1 && drawing_.nodes[to].kind == NodeKind::kOp;
    drawing_.edges.insert(
        {from, to, named ? fmt::format("{}: {}", role, ToString(type)) : ToString(type)});
  }

  static void AddLeaf(Node& node, const Value& value, const std::string& role) {
    if (node.kind == NodeKind::kBlock) {
      if (value.lifetime == Lifetime::kState) node.states.insert(value.name);
      if (value.lifetime != Lifetime::kConstant || !node.weights.insert(value.name).second) return;
      node.weight_bytes += value.type.BytesAt({});
      return;
    }
    if (node.kind != NodeKind::kOp) return;
    if (value.lifetime == Lifetime::kConstant) {
      node.lines.push_back(fmt::format("{} {}", role, ToString(value.type)));
    } else {
      node.lines.push_back(fmt::format("{} = {}", role, NameWithin(value.name, node.block)));
    }
  }

  static void Describe(Node& node) {
    node.lines.push_back(node.dispatches.empty() ? fmt::format("{} ops", node.ops)
                                                 : fmt::format("{} ops in {} dispatches", node.ops,
                                                               node.dispatches.size()));
    if (!node.weights.empty()) {
      node.lines.push_back(
          fmt::format("{} weights, {}", node.weights.size(), SizeText(node.weight_bytes)));
    }
    node.lines.insert(node.lines.end(), node.attention.begin(), node.attention.end());
    std::set<int64_t> others;
    for (const std::string& state : node.states) {
      const int64_t block = BlockOfName(state);
      if (block != kNoBlock && block != node.block) others.insert(block);
    }
    for (const int64_t block : others) {
      node.lines.push_back(fmt::format("reads the cache of block {}", block));
    }
  }

  const std::vector<DrawnPart>& parts_;
  const DrawingOptions& options_;
  Drawing drawing_;
  std::vector<size_t> node_of_op_;            // of the part
  std::map<size_t, size_t> ops_of_dispatch_;  // of the part
  std::map<std::string, size_t> crossing_;    // values that later parts read
  std::set<size_t> results_;                  // nodes with an output of a part
  std::map<std::pair<int64_t, size_t>, size_t> folded_;
  std::map<std::string, size_t> stubs_;
};

// A line of a box: fit for its width.
std::string Line(const std::string& text) { return drawing::Fitted(ShownName(text), kMaxColumns); }

size_t Columns(const std::string& line) {
  return static_cast<size_t>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

NodeBox BoxOf(const Node& node, const std::map<int64_t, size_t>& groups) {
  size_t columns = 4;
  for (const std::string& line : node.lines) columns = std::max(columns, Columns(Line(line)));
  const auto group = groups.find(node.block);
  const bool grouped = node.kind == NodeKind::kOp && group != groups.end();
  return {static_cast<double>(columns) * kColumnWidth + 2 * kPadding,
          static_cast<double>(node.lines.size()) * kLineHeight + 10,
          grouped ? group->second : kNoGroup};
}

class DrawingPainter {
 public:
  DrawingPainter(Drawing drawing, const DrawingOptions& options)
      : drawing_(std::move(drawing)), options_(options) {
    for (const Node& node : drawing_.nodes) {
      if (node.kind != NodeKind::kOp || node.block == kNoBlock) continue;
      groups_.try_emplace(node.block, groups_.size());
    }
    for (const Node& node : drawing_.nodes) boxes_.push_back(BoxOf(node, groups_));
    edges_.assign(drawing_.edges.begin(), drawing_.edges.end());
  }

  Result<drawing::Picture> Paint() {
    std::vector<EdgeEnds> ends;
    DropRepeatedLabels();
    for (const Edge& edge : edges_) {
      const auto columns = static_cast<double>(Columns(edge.label));
      ends.push_back({edge.from, edge.to, edge.label.empty() ? 0 : columns * 6.7 + 6});
    }
    RL_ASSIGN_OR_RETURN(layout_, LayOut(boxes_, ends, groups_.size()));
    body_ = fmt::format("<g transform=\"translate({:g} {:g})\">", kMargin, kTitleHeight);
    for (const auto& [block, group] : groups_) PaintGroup(block, layout_.groups[group]);
    for (size_t i = 0; i < edges_.size(); ++i) PaintEdge(edges_[i], layout_.edges[i]);
    for (size_t i = 0; i < drawing_.nodes.size(); ++i) PaintNode(i);
    body_ += "</g>" + drawing::SvgText(kMargin, 20, "", options_.title) + Legend();
    const double width = std::max(
        layout_.width + 2 * kMargin,
        static_cast<double>(Columns(options_.title)) * kColumnWidth + 2 * kMargin + legend_width_);
    return drawing::Picture{std::ceil(width), std::ceil(layout_.height + kTitleHeight + kMargin),
                            options_.title, std::move(body_)};
  }

 private:
  // Labels only the first edge of a value that many nodes read.
  void DropRepeatedLabels() {
    std::map<std::pair<size_t, std::string>, size_t> readers;
    for (const Edge& edge : edges_) ++readers[{edge.from, edge.label}];
    std::set<std::pair<size_t, std::string>> labelled;
    for (Edge& edge : edges_) {
      const std::pair key(edge.from, edge.label);
      if (readers[key] > kMaxLabels && !labelled.insert(key).second) edge.label.clear();
    }
  }

  void PaintGroup(int64_t block, const PlacedGroup& group) {
    body_ += fmt::format(
        "<rect class=\"group\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"8\"/>",
        group.corner.x, group.corner.y, group.width, group.height);
    body_ += drawing::SvgText(group.corner.x + 8, group.corner.y + 15, "dim",
                              fmt::format("block {}", block));
  }

  void PaintEdge(const Edge& edge, const PlacedEdge& placed) {
    body_ += fmt::format("<path class=\"edge\" d=\"{}L{:.1f} {:.1f}\"/>", placed.curve,
                         placed.tip_end.x, placed.tip_end.y);
    const double dx = placed.tip_end.x - placed.tip_begin.x;
    const double dy = placed.tip_end.y - placed.tip_begin.y;
    body_ += fmt::format("<path class=\"tip\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}z\"/>",
                         placed.tip_end.x, placed.tip_end.y, placed.tip_begin.x - 0.35 * dy,
                         placed.tip_begin.y + 0.35 * dx, placed.tip_begin.x + 0.35 * dy,
                         placed.tip_begin.y - 0.35 * dx);
    if (edge.label.empty()) return;
    body_ +=
        drawing::SvgText(placed.label.x, placed.label.y + 4, "middle dim mono small", edge.label);
  }

  void PaintNode(size_t index) {
    const Node& node = drawing_.nodes[index];
    const NodeBox& box = boxes_[index];
    const Position corner{layout_.nodes[index].x - box.width / 2,
                          layout_.nodes[index].y - box.height / 2};
    const std::string css = node.kind == NodeKind::kStub
                                ? std::string("stub")
                                : fmt::format("node {}s{}", node.alone ? "alone " : "",
                                              node.colour % drawing::kSeriesColours);
    body_ += fmt::format(
        "<g class=\"{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"5\"/>",
        css, corner.x, corner.y, box.width, box.height);
    for (size_t i = 0; i < node.lines.size(); ++i) {
      body_ += drawing::SvgText(corner.x + kPadding,
                                corner.y + 17 + static_cast<double>(i) * kLineHeight,
                                i == 0 ? "mono strong" : "mono dim", Line(node.lines[i]));
    }
    body_ += "</g>";
  }

  // The legend after the title: the colour of each device.
  std::string Legend() {
    std::string legend;
    if (options_.device_names.size() < 2) return legend;
    for (size_t i = 0; i < options_.device_names.size(); ++i) {
      const double x = kMargin + static_cast<double>(Columns(options_.title)) * kColumnWidth + 24 +
                       legend_width_;
      const std::string name = Line(options_.device_names[i]);
      legend += fmt::format(
          "<g class=\"node s{}\"><rect x=\"{:.1f}\" y=\"9\" width=\"14\" height=\"14\" "
          "rx=\"3\"/></g>",
          i % drawing::kSeriesColours, x);
      legend += drawing::SvgText(x + 20, 20, "dim", name);
      legend_width_ += static_cast<double>(Columns(name)) * kColumnWidth + 36;
    }
    return legend;
  }

  Drawing drawing_;
  const DrawingOptions& options_;
  std::map<int64_t, size_t> groups_;  // opened blocks
  std::vector<NodeBox> boxes_;
  std::vector<Edge> edges_;
  Layout layout_;
  std::string body_;
  double legend_width_ = 0;
};

// Leaves out the stubs that no edge reaches.
Drawing Connected(Drawing drawing) {
  std::vector<bool> kept(drawing.nodes.size());
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = drawing.nodes[i].kind != NodeKind::kStub;
  for (const Edge& edge : drawing.edges) kept[edge.from] = kept[edge.to] = true;
  std::vector<size_t> places(kept.size(), kNowhere);
  size_t count = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) places[i] = count++;
  }
  return Moved(std::move(drawing), places);
}

// Leaves out what only folded blocks read, without an edge that is drawn: positions, for example.
Drawing WithoutUnread(Drawing drawing) {
  std::vector<size_t> readers(drawing.nodes.size());
  std::vector<std::vector<size_t>> read_by(drawing.nodes.size());
  for (const Edge& edge : drawing.edges) {
    ++readers[edge.from];
    read_by[edge.to].push_back(edge.from);
  }
  std::vector<bool> left_out(drawing.nodes.size());
  std::vector<size_t> unread(drawing.unread.begin(), drawing.unread.end());
  while (!unread.empty()) {
    const size_t node = unread.back();
    unread.pop_back();
    if (readers[node] > 0 || left_out[node] || drawing.nodes[node].kind != NodeKind::kOp) continue;
    left_out[node] = true;
    for (const size_t from : read_by[node]) {
      if (--readers[from] == 0) unread.push_back(from);
    }
  }
  std::vector<size_t> places(left_out.size(), kNowhere);
  size_t count = 0;
  for (size_t i = 0; i < left_out.size(); ++i) {
    if (!left_out[i]) places[i] = count++;
  }
  return Moved(std::move(drawing), places);
}

bool AreAlike(const Node& a, const Node& b) {
  return a.kind == NodeKind::kBlock && b.kind == NodeKind::kBlock && a.block + 1 == b.block &&
         a.colour == b.colour &&
         std::ranges::equal(std::span(a.lines).subspan(1), std::span(b.lines).subspan(1));
}

// Whether `second` may be drawn as one with `first`: it reads it, and nothing between the two would
// read the one box and be read by it.
bool FollowsDirectly(const Drawing& drawing, size_t first, size_t second) {
  std::set<size_t> readers;
  for (const Edge& edge : drawing.edges) {
    if (edge.from == first) readers.insert(edge.to);
  }
  return readers.contains(second) && std::ranges::none_of(drawing.edges, [&](const Edge& edge) {
           return edge.to == second && readers.contains(edge.from);
         });
}

// Draws equal blocks that follow one another as one box.
Drawing WithRuns(Drawing drawing) {
  std::vector<size_t> places(drawing.nodes.size());
  std::map<int64_t, size_t> last;  // the node of a folded block
  size_t count = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    Node& node = drawing.nodes[i];
    const auto before = node.kind == NodeKind::kBlock ? last.find(node.block - 1) : last.end();
    const bool joins = before != last.end() && AreAlike(drawing.nodes[before->second], node) &&
                       FollowsDirectly(drawing, before->second, i);
    places[i] = joins ? places[before->second] : count++;
    if (node.kind == NodeKind::kBlock) last[node.block] = i;
  }
  std::vector<std::pair<int64_t, int64_t>> runs(count, {INT64_MAX, INT64_MIN});
  for (size_t i = 0; i < places.size(); ++i) {
    auto& [first, end] = runs[places[i]];
    first = std::min(first, drawing.nodes[i].block);
    end = std::max(end, drawing.nodes[i].block);
  }
  Drawing result = Moved(std::move(drawing), places);
  for (size_t i = 0; i < count; ++i) {
    const auto& [first, end] = runs[i];
    if (first == end) continue;
    result.nodes[i].lines[0] = fmt::format("blocks {} to {}", first, end);
    result.nodes[i].lines.insert(result.nodes[i].lines.begin() + 1,
                                 fmt::format("{} alike, each with", end - first + 1));
  }
  return result;
}

}  // namespace

Result<drawing::Picture> DrawGraph(const std::vector<DrawnPart>& parts,
                                   const DrawingOptions& options) {
  Drawing drawing = WithoutUnread(DrawingBuilder(parts, options).Build());
  return DrawingPainter(WithRuns(Connected(std::move(drawing))), options).Paint();
}

std::vector<BlockSize> BlocksOf(const std::vector<DrawnPart>& parts) {
  std::map<int64_t, size_t> counts;
  for (const DrawnPart& part : parts) {
    for (const Op& op : part.graph->ops) {
      ++counts[BlockOfName(part.graph->value(op.results[0]).name)];
    }
  }
  counts.erase(kNoBlock);
  std::vector<BlockSize> blocks;
  blocks.reserve(counts.size());
  for (const auto& [block, ops] : counts) blocks.push_back({block, ops});
  return blocks;
}

}  // namespace rullama::cli
