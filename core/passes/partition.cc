#include "core/passes/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rullama {
namespace {

class Partitioner {
 public:
  explicit Partitioner(const Graph& source)
      : source_(source), segment_of_(source.values.size(), kNowhere) {}

  Result<std::vector<Segment>> Run() && {
    RL_RETURN_IF_ERROR(CheckStates());
    FindSegments();
    RL_RETURN_IF_ERROR(CheckOutputs());
    FindExports();
    std::vector<Segment> segments;
    for (size_t i = 0; i < begins_.size(); ++i) {
      segments.push_back({source_.ops[begins_[i]].device, BuildSegment(i)});
      RL_RETURN_IF_ERROR(CheckOutputNames(segments.back().graph));
    }
    return segments;
  }

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  [[nodiscard]] size_t EndOf(size_t segment) const {
    return segment + 1 < begins_.size() ? begins_[segment + 1] : source_.ops.size();
  }

  // A state has one storage, so one device.
  Status CheckStates() const {
    std::vector<OpIndex> user(source_.values.size(), kNoOp);  // by first version
    for (OpIndex i = 0; i < source_.ops.size(); ++i) {
      const Op& op = source_.ops[i];
      for (const ValueId input : op.inputs) {
        if (input == kNoValue || source_.value(input).lifetime != Lifetime::kState) continue;
        const ValueId state = source_.value(input).state;
        if (user[state] == kNoOp) user[state] = i;
        const Op& other = source_.ops[user[state]];
        if (other.device == op.device) continue;
        return MakeError(ErrorKind::kBackend, "passes.state_split",
                         "state '{}' is used by '{}' ({}) on device {} and by '{}' ({}) on device "
                         "{}; a state lives on one device, so let the placement policy keep these "
                         "ops together",
                         source_.value(state).name, source_.value(other.results[0]).name,
                         NameOf(other.kind), other.device, source_.value(op.results[0]).name,
                         NameOf(op.kind), op.device);
      }
    }
    return OkStatus();
  }

  void FindSegments() {
    for (size_t i = 0; i < source_.ops.size(); ++i) {
      if (i == 0 || source_.ops[i].device != source_.ops[i - 1].device) begins_.push_back(i);
      for (const ValueId result : source_.ops[i].results) segment_of_[result] = begins_.size() - 1;
    }
  }

  Status CheckOutputs() const {
    for (const Output& output : source_.outputs) {
      const Value& value = source_.value(output.value);
      if (value.lifetime == Lifetime::kTransient) continue;
      return MakeError(ErrorKind::kRuntime, "passes.output_leaf",
                       "output '{}' is '{}', which no op computes; canonicalise the graph first",
                       output.name, value.name);
    }
    return OkStatus();
  }

  // Transients that a later segment reads.
  void FindExports() {
    exported_.assign(source_.values.size(), false);
    for (size_t segment = 0; segment < begins_.size(); ++segment) {
      for (size_t i = begins_[segment]; i < EndOf(segment); ++i) {
        for (const ValueId input : source_.ops[i].inputs) {
          if (input == kNoValue || source_.value(input).lifetime != Lifetime::kTransient) continue;
          if (segment_of_[input] != segment) exported_[input] = true;
        }
      }
    }
  }

  Graph BuildSegment(size_t segment) {
    Graph graph;
    graph.name = begins_.size() == 1 ? source_.name : fmt::format("{}.{}", source_.name, segment);
    graph.max_t = source_.max_t;
    graph.max_r = source_.max_r;
    map_.assign(source_.values.size(), kNoValue);
    ImportLeaves(segment, graph);
    for (size_t i = begins_[segment]; i < EndOf(segment); ++i) CopyOp(source_.ops[i], graph);
    for (const Output& output : source_.outputs) {
      if (segment_of_[output.value] != segment) continue;
      graph.outputs.push_back({output.name, map_[output.value], RowDemand::kAll});
    }
    for (ValueId id = 0; id < source_.values.size(); ++id) {
      if (!exported_[id] || segment_of_[id] != segment) continue;
      const Output exported = {source_.value(id).name, map_[id], RowDemand::kAll};
      const bool known = std::ranges::any_of(graph.outputs, [&](const Output& output) {
        return output.name == exported.name && output.value == exported.value;
      });
      if (!known) graph.outputs.push_back(exported);
    }
    return graph;
  }

  // Everything the segment reads and does not compute, in the order of the source.
  void ImportLeaves(size_t segment, Graph& graph) {
    std::vector<bool> read(source_.values.size(), false);
    for (size_t i = begins_[segment]; i < EndOf(segment); ++i) {
      for (const ValueId input : source_.ops[i].inputs) {
        if (input != kNoValue && segment_of_[input] != segment) read[input] = true;
      }
    }
    for (ValueId id = 0; id < source_.values.size(); ++id) {
      if (!read[id]) continue;
      Value leaf = source_.value(id);
      map_[id] = static_cast<ValueId>(graph.values.size());
      if (leaf.lifetime == Lifetime::kTransient) leaf.lifetime = Lifetime::kInput;
      if (leaf.lifetime == Lifetime::kState) {
        leaf.name = source_.value(leaf.state).name;
        leaf.state = map_[id];
      }
      leaf.producer = kNoOp;
      graph.values.push_back(std::move(leaf));
    }
  }

  void CopyOp(const Op& source_op, Graph& graph) {
    Op op = source_op;
    for (ValueId& input : op.inputs) {
      if (input != kNoValue) input = map_[input];
    }
    for (ValueId& result : op.results) {
      Value value = source_.value(result);
      map_[result] = static_cast<ValueId>(graph.values.size());
      value.producer = static_cast<OpIndex>(graph.ops.size());
      if (value.lifetime == Lifetime::kState) value.state = graph.value(op.inputs[0]).state;
      graph.values.push_back(std::move(value));
      result = map_[result];
    }
    graph.ops.push_back(std::move(op));
  }

  static Status CheckOutputNames(const Graph& graph) {
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      for (size_t j = i + 1; j < graph.outputs.size(); ++j) {
        if (graph.outputs[i].name != graph.outputs[j].name) continue;
        return MakeError(ErrorKind::kRuntime, "passes.output_name",
                         "output '{}' has the name of another value that crosses devices; rename "
                         "one of them",
                         graph.outputs[i].name);
      }
    }
    return OkStatus();
  }

  const Graph& source_;
  std::vector<size_t> begins_;      // first op of each segment
  std::vector<size_t> segment_of_;  // by value: where it is computed
  std::vector<bool> exported_;      // by value
  std::vector<ValueId> map_;        // by source value, for the segment being built
};

}  // namespace

Result<std::vector<Segment>> Partition(const Graph& graph) { return Partitioner(graph).Run(); }

}  // namespace rullama
