// The graph: a flat list of ops in topological order over a flat list of values. Plain data; passes
// take a graph and return another. Not thread-safe while being changed; a const Graph may be
// shared.
//
// A value has a type, a lifetime (input, constant, state, transient) and a stable name such as
// "blk.12.attn.q". How much is in the cache is data (the inputs pos, slot, past), never a shape, so
// a plan is compiled once per size of step (docs/adr/0002). A composite op has a decomposition into
// primitives: a backend takes the composites it is good at and refuses the others (docs/adr/0003).
//
// The folder: types.h has shapes; builder.h builds graphs; infer.h refuses wrong use of an op and
// verify.h checks whole graphs; text.h prints and parses them, dot.h draws them; op_cost.h counts
// their work. All of it rests on core/abi/ops.def, one row per op with its operands, their row
// rules and roles, attributes, traits and documentation. The table generates kinds and attributes
// on both sides of the ABI, descriptors (ops.h), op structs (op_structs.h), operand positions
// (core/sdk/operands.h), docs/ops.md, and the tables of inference functions, reference kernels and
// decompositions, in which a missing entry does not link.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/ir/ops.h"
#include "core/ir/types.h"

namespace rullama {

using ValueId = uint32_t;
using OpIndex = uint32_t;
inline constexpr ValueId kNoValue = std::numeric_limits<ValueId>::max();
inline constexpr OpIndex kNoOp = std::numeric_limits<OpIndex>::max();

enum class Lifetime : uint8_t {
  kInput,      // bound by name before a step
  kConstant,   // a weight: rows [first_row, first_row + dim 0) of the tensor `source`
  kState,      // persists; an effect makes the next version of the same storage
  kTransient,  // computed by an op
};

struct Value {
  TensorType type;
  Lifetime lifetime = Lifetime::kTransient;
  std::string name = {};     // unique, stable: "blk.12.attn.q"
  OpIndex producer = kNoOp;  // transients and later state versions
  std::string source = {};   // constants: name of the tensor in the model file
  int64_t first_row = 0;     // constants: offset along dimension 0 of the source
  ValueId state = kNoValue;  // states: the first version (itself, if it is the first)
};

struct Op {
  OpKind kind;
  std::vector<ValueId> inputs;  // kNoValue for an absent optional operand
  std::vector<ValueId> results;
  OpAttrs attrs;
  int device = 0;  // index into the devices of the session; set by the placement pass
  // 1: computes again what an op of epoch 0 has computed. Passes keep such an op apart from the
  // first one and after the op that precedes it in the graph.
  int epoch = 0;

  template <typename Attrs>
  [[nodiscard]] const Attrs& As() const {
    RL_CHECK(kind == AttrsKind<Attrs>::kKind);
    return *static_cast<const Attrs*>(attrs.data());
  }
};

// The rows of an output that the caller wants: the R rows named by the input "rows", or all T.
enum class RowDemand : uint8_t { kWanted, kAll };

struct Output {
  std::string name;
  ValueId value = kNoValue;
  RowDemand demand = RowDemand::kWanted;
};

struct Graph {
  std::string name;
  int64_t max_t = 1;  // bounds of the symbols: 1 <= T <= max_t, 0 <= R <= max_r
  int64_t max_r = 1;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Output> outputs;
  // The input whose rows are the indices (into T) of the wanted rows; kNoValue if no output asks
  // for fewer rows than all.
  ValueId rows_input = kNoValue;

  [[nodiscard]] const Value& value(ValueId id) const { return values[id]; }
  [[nodiscard]] const TensorType& type(ValueId id) const { return values[id].type; }
  [[nodiscard]] Extents MaxExtents() const { return {max_t, max_r}; }
  // The value with this name, or kNoValue. Linear; for binding and tests, not for inner loops.
  [[nodiscard]] ValueId Find(std::string_view value_name) const;
};

// Names of the inputs every language-model graph of this project has. All i32.
namespace input_names {
inline constexpr std::string_view kTokens = "tokens";  // [T] token ids
inline constexpr std::string_view kPos = "pos";        // [T] position of each row in its sequence
inline constexpr std::string_view kSlot = "slot";      // [T] sequence slot of each row
inline constexpr std::string_view kPast = "past";      // [slots] rows already in each slot's cache
inline constexpr std::string_view kRows = "rows";      // [R] indices of the wanted rows
// [slots] rows of each slot before its last one; in graphs of DecodeWantedRows() only
inline constexpr std::string_view kPastOfWanted = "past_of_wanted";
inline constexpr std::string_view kSeed = "seed";  // [2] 64-bit sampling seed, low word first
}  // namespace input_names

}  // namespace rullama
