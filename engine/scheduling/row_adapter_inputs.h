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
  // Fills ids_ and factors_ with what the rows have of a group.
  void FillIn(std::span<const AdaptersInForce* const> rows, int64_t group, size_t places);

  AdapterGraphs graphs_;
  // By row and place; kept for their memory.
  std::vector<int32_t> ids_;
  std::vector<float> factors_;
};

}  // namespace rullama
