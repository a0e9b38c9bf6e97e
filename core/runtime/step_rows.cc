#include "core/runtime/step_rows.h"

#include <numeric>

namespace rullama {

StepRows StepRows::Consecutive(std::span<const int32_t> tokens, int32_t past, int32_t slot,
                               DemandMode demand, GraphHandle graph) {
  StepRows rows;
  rows.graph = graph;
  rows.SetConsecutive(tokens, past, slot, demand);
  return rows;
}

StepRows StepRows::AtWanted() const {
  StepRows rows;
  rows.graph = graph;
  rows.demand = demand;
  for (const int32_t row : wanted) {
    const auto i = static_cast<size_t>(row);
    rows.wanted.push_back(static_cast<int32_t>(rows.tokens.size()));
    rows.tokens.push_back(tokens[i]);
    rows.pos.push_back(pos[i]);
    rows.slot.push_back(slot[i]);
  }
  return rows;
}

void StepRows::SetConsecutive(std::span<const int32_t> new_tokens, int32_t past,
                              int32_t slot_of_all, DemandMode new_demand) {
  demand = new_demand;
  tokens.assign(new_tokens.begin(), new_tokens.end());
  pos.resize(tokens.size());
  std::iota(pos.begin(), pos.end(), past);
  slot.assign(tokens.size(), slot_of_all);
  wanted.clear();
  if (demand == DemandMode::kPerOutput && !tokens.empty()) {
    wanted.push_back(static_cast<int32_t>(tokens.size()) - 1);
  }
}

}  // namespace rullama
