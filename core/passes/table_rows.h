// Lets the host look up the rows of tables of which no device should hold all: each gather_rows of
// such a table by the tokens of a step becomes an input of the graph. The host fills it with the
// rows that the step needs, as it fills `tokens`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// An input f32[T, columns] in place of a lookup.
struct TableLookup {
  std::string input;
  Value table;  // the constant: rows of numbers
  int64_t column = 0;
  int64_t columns = 0;
};

// Replaces the lookups in the constants for which `is_chosen` holds. Adds what the graph reads in
// their place to `lookups`, one for each input. Pure but for that and the calls of `is_chosen`.
Result<Graph> ReplaceLookups(const Graph& graph, const std::function<bool(const Value&)>& is_chosen,
                             std::vector<TableLookup>& lookups);

}  // namespace rullama
