// Decides which device runs each op. The home of an op is the main device, or the device of its
// layer if the layers of a model are spread over several. It gets every op that it supports.
// Composites that it refuses are decomposed, and it is asked again. Ops that it still refuses run
// on the host if the policy allows it. The report names each op that left its home, and the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/base/fallback_policy.h"
#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// Asks a device which ops of the graph it supports. Returns one text per op: empty if the op is
// supported, else the device's reason. Called once per device and form of the graph.
using SupportQuery = std::function<Result<std::vector<std::string>>(int device, const Graph&)>;

struct PlacementPolicy {
  FallbackPolicy fallback = FallbackPolicy::kList;
  std::vector<std::string> host_ops;
  // Ops that read a constant whose tensor name contains one of these strings run on the host, if
  // the fallback allows it. This keeps large, sparsely read tables out of device memory.
  std::vector<std::string> host_weights;
  // Ops that always run on the host, by the name of their first result; `fallback` does not apply
  // to them. Used to find an op that computes wrong results.
  std::set<std::string, std::less<>> on_host;
  // Experts of the first mixtures of experts (moe_ffn ops, in the order of the graph) that run on
  // the host; `fallback` does not apply to them. Their weights are most of such a model and are
  // read sparsely; only activations cross.
  int64_t host_expert_layers = 0;
  int main_device = 0;
  // The device of each layer of a model on several devices; empty: everything is at home on the
  // main device. `layer_outputs` has the names of the residual stream after the embedding and after
  // each layer (layers.h). The embedding goes with the first layer, the head with the last.
  std::vector<int> layer_devices;
  std::vector<std::string> layer_outputs;
  int host_device = -1;                   // -1: no host device; may be the device of layers
  std::vector<std::string> device_names;  // by device, for messages; may be shorter
};

struct PlacementReport {
  struct Decision {
    std::string op;  // name of its first result
    OpKind kind;
    std::string reason;
  };
  std::vector<size_t> ops_per_device;   // by device
  std::vector<Decision> moved_to_host;  // ops that left their home
  std::vector<Decision> decomposed;     // composites that were replaced, with the refusal
};

struct Placement {
  Graph graph;  // with Op::device set
  PlacementReport report;
};

// Errors (kBackend): placement.refused names op, device, reason, all kinds that are refused and
// what to set; placement.query if an answer does not have one entry per op. Errors of the query
// pass through, as do those of LayersOf().
Result<Placement> PlaceOps(const Graph& graph, const SupportQuery& query,
                           const PlacementPolicy& policy);

}  // namespace rullama
