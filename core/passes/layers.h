// The layers of a decoder in its graph: the layer that each op belongs to, and the places where the
// graph can be cut to run on several devices. The passes know layers by the names of their outputs
// only. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The layer of each op, from 0 to the number of layers; the latter stands for what follows the last
// layer. `outputs` has the names of the residual stream after the embedding and after each layer,
// in order. An op belongs to the latest layer that it depends on, or to the first layer that reads
// it if that is a later one; the ops that use a state which depends on no layer belong to the last
// of its readers. A graph that is computed in part may lack the outputs of its last layers.
// Error passes.layers: it lacks an output before one that it has.
Result<std::vector<size_t>> LayersOf(const Graph& graph, std::span<const std::string> outputs);

// By layer: whether it may begin on another device than the layer before it. It may not if a
// state is used before the cut and after it, as by layers that share a KV cache. The first layer
// cannot be cut off. `layer_of_op` is the result of LayersOf() for `layers` layers.
std::vector<bool> PossibleCuts(const Graph& graph, std::span<const size_t> layer_of_op,
                               size_t layers);

}  // namespace rullama
