// Fused nodes as text.
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/fuse.h"
#include "backends/gpu/graph_facts.h"

namespace rullama::gpu {
namespace {

std::string_view OpName(uint32_t kind) {
  switch (kind) {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  case id:                                                              \
    return #name;
#include <rullama/abi/ops.def>
    default:
      return "unknown";
  }
}

class Printer {
 public:
  explicit Printer(const sdk::GraphView& graph) : graph_(graph) {}

  std::string Print(const FusedGraph& fused) {
    text_ = "graph \"" + std::string(graph_.name()) + "\" T<=" + std::to_string(graph_.max_t()) +
            " R<=" + std::to_string(graph_.max_r()) + ": " + std::to_string(fused.nodes.size()) +
            " nodes of " + std::to_string(graph_.op_count()) + " ops\n";
    for (const FusedNode& node : fused.nodes) Add(node);
    return text_;
  }

 private:
  // %3 "blk.0.norm", or - if absent
  [[nodiscard]] std::string ValueName(uint32_t value) const {
    if (value == RL_NO_VALUE) return "-";
    return "%" + std::to_string(value) + " \"" + std::string(sdk::View(graph_.value(value).name)) +
           "\"";
  }

  [[nodiscard]] std::string Values(const uint32_t* values, uint32_t count) const {
    std::string list;
    for (uint32_t i = 0; i < count; ++i) {
      if (i > 0) list += ", ";
      list += ValueName(values[i]);
    }
    return list;
  }

  void Line(const std::string& what) { text_ += "  " + what + "\n"; }

  void Add(const FusedNode& node) {
    const rl_op& op = graph_.op(node.op);
    text_ += Values(op.results, op.result_count) + " = " + std::string(OpName(op.kind)) + "(" +
             Values(op.inputs, op.input_count) + ")\n";
    if (node.prologue) Add(*node.prologue);
    for (const HeadTransform& heads : node.heads) Add(heads, op);
    Add(node.epilogue, node.half.only);
    if (node.StoresHalfRows()) {
      Line("rows of f16 for products that read " + ValueName(node.half.value) +
           (node.half.only ? ", which is not stored" : ""));
    }
    std::string fused;
    for (const uint32_t index : node.fused) {
      const rl_op& other = graph_.op(index);
      fused += (fused.empty() ? "" : ", ") + std::string(OpName(other.kind)) + " " +
               ValueName(other.results[0]);
    }
    if (!fused.empty()) Line("fused: " + fused);
  }

  void Add(const Prologue& p) {
    std::string x = ValueName(p.x);
    if (p.residual != RL_NO_VALUE) {
      x = "residual_norm(" + ValueName(p.residual) + ", " + x + ", " + ValueName(p.weight) + ", " +
          ValueName(p.scale) + ")";
      if (p.sum != RL_NO_VALUE) x += " stored in " + ValueName(p.sum);
    }
    Line("prologue: " + x + (p.norm ? ", rms_norm with " + ValueName(p.norm_weight) : ""));
  }

  void Add(const HeadTransform& heads, const rl_op& attention) {
    std::string text = ValueName(heads.x);
    if (heads.norm) text = "rms_norm(" + text + ", " + ValueName(heads.norm_weight) + ")";
    if (heads.rope != RL_NO_OP) text += ", rope " + ValueName(graph_.op(heads.rope).results[0]);
    Line("heads of " + ValueName(attention.inputs[heads.operand]) + ": " + text);
  }

  [[nodiscard]] std::string TextOf(const LowRank& adapter) const {
    return ValueName(adapter.a) + " " + ValueName(adapter.b);
  }

  void Add(const Epilogue& e, bool only_half) {
    const std::string result = only_half ? "" : " stored in " + ValueName(e.result);
    switch (e.kind) {
      case EpilogueKind::kNone:
        return;
      case EpilogueKind::kCastF16:
        return Line("epilogue: cast to f16" + result);
      case EpilogueKind::kGate:
        return Line("epilogue: geglu with " + ValueName(e.up) + result);
      case EpilogueKind::kSoftmax:
        return Line("epilogue: softmax of values times " + std::to_string(e.factor) + result);
      case EpilogueKind::kNorm:
        return Line("epilogue: rms_norm with " + ValueName(e.norm_weight) + result);
      case EpilogueKind::kClamp:
        return Line("epilogue: clamp to [" + std::to_string(e.low) + ", " + std::to_string(e.high) +
                    "]" + result);
      case EpilogueKind::kAdapter:
        Line("epilogue: adapter " + TextOf(e.adapter) +
             (e.up == RL_NO_VALUE
                  ? ""
                  : ", geglu with " + ValueName(e.up) + " and adapter " + TextOf(e.up_adapter)) +
             result);
        return;
      case EpilogueKind::kBase:
        return Line("epilogue: added to " + ValueName(e.base) +
                    (e.gate == RL_NO_VALUE ? "" : ", geglu of " + ValueName(e.gate)) + result);
    }
  }

  const sdk::GraphView& graph_;
  std::string text_;
};

}  // namespace

std::string PrintFused(const sdk::GraphView& graph, const FusedGraph& fused) {
  return Printer(graph).Print(fused);
}

}  // namespace rullama::gpu
