// Facts about graphs that train, for plugins.
#pragma once

#include "rullama/sdk/backend.h"

namespace rullama::sdk {

// Whether the graph computes a loss or adds up gradients of parameters.
inline bool Learns(const GraphView& graph) {
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    switch (graph.op(i).kind) {
      case RL_OP_cross_entropy:
      case RL_OP_linear_cross_entropy:
      case RL_OP_grad_accumulate:
        return true;
      default:
        break;
    }
  }
  return false;
}

}  // namespace rullama::sdk
