#include "core/passes/wanted_rows.h"

#include <rullama/sdk/cache_rows.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/passes/graph_rewriter.h"
#include "core/passes/row_demand.h"

namespace rullama {
namespace {

bool IsOfAllRows(const Graph& graph, ValueId id) {
  if (id == kNoValue) return false;
  const TensorType& type = graph.type(id);
  return std::any_of(type.dims.begin(), type.dims.begin() + type.rank,
                     [](const Dim& dim) { return dim.t != 0; });
}

// The operands of an op that reads the rows of states up to `past` and those of the step.
struct CacheReader {
  OpKind kind;
  struct Cache {
    uint32_t state, rows;
  };
  std::vector<Cache> caches;
  uint32_t pos, slot, past;  // pos, slot: of the rows of the step
};

const CacheReader* FindCacheReader(OpKind kind) {
  using A = operands::Attention;
  using P = operands::Penalties;
  using R = operands::RowPenalties;
  static const std::array<CacheReader, 3> kReaders = {
      {{OpKind::kAttention,
        {{A::k_state, A::k_new}, {A::v_state, A::v_new}},
        A::kv_pos,
        A::kv_slot,
        A::past},
       {OpKind::kPenalties, {{P::history, P::tokens}}, P::kv_pos, P::kv_slot, P::past},
       {OpKind::kRowPenalties, {{R::history, R::tokens}}, R::kv_pos, R::kv_slot, R::past}}};
  const auto found = std::ranges::find(kReaders, kind, &CacheReader::kind);
  return found == kReaders.end() ? nullptr : &*found;
}

class WantedRowsPass {
 public:
  explicit WantedRowsPass(const Graph& source)
      : source_(source),
        past_(source.Find(input_names::kPast)),
        rewriter_(source),
        append_of_(source.values.size(), kNoOp),
        wanted_(source.values.size(), kNoValue),
        is_late_(source.ops.size(), false) {}

  Result<Graph> Run() && {
    if (past_ == kNoValue || source_.rows_input == kNoValue) return source_;
    FindAppends();
    if (!FindLateOps()) return source_;
    // Late ops read the caches after the step's rows were appended, so they come after the ops that
    // append them.
    for (OpIndex i = 0; i < source_.ops.size(); ++i) {
      if (!is_late_[i]) KeepEarly(source_.ops[i]);
    }
    for (OpIndex i = 0; i < source_.ops.size(); ++i) {
      if (!is_late_[i]) continue;
      const Op& op = source_.ops[i];
      if (Decodes(op)) {
        KeepDecoding(op);
      } else {
        rewriter_.Keep(op);
      }
    }
    rewriter_.KeepOutputs();
    return std::move(rewriter_).Finish();
  }

 private:
  // Whether an op on wanted rows reads a cache and the rows of the step.
  [[nodiscard]] bool Decodes(const Op& op) const {
    return FindCacheReader(op.kind) != nullptr && !IsOfAllRows(source_, op.results[0]) &&
           NeedsAllRows(source_, op);
  }

  [[nodiscard]] bool IsState(ValueId id) const {
    return id != kNoValue && source_.value(id).lifetime == Lifetime::kState;
  }

  void FindAppends() {
    for (OpIndex i = 0; i < source_.ops.size(); ++i) {
      const Op& op = source_.ops[i];
      for (size_t j = 0; j < WrittenOperands(InfoOf(op.kind)); ++j) append_of_[op.inputs[j]] = i;
    }
  }

  // Marks the ops that decode and what depends on them. False if one of them reads a state in
  // another way, or there are none.
  bool FindLateOps() {
    std::vector<bool> is_late_value(source_.values.size(), false);
    bool any = false;
    for (OpIndex i = 0; i < source_.ops.size(); ++i) {
      const Op& op = source_.ops[i];
      const bool decodes = Decodes(op);
      any = any || decodes;
      is_late_[i] = decodes || std::ranges::any_of(op.inputs, [&](ValueId input) {
                      return input != kNoValue && is_late_value[input];
                    });
      if (decodes ? !CanDecode(op) : is_late_[i] && ReadsWhatIsReplaced(i)) return false;
      for (const ValueId result : op.results) is_late_value[result] = is_late_[i];
    }
    // The appended versions that are read have to be there before.
    return any && std::ranges::none_of(source_.values, [&](const Value& value) {
             return value.lifetime == Lifetime::kState && value.producer != kNoOp &&
                    is_late_[value.producer] && IsReadLate(value.state);
           });
  }

  // Whether an op that decodes reads the state of this first version.
  [[nodiscard]] bool IsReadLate(ValueId first) const {
    return std::ranges::any_of(source_.ops, [&](const Op& op) {
      return Decodes(op) && std::ranges::any_of(op.inputs, [&](ValueId id) {
               return IsState(id) && source_.value(id).state == first;
             });
    });
  }

  // By another op than itself.
  [[nodiscard]] bool ReadsWhatIsReplaced(OpIndex index) const {
    return std::ranges::any_of(source_.ops[index].inputs, [&](ValueId id) {
      return IsState(id) && append_of_[id] != kNoOp && append_of_[id] != index;
    });
  }

  // Whether the states of the op get the rows of the step that it reads.
  [[nodiscard]] bool CanDecode(const Op& op) const {
    using In = operands::StateAppend;
    const CacheReader& reader = *FindCacheReader(op.kind);
    if (op.inputs[reader.past] != past_) return false;
    for (const auto& [state, rows] : reader.caches) {
      if (!IsState(op.inputs[state]) || append_of_[op.inputs[state]] == kNoOp) return false;
      const Op& append = source_.ops[append_of_[op.inputs[state]]];
      if (append.kind != OpKind::kStateAppend || append.inputs[In::rows] != op.inputs[rows] ||
          append.inputs[In::pos] != op.inputs[reader.pos] ||
          append.inputs[In::slot] != op.inputs[reader.slot]) {
        return false;
      }
    }
    return op.kind != OpKind::kAttention || KeepsItsWindow(op);
  }

  // Whether the rows that an attention sees are still in its cache once those of the step are.
  [[nodiscard]] bool KeepsItsWindow(const Op& op) const {
    const auto& attrs = op.As<rl_attention_attrs>();
    const auto keeps = [&](const CacheReader::Cache& cache) {
      return source_.type(op.inputs[cache.state]).dims[1].constant >= attrs.window;
    };
    return attrs.mask == RL_MASK_CAUSAL &&
           std::ranges::all_of(FindCacheReader(op.kind)->caches, keeps);
  }

  void KeepEarly(const Op& op) {
    rewriter_.Keep(op);
    if (GathersWantedRows(source_, op)) {
      wanted_[op.inputs[operands::GatherRows::table]] = rewriter_.Map(op.results[0]);
    }
  }

  void KeepDecoding(const Op& op) {
    const CacheReader& reader = *FindCacheReader(op.kind);
    std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    for (const auto& [state, rows] : reader.caches) {
      inputs[state] = rewriter_.Map(source_.ops[append_of_[op.inputs[state]]].results[0]);
      inputs[rows] = AtWantedRows(op.inputs[rows]);
    }
    for (const uint32_t i : {reader.pos, reader.slot}) inputs[i] = AtWantedRows(op.inputs[i]);
    inputs[reader.past] = PastOfWanted();
    const std::vector<ValueId> results = rewriter_.Emit(op, std::move(inputs));
    for (size_t i = 0; i < results.size(); ++i) rewriter_.Bind(op.results[i], results[i]);
  }

  ValueId PastOfWanted() {
    if (past_of_wanted_ == kNoValue) {
      past_of_wanted_ = rewriter_.builder().Input(input_names::kPastOfWanted, source_.type(past_));
    }
    return past_of_wanted_;
  }

  ValueId AtWantedRows(ValueId id) {
    if (wanted_[id] == kNoValue) {
      wanted_[id] = sdk::IsBlockCacheType(source_.type(id).dtype)
                        ? CastOfWantedRows(id)
                        : GatherWantedRows(rewriter_.builder(), source_.value(id),
                                           rewriter_.Map(id), rewriter_.Map(source_.rows_input));
    }
    return wanted_[id];
  }

  // Rows in blocks cannot be gathered, but what they are made of can. A cast makes each row of its
  // own, so the bytes are the same.
  ValueId CastOfWantedRows(ValueId id) {
    const Value& value = source_.value(id);
    RL_CHECK(value.producer != kNoOp && source_.ops[value.producer].kind == OpKind::kCast);
    const Op& cast = source_.ops[value.producer];
    const ValueId rows = AtWantedRows(cast.inputs[operands::Cast::x]);
    return rewriter_.builder().Add(
        ops::Cast{.x = rows, .dtype = static_cast<DType>(cast.As<rl_cast_attrs>().dtype)},
        value.name + "/rows");
  }

  const Graph& source_;
  ValueId past_;
  GraphRewriter rewriter_;
  std::vector<OpIndex> append_of_;  // by state version: the op that makes the next one
  std::vector<ValueId> wanted_;     // by source value: the new value of its wanted rows
  std::vector<bool> is_late_;       // by source op
  ValueId past_of_wanted_ = kNoValue;
};

}  // namespace

bool NeedsAllRows(const Graph& graph, const Op& op) {
  const auto is_of_all = [&](ValueId id) { return IsOfAllRows(graph, id); };
  return std::ranges::any_of(op.results, is_of_all) || std::ranges::any_of(op.inputs, is_of_all);
}

size_t CountLastWantedOps(const Graph& graph) {
  const auto last = std::find_if(graph.ops.rbegin(), graph.ops.rend(),
                                 [&](const Op& op) { return NeedsAllRows(graph, op); });
  return static_cast<size_t>(last - graph.ops.rbegin());
}

Result<Graph> DecodeWantedRows(const Graph& graph) { return WantedRowsPass(graph).Run(); }

int64_t FewestUnwindowedRows(const Graph& graph) {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kAttention || op.As<rl_attention_attrs>().window > 0) continue;
    const ValueId state = op.inputs[operands::Attention::k_state];
    if (state != kNoValue) fewest = std::min(fewest, graph.type(state).dims[1].constant);
  }
  return fewest;
}

}  // namespace rullama
