#include "core/passes/partition.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/passes/wanted_rows.h"

namespace rullama {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& source, bool wanted_rows_apart)
      : source_(source),
        first_wanted_(source.ops.size() - (wanted_rows_apart ? CountLastWantedOps(source) : 0)),
        segment_of_(source.values.size(), kNowhere) {}

  Result<std::vector<Segment>> Run() && {
    RL_RETURN_IF_ERROR(CheckStates());
    FindSegments();
    RL_RETURN_IF_ERROR(CheckOutputs());
    FindExports();
    if (begins_.size() > 1) RL_RETURN_IF_ERROR(CheckNames());
    std::vector<Segment> segments;
    segments.reserve(begins_.size());
    for (size_t i = 0; i < begins_.size(); ++i) {
      segments.push_back({source_.ops[begins_[i]].device, IsWantedOnly(i), BuildSegment(i)});
    }
    return segments;
  }

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  [[nodiscard]] size_t EndOf(size_t segment) const {
    return segment + 1 < begins_.size() ? begins_[segment + 1] : source_.ops.size();
  }

  [[nodiscard]] bool IsWantedOnly(size_t segment) const {
    return begins_[segment] >= first_wanted_;
  }

  // A state has one storage and therefore one device.
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
      const bool begins =
          i == 0 || i == first_wanted_ || source_.ops[i].device != source_.ops[i - 1].device;
      if (begins) begins_.push_back(i);
      for (const ValueId result : source_.ops[i].results) segment_of_[result] = begins_.size() - 1;
    }
  }

  Status CheckOutputs() {
    crossing_name_.resize(source_.values.size());
    for (const Output& output : source_.outputs) {
      const Value& value = source_.value(output.value);
      std::string& name = crossing_name_[output.value];
      if (value.lifetime != Lifetime::kTransient || !name.empty()) {
        return MakeError(ErrorKind::kRuntime, "passes.output_leaf",
                         "output '{}' is '{}', which {}; canonicalise the graph first", output.name,
                         value.name,
                         name.empty() ? std::string("no op computes")
                                      : fmt::format("is also output '{}'", name));
      }
      name = output.name;
    }
    return OkStatus();
  }

  // Assigns names to the transients that a later segment reads.
  void FindExports() {
    for (size_t segment = 0; segment < begins_.size(); ++segment) {
      for (size_t i = begins_[segment]; i < EndOf(segment); ++i) {
        for (const ValueId input : source_.ops[i].inputs) {
          if (input == kNoValue || source_.value(input).lifetime != Lifetime::kTransient) continue;
          if (segment_of_[input] == segment || !crossing_name_[input].empty()) continue;
          crossing_name_[input] = source_.value(input).name;
          exports_.push_back(input);
        }
      }
    }
  }

  Graph BuildSegment(size_t segment) {
    Graph graph;
    graph.name = begins_.size() == 1 ? source_.name : fmt::format("{}.{}", source_.name, segment);
    graph.max_t = IsWantedOnly(segment) ? source_.max_r : source_.max_t;
    graph.max_r = source_.max_r;
    map_.assign(source_.values.size(), kNoValue);
    ImportLeaves(segment, graph);
    for (size_t i = begins_[segment]; i < EndOf(segment); ++i) CopyOp(source_.ops[i], graph);
    const auto add_output = [&](ValueId id) {
      if (segment_of_[id] != segment) return;
      graph.outputs.push_back({crossing_name_[id], map_[id], RowDemand::kAll});
    };
    for (const Output& output : source_.outputs) add_output(output.value);
    for (const ValueId exported : exports_) add_output(exported);
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
      if (leaf.lifetime == Lifetime::kTransient) {
        leaf.lifetime = Lifetime::kInput;
        leaf.name = crossing_name_[id];
      }
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
    for (size_t i = 0; i < op.results.size(); ++i) {
      ValueId& result = op.results[i];
      Value value = source_.value(result);
      map_[result] = static_cast<ValueId>(graph.values.size());
      value.producer = static_cast<OpIndex>(graph.ops.size());
      if (value.lifetime == Lifetime::kState) value.state = graph.value(op.inputs[i]).state;
      graph.values.push_back(std::move(value));
      result = map_[result];
    }
    graph.ops.push_back(std::move(op));
  }

  // Values are passed between devices by name, so names must be unique.
  Status CheckNames() const {
    std::unordered_map<std::string_view, ValueId> owners;
    for (ValueId id = 0; id < source_.values.size(); ++id) {
      const std::string& name = source_.value(id).name;
      const auto claim = [&](std::string_view wanted) {
        return owners.try_emplace(wanted, id).first->second == id;
      };
      if (claim(name) && (crossing_name_[id].empty() || claim(crossing_name_[id]))) continue;
      return MakeError(
          ErrorKind::kRuntime, "passes.output_name",
          "'{}' has the name of an output that is another value, and the graph is cut into "
          "several segments; rename one of them",
          name);
    }
    return OkStatus();
  }

  const Graph& source_;
  size_t first_wanted_;                     // op that is cut off; the number of ops if none is
  std::vector<size_t> begins_;              // first op of each segment
  std::vector<size_t> segment_of_;          // by value: where it is computed
  std::vector<ValueId> exports_;            // in the order they are first needed
  std::vector<std::string> crossing_name_;  // by value; empty if neither output nor export
  std::vector<ValueId> map_;                // by source value, for the segment being built
};

}  // namespace

Result<std::vector<Segment>> Partition(const Graph& graph, bool wanted_rows_apart) {
  return Partitioner(graph, wanted_rows_apart).Run();
}

}  // namespace rullama
