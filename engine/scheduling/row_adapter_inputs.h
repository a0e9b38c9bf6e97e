// The inputs by which the rows of a step choose their adapters (core/ir/adapter_names.h).
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/adapters_in_force.h"
#include "engine/model_program.h"

namespace rullama {

class RowAdapterInputs {
 public:
  explicit RowAdapterInputs(const AdapterGraphs& graphs) : graphs_(graphs) {}

  // Sets the inputs of a graph for a step whose rows have these adapters in force; null: none.
  // `places`: those of the graph.
  Status Set(Session& session, std::span<const AdaptersInForce* const> rows, int64_t places,
             StepLane lane);

 private:
  AdapterGraphs graphs_;
  // By group and place, for each row; kept for their memory.
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<float>> factors_;
};

}  // namespace rullama
