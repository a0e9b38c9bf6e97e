#include "core/passes/row_demand.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

// The rows for which a value is needed, in rising order: a value needed both for all rows and for
// the wanted rows is computed for all.
enum class Level : uint8_t { kNone, kWanted, kAll };

bool IsIndexedByRows(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  const bool computed =
      value.lifetime == Lifetime::kInput || value.lifetime == Lifetime::kTransient;
  return computed && value.type.rows() == Dim::T();
}

class RowDemandPass {
 public:
  RowDemandPass(const Graph& source, DemandMode mode)
      : source_(source),
        mode_(mode),
        rewriter_(source),
        level_(source.values.size(), Level::kNone),
        wanted_(source.values.size(), kNoValue) {}

  Result<Graph> Run() && {
    for (const Output& output : source_.outputs) {
      const Level level = LevelOf(output);
      if (level == Level::kWanted && source_.rows_input == kNoValue) {
        return MakeError(ErrorKind::kRuntime, "passes.no_rows_input",
                         "output '{}' asks for the wanted rows, but the graph declares no input "
                         "that names them; declare it with WantedRows or ask for all rows",
                         output.name);
      }
      Demand(output.value, level);
    }
    for (size_t i = source_.ops.size(); i-- > 0;) DemandOperands(source_.ops[i]);
    for (const Op& op : source_.ops) Rewrite(op);
    AddOutputs();
    return std::move(rewriter_).Finish();
  }

 private:
  [[nodiscard]] Level LevelOf(const Output& output) const {
    if (mode_ == DemandMode::kStateOnly) return Level::kNone;
    const bool all = mode_ == DemandMode::kAllRows || output.demand == RowDemand::kAll ||
                     !IsIndexedByRows(source_, output.value);
    return all ? Level::kAll : Level::kWanted;
  }

  void Demand(ValueId value, Level level) { level_[value] = std::max(level_[value], level); }

  // The rows at which an op runs: the largest demand of its results. State updates run at all rows.
  [[nodiscard]] Level LevelOf(const Op& op) const {
    if (InfoOf(op.kind).trait == OpTrait::kEffect) return Level::kAll;
    Level level = Level::kNone;
    for (const ValueId result : op.results) level = std::max(level, level_[result]);
    return level == Level::kWanted && !FollowsRows(op) ? Level::kAll : level;
  }

  // True if an operand is read row by row. The rows of any other op come from no rows of their own:
  // it computes all or none.
  [[nodiscard]] bool FollowsRows(const Op& op) const {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != kNoValue && FollowsRows(op, i)) return true;
    }
    return false;
  }

  // True if operand `i` of an op is read row by row, so that it needs only the rows of the results.
  [[nodiscard]] bool FollowsRows(const Op& op, size_t i) const {
    return InfoOf(op.kind).operands[i].rows == RowRule::kSame &&
           IsIndexedByRows(source_, op.inputs[i]);
  }

  void DemandOperands(const Op& op) {
    const Level level = LevelOf(op);
    if (level == Level::kNone) return;
    if (GathersWantedRows(source_, op)) {
      Demand(op.inputs[operands::GatherRows::table], Level::kWanted);
      return;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNoValue) continue;
      Demand(op.inputs[i], FollowsRows(op, i) ? level : Level::kAll);
    }
  }

  void Rewrite(const Op& op) {
    const Level level = LevelOf(op);
    if (level == Level::kNone) return;
    if (GathersWantedRows(source_, op)) {
      rewriter_.Bind(op.results[0], AtWantedRows(op.inputs[operands::GatherRows::table]));
      return;
    }
    if (level == Level::kAll) {
      rewriter_.Keep(op);
      return;
    }
    std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (op.inputs[i] != kNoValue && FollowsRows(op, i)) inputs[i] = AtWantedRows(op.inputs[i]);
    }
    const std::vector<ValueId> results = rewriter_.Emit(op, std::move(inputs));
    for (size_t i = 0; i < results.size(); ++i) wanted_[op.results[i]] = results[i];
  }

  // The new value with the wanted rows of an old value. If all rows are computed, they are gathered
  // once.
  ValueId AtWantedRows(ValueId id) {
    if (wanted_[id] != kNoValue) return wanted_[id];
    wanted_[id] = GatherWantedRows(rewriter_.builder(), source_.value(id), rewriter_.Map(id),
                                   rewriter_.Map(source_.rows_input));
    return wanted_[id];
  }

  void AddOutputs() {
    GraphBuilder& builder = rewriter_.builder();
    bool chosen = false;
    for (const Output& output : source_.outputs) {
      switch (LevelOf(output)) {
        case Level::kNone:
          break;
        case Level::kWanted:
          builder.Output(output.name, AtWantedRows(output.value), RowDemand::kWanted);
          chosen = true;
          break;
        case Level::kAll:
          builder.Output(output.name, rewriter_.Map(output.value), RowDemand::kAll);
          break;
      }
    }
    if (chosen) builder.WantedRows(rewriter_.Map(source_.rows_input));
  }

  const Graph& source_;
  DemandMode mode_;
  GraphRewriter rewriter_;       // its map holds the values of all rows
  std::vector<Level> level_;     // by source value
  std::vector<ValueId> wanted_;  // by source value: the new value of the wanted rows
};

}  // namespace

bool GathersWantedRows(const Graph& graph, const Op& op) {
  using In = operands::GatherRows;
  if (op.kind != OpKind::kGatherRows || op.inputs[In::ids] != graph.rows_input) return false;
  const ValueId table = op.inputs[In::table];
  return IsIndexedByRows(graph, table) && op.As<rl_gather_rows_attrs>().columns == 0 &&
         graph.type(table).dtype == graph.type(op.results[0]).dtype;
}

ValueId GatherWantedRows(GraphBuilder& builder, const Value& value, ValueId table, ValueId rows) {
  const TensorType& type = value.type;
  const std::string name = value.name + "/rows";
  // gather_rows treats a table of rank 2 as a weight and returns f32; converting back is exact.
  const bool widened = type.rank == 2 && type.dtype != DType::kI32 && type.dtype != DType::kF32;
  const ValueId gathered =
      builder.Add(ops::GatherRows{.table = table, .ids = rows}, widened ? name + "/f32" : name);
  return widened ? builder.Add(ops::Cast{.x = gathered, .dtype = type.dtype}, name) : gathered;
}

Result<Graph> ApplyRowDemand(const Graph& graph, DemandMode mode) {
  return RowDemandPass(graph, mode).Run();
}

}  // namespace rullama
