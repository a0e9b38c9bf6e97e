// A session: a model's graphs on one or more devices, with their weights, states and compiled
// plans. It turns a step (some token rows of some slots) into plan executions. Plans are compiled
// once for each graph, bucket of row counts and demand, on first use, and replayed for ever.
//
// Ownership: borrows the devices and the weight source, which outlive it. Thread safety: one thread
// at a time. Errors of a device pass through; a failed step leaves `past` as it was.
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
#include "core/runtime/weights.h"

namespace rullama {

// One of a session's graphs. Constants, states and inputs of the same name are one for all graphs.
struct SessionGraph {
  Graph graph;
  // Row counts worth a plan of their own, ascending. Empty: DefaultBuckets of the prefill chunk.
  std::vector<int64_t> buckets = {};
  // Whether the rows of a step join the caches; else the step only sees them, and `past` stays.
  bool extends_past = true;
};

struct SessionOptions {
  std::vector<Device*> devices;  // main device first; PlacementPolicy names indices of this list
  PlacementPolicy policy;
  int64_t prefill_chunk = 512;  // most rows of a step of a graph that names no buckets
  int64_t max_wanted_rows = 1;  // most wanted rows of a step with DemandMode::kAsAsked
};

// The rows of one step. tokens, pos and slot have the same length, 1 to the largest bucket of the
// graph; rows of one slot come in ascending, consecutive positions that continue its past.
struct StepRows {
  size_t graph = 0;
  std::span<const int32_t> tokens;
  std::span<const int32_t> pos;
  std::span<const int32_t> slot;
  std::span<const int32_t> wanted;  // indices into the rows; only with DemandMode::kAsAsked
  DemandMode demand = DemandMode::kAsAsked;
};

struct SessionStats {
  uint64_t steps = 0;
  uint64_t plans = 0;         // compiled by the session
  uint64_t compilations = 0;  // reported by the plugins, as are the next three
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
  // Every slot is counted from the input "past" of the first graph.
  static Result<std::unique_ptr<Session>> Create(std::vector<SessionGraph> graphs,
                                                 const WeightSource& weights,
                                                 SessionOptions options);
  static Result<std::unique_ptr<Session>> Create(Graph graph, const WeightSource& weights,
                                                 SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Binds an input beside those of StepRows (seed, biases); kept until set again. The size is that
  // of the input's type, for one with T rows at the T of the steps that follow.
  Status SetInput(std::string_view name, std::span<const std::byte> data);

  Status Run(const StepRows& rows);

  // Bytes of an output of the last step, exactly as many as its type has at that step's extents.
  Status ReadOutput(std::string_view name, std::span<std::byte> data);

  // Writes zeros over a state, wherever plans that are already compiled keep it.
  Status ClearState(std::string_view name);

  // Rows in the cache of a slot. Forgetting a slot costs nothing: old rows become invisible.
  [[nodiscard]] int32_t past(int32_t slot) const { return past_[static_cast<size_t>(slot)]; }
  void ForgetSlot(int32_t slot) { past_[static_cast<size_t>(slot)] = 0; }

  // Compiles the plan of a bucket now instead of on first use.
  Status Prepare(int64_t rows, DemandMode demand, size_t graph = 0);

  [[nodiscard]] const Graph& graph(size_t index = 0) const { return graphs_[index].graph; }
  // What runs where, of the plan compiled last.
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
  // Device, value name, type: a value may have T rows in one plan and R rows in another.
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
  Extents largest_;  // of any bucket: buffers are made for these
  std::vector<int32_t> past_;
  std::map<std::string, std::vector<std::byte>, std::less<>> inputs_;  // of SetInput
  PlacementReport placement_;

  // Device objects; declared in the order they depend on each other, destroyed in reverse.
  WeightNames in_products_;
  std::map<std::pair<int, std::string>, DeviceWeight> weight_handles_;
  std::map<std::pair<int, std::string>, StateBuffer> states_;
  std::vector<std::vector<std::pair<uint64_t, std::unique_ptr<DeviceBuffer>>>> arenas_;
  std::map<IoKey, IoBuffer> input_buffers_;
  std::map<IoKey, IoBuffer> output_buffers_;
  std::vector<std::unique_ptr<Plan>> plans_;

  std::vector<uint64_t> taken_;  // by device: bytes of its memory
  const Plan* last_plan_ = nullptr;
  Extents last_extents_;
  SessionStats stats_;
};

}  // namespace rullama
