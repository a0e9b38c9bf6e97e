// A session: a model's graphs on one or more devices, with their weights, states and compiled
// plans. It runs a step (token rows of one or more slots) as plan executions. A plan is compiled on
// first use for each graph, bucket of row counts and demand mode, and then reused.
//
// Ownership: borrows the devices and the weight source, which outlive it. Thread safety: one thread
// at a time. Errors of a device are returned unchanged; a failed step leaves `past` unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/ir/weight_uses.h"
#include "core/passes/bucket.h"
#include "core/passes/pipeline.h"
#include "core/plugin/device.h"
#include "core/runtime/step_rows.h"
#include "core/runtime/weights.h"

namespace rullama {

// One graph of a session. Graphs share constants, states and inputs of the same name.
struct SessionGraph {
  Graph graph;
  // Row counts for which separate plans are compiled, ascending. Empty: DefaultBuckets() of
  // StepLimits::max_rows.
  std::vector<int64_t> buckets = {};
  // True if a step appends its rows to the caches and advances `past`.
  bool extends_past = true;
};

struct SessionOptions {
  std::vector<Device*> devices;  // main device first; PlacementPolicy names indices of this list
  PlacementPolicy policy;
  StepLimits limits;
};

struct SessionStats {
  uint64_t steps = 0;
  uint64_t plans = 0;         // compiled by the session
  uint64_t compilations = 0;  // this and the next three are reported by the plugins
  uint64_t allocations = 0;
  uint64_t recordings = 0;
  uint64_t dispatches = 0;
  // Bytes on devices.
  uint64_t weight_bytes = 0;       // held by the devices beside the file mapping
  uint64_t weight_file_bytes = 0;  // read in place
  uint64_t state_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t io_bytes = 0;
  uint64_t workspace_bytes = 0;
};

class Session {
 public:
  // The number of slots is the length of the input "past" of the first graph.
  static Result<std::unique_ptr<Session>> Create(std::vector<SessionGraph> graphs,
                                                 const WeightSource& weights,
                                                 SessionOptions options);
  static Result<std::unique_ptr<Session>> Create(Graph graph, const WeightSource& weights,
                                                 SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Sets an input that is not part of StepRows (seed, biases). It is kept until set again. `data`
  // has the size of the input's type; if the type has T rows, following steps must have that T.
  Status SetInput(std::string_view name, std::span<const std::byte> data);

  Status Run(const StepRows& rows);

  // Copies an output of the last step to `data`, whose size is that of the output's type at the
  // extents of that step.
  Status ReadOutput(std::string_view name, std::span<std::byte> data);

  // Fills a state with zeros on every device that holds it.
  Status ClearState(std::string_view name);

  // The number of cached rows of a slot. ForgetSlot() does no work: old rows become invisible.
  [[nodiscard]] int32_t past(int32_t slot) const { return past_[static_cast<size_t>(slot)]; }
  void ForgetSlot(int32_t slot) { past_[static_cast<size_t>(slot)] = 0; }

  // Compiles the plan of a bucket now instead of on first use.
  Status Prepare(int64_t rows, DemandMode demand, size_t graph = 0);

  [[nodiscard]] const Graph& graph(size_t index = 0) const { return graphs_[index].graph; }
  // The largest step of a graph.
  [[nodiscard]] int64_t max_rows(size_t graph = 0) const { return graphs_[graph].buckets.back(); }
  // The plugin of the main device, for messages.
  [[nodiscard]] const std::string& plugin_name() const {
    return options_.devices.front()->plugin().name();
  }
  // The placement of the plan that was compiled last.
  [[nodiscard]] const PlacementReport& placement() const { return placement_; }
  Result<SessionStats> Stats();

 private:
  struct Segment {
    int device = 0;
    Graph graph;
    DevicePlan plan;
  };
  struct Plan {
    size_t graph = 0;
    Bucket bucket;
    std::vector<Segment> segments;
  };
  struct IoBuffer {
    DeviceBuffer buffer;
    uint64_t bytes = 0;
  };
  // Device, value name, type. The type is part of the key, because a value may have T rows in one
  // plan and R rows in another.
  using IoKey = std::tuple<int, std::string, std::string>;

  struct StateBuffer {
    DeviceBuffer buffer;
    uint64_t bytes = 0;
  };

  Session(std::vector<SessionGraph> graphs, const WeightSource& weights, SessionOptions options);

  Status CheckRows(const StepRows& rows) const;
  Result<Plan*> PlanFor(size_t graph, int64_t rows, DemandMode demand);
  Result<Plan> Compile(size_t graph, const Bucket& bucket);
  Status CheckMemory(const Program& program);
  Result<std::vector<Storage>> PlaceValues(int device, const Graph& graph,
                                           const MemoryPlan& memory);
  Result<DeviceBuffer*> Arena(int device, uint64_t bytes);
  Result<rl_buffer*> State(int device, const Value& state);
  Result<rl_weight*> Weight(int device, const Value& constant);
  [[nodiscard]] Result<WeightDesc> DescribeWeight(const Value& constant) const;
  Result<IoBuffer*> Io(std::map<IoKey, IoBuffer>& table, int device, const std::string& name,
                       const TensorType& type);
  Status BindInputs(const Plan& plan, const StepRows& rows);
  Status CheckKeptInputs(const Plan& plan, const Extents& extents) const;
  Status WriteInput(int device, const Value& input, std::span<const std::byte> data);
  Status Import(const Plan& plan, size_t segment, const Extents& extents);

  std::vector<SessionGraph> graphs_;
  const WeightSource& weights_;
  SessionOptions options_;
  Extents largest_;  // maximum over all buckets: the size of the I/O buffers
  std::vector<int32_t> past_;
  std::map<std::string, std::vector<std::byte>, std::less<>> inputs_;  // set by SetInput()
  PlacementReport placement_;

  // Device objects, declared before the objects that depend on them.
  WeightNames in_products_;
  std::map<std::pair<int, std::string>, DeviceWeight> weight_handles_;
  std::map<std::pair<int, std::string>, StateBuffer> states_;
  std::vector<std::vector<std::pair<uint64_t, std::unique_ptr<DeviceBuffer>>>> arenas_;
  std::map<IoKey, IoBuffer> input_buffers_;
  std::map<IoKey, IoBuffer> output_buffers_;
  std::vector<std::unique_ptr<Plan>> plans_;

  std::vector<uint64_t> allocated_bytes_;  // by device
  const Plan* last_plan_ = nullptr;
  Extents last_extents_;
  SessionStats stats_;
};

}  // namespace rullama
