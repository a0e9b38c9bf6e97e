#include "cli/reports/graph_layout.h"

#include <fmt/format.h>
#include <graphviz/cgraph.h>
#include <graphviz/gvc.h>

#include <memory>

namespace rullama::cli {
namespace {

constexpr double kPixelsPerInch = 72;
constexpr int kLabelHeight = 14;

struct ContextDeleter {
  void operator()(GVC_t* context) const { gvFreeContext(context); }
};
struct GraphDeleter {
  void operator()(Agraph_t* graph) const { agclose(graph); }
};

// The library takes names and values as char*, and copies them.
char* Text(const std::string& text) { return const_cast<char*>(text.c_str()); }

void Set(void* object, const char* name, const std::string& value) {
  agsafeset(object, Text(name), Text(value), Text(""));
}

class LayoutBuilder {
 public:
  LayoutBuilder(const std::vector<NodeBox>& nodes, const std::vector<EdgeEnds>& edges,
                size_t groups)
      : nodes_(nodes), edges_(edges), group_count_(groups) {}

  Result<Layout> Build() {
    agseterr(AGMAX);  // errors are values here
    context_.reset(gvContext());
    graph_.reset(agopen(Text("drawing"), Agdirected, nullptr));
    Set(graph_.get(), "ranksep", "0.4");
    Set(graph_.get(), "nodesep", "0.25");
    AddNodes();
    AddEdges();
    if (gvLayout(context_.get(), graph_.get(), "dot") != 0) {
      return MakeError(ErrorKind::kRuntime, "graph.layout",
                       "GraphViz cannot lay out {} nodes and {} edges; expected its plugin for "
                       "layered drawings, which `dot -c` registers; --dot needs no layout",
                       nodes_.size(), edges_.size());
    }
    Layout layout = Read();
    gvFreeLayout(context_.get(), graph_.get());
    return layout;
  }

 private:
  void AddNodes() {
    for (size_t i = 0; i < group_count_; ++i) {
      groups_.push_back(agsubg(graph_.get(), Text(fmt::format("cluster_{}", i)), 1));
      Set(groups_.back(), "margin", "16");
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const NodeBox& box = nodes_[i];
      Agraph_t* home = box.group == kNoGroup ? graph_.get() : groups_[box.group];
      Agnode_t* node = agnode(home, Text(fmt::format("n{}", i)), 1);
      Set(node, "label", "");
      Set(node, "shape", "box");
      Set(node, "fixedsize", "true");
      Set(node, "width", fmt::format("{:.4f}", box.width / kPixelsPerInch));
      Set(node, "height", fmt::format("{:.4f}", box.height / kPixelsPerInch));
      placed_nodes_.push_back(node);
    }
  }

  void AddEdges() {
    for (const EdgeEnds& edge : edges_) {
      Agedge_t* added =
          agedge(graph_.get(), placed_nodes_[edge.from], placed_nodes_[edge.to], nullptr, 1);
      if (edge.label_width > 0) SetLabelSize(added, edge.label_width);
      placed_edges_.push_back(added);
    }
  }

  // An empty table of the label's size: the library then needs no font.
  void SetLabelSize(Agedge_t* edge, double width) {
    const std::string table = fmt::format(
        "<TABLE BORDER=\"0\" FIXEDSIZE=\"TRUE\" WIDTH=\"{:.0f}\" HEIGHT=\"{}\"><TR><TD></TD></TR>"
        "</TABLE>",
        width, kLabelHeight);
    agattr(graph_.get(), AGEDGE, Text("label"), Text(""));
    char* text = agstrdup_html(graph_.get(), Text(table));
    agset(edge, Text("label"), text);
    agstrfree(graph_.get(), text);
  }

  [[nodiscard]] Position At(const pointf& point) const { return {point.x, height_ - point.y}; }

  Layout Read() {
    const boxf box = GD_bb(graph_.get());
    height_ = box.UR.y;
    Layout layout{.width = box.UR.x, .height = box.UR.y, .nodes = {}, .edges = {}, .groups = {}};
    for (Agnode_t* node : placed_nodes_) layout.nodes.push_back(At(ND_coord(node)));
    for (Agedge_t* edge : placed_edges_) layout.edges.push_back(ReadEdge(edge));
    for (Agraph_t* group : groups_) {
      const boxf bounds = GD_bb(group);
      layout.groups.push_back(
          {At({bounds.LL.x, bounds.UR.y}), bounds.UR.x - bounds.LL.x, bounds.UR.y - bounds.LL.y});
    }
    return layout;
  }

  [[nodiscard]] PlacedEdge ReadEdge(Agedge_t* edge) const {
    PlacedEdge placed;
    if (const textlabel_t* label = ED_label(edge)) placed.label = At(label->pos);
    const splines* curves = ED_spl(edge);
    for (int i = 0; curves != nullptr && i < curves->size; ++i) {
      const bezier& curve = curves->list[i];
      for (int k = 0; k < curve.size; ++k) {
        const Position at = At(curve.list[k]);
        placed.curve += fmt::format("{}{:.1f} {:.1f}",
                                    k == 0       ? "M"
                                    : k % 3 == 1 ? "C"
                                                 : " ",
                                    at.x, at.y);
      }
      placed.tip_begin = At(curve.list[curve.size - 1]);
      placed.tip_end = curve.eflag != 0 ? At(curve.ep) : placed.tip_begin;
    }
    return placed;
  }

  const std::vector<NodeBox>& nodes_;
  const std::vector<EdgeEnds>& edges_;
  size_t group_count_;
  std::unique_ptr<GVC_t, ContextDeleter> context_;
  std::unique_ptr<Agraph_t, GraphDeleter> graph_;  // closed before the context
  std::vector<Agraph_t*> groups_;
  std::vector<Agnode_t*> placed_nodes_;
  std::vector<Agedge_t*> placed_edges_;
  double height_ = 0;
};

}  // namespace

Result<Layout> LayOut(const std::vector<NodeBox>& nodes, const std::vector<EdgeEnds>& edges,
                      size_t groups) {
  return LayoutBuilder(nodes, edges, groups).Build();
}

}  // namespace rullama::cli
