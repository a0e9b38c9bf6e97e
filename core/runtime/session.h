// A session: a model's graphs on one or more devices with their caches. It runs steps (token rows
// of one or more slots). A plan is compiled on first use for each graph, bucket of row counts,
// bucket of wanted rows (1, 2, 4, ...) and demand mode, and then reused; after its second execution
// a step allocates nothing on the host.
//
// Ownership: borrows the devices and the weight source, which outlive it. Thread safety: one thread
// at a time. Errors: session.internal for steps, inputs and outputs that do not fit the graphs;
// errors of the passes and devices are returned unchanged; a failed step leaves `past` unchanged.
// Run blocks until the step was started, and in its first execution while weights are loaded and
// plans compiled; ReadOutput blocks until its value is there.
//
// Lanes: on several devices, one step at a time leaves all but one of them idle. A session with
// lanes runs a step in each, at the same time, on a thread for each device (step_pipeline.h). The
// steps share plans and buffers and belong to different slots. Start() begins one, Finish() waits
// for it. All other functions that need a device wait for the steps in flight first.
//
// The folder: bound_plan.h is a graph compiled for one bucket; device_resources.h and kept_inputs.h
// own what plans share; table_reader.h reads rows of tables that stay in their file; memory_need.h
// refuses a model that is too large before its weights are copied; device_program.h runs the
// passes. weights.h finds the bytes of constants. sequence_feeder.h runs prompts, soft_rows.h sets
// the inputs of pictures and sounds. For snapshots slot_states.h knows how the states of slots are
// laid out and slot_log.h what each slot still holds; snapshot_file.h stores them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/session_stats.h"
#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/passes/bucket.h"
#include "core/passes/differentiate.h"
#include "core/passes/placement.h"
#include "core/plugin/device.h"
#include "core/runtime/bound_plan.h"
#include "core/runtime/device_resources.h"
#include "core/runtime/kept_inputs.h"
#include "core/runtime/memory_need.h"
#include "core/runtime/slot_log.h"
#include "core/runtime/slot_states.h"
#include "core/runtime/snapshot.h"
#include "core/runtime/step_observer.h"
#include "core/runtime/step_pipeline.h"
#include "core/runtime/step_rows.h"
#include "core/runtime/table_reader.h"
#include "core/runtime/weights.h"

namespace rullama {

// One graph of a session. Graphs share constants, states and inputs of the same name.
struct SessionGraph {
  Graph graph;
  // Row counts for which separate plans are compiled, ascending. Empty: DefaultBuckets() of
  // StepLimits::max_t.
  std::vector<int64_t> buckets = {};
  // True if a step appends its rows to the caches and advances `past`.
  bool extends_past = true;
  // In a training graph, the derivatives that a step computes after the graph.
  std::optional<Differentiation> differentiation = {};
  // The buckets of steps in which each row is wanted. Empty: `buckets`.
  std::vector<int64_t> buckets_of_wanted = {};

  [[nodiscard]] int64_t MaxT() const {
    const int64_t wanted = buckets_of_wanted.empty() ? 0 : buckets_of_wanted.back();
    return std::max(buckets.back(), wanted);
  }
};

struct SessionOptions {
  std::vector<Device*> devices;  // main device first; PlacementPolicy names indices of this list
  PlacementPolicy policy;
  StepLimits limits;
  int64_t slots = 0;                 // 0: the length of the input "past" of the first graph
  StepObserver* observer = nullptr;  // borrowed; outlives the session; for no lanes
  size_t lanes = 0;                  // steps that can be in flight together
  // The memory of all sessions on these devices; null: there is no other one.
  std::shared_ptr<AllocatedBytes> allocated = {};
};

// Whether an error says that the devices refuse a graph: placement.refused or passes.state_split.
[[nodiscard]] bool IsRefusal(const Error& error);

class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(std::vector<SessionGraph> graphs,
                                                 const WeightSource& weights,
                                                 SessionOptions options);
  static Result<std::unique_ptr<Session>> Create(Graph graph, const WeightSource& weights,
                                                 SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Sets an input that is not part of StepRows (seed, biases). It is kept until set again. `data`
  // has the size of the input's type; if the type has T or R rows, following steps that read it
  // must have that T or R. Setting a value that is kept already costs a comparison. With a lane
  // that has
  // no step in flight: of the steps of that lane only, for which it goes before the common value.
  Status SetInput(std::string_view name, std::span<const std::byte> data, StepLane lane = {});

  Status Run(const StepRows& rows);

  // Copies an output of the last step to `data`, whose size is that of the output's type at the
  // extents of that step. After Start() there is none until Run(). With a lane: of the step that
  // was finished in it last.
  Status ReadOutput(std::string_view name, std::span<std::byte> data, StepLane lane = {});

  [[nodiscard]] size_t lanes() const { return lanes_.size(); }
  // Begins a step in a lane without one, for slots without one. Until Finish() these slots must not
  // be used, and `past` is as before.
  Status Start(size_t lane, const StepRows& rows);
  // Waits for the step of a lane. Errors: those that Run() would have returned.
  Status Finish(size_t lane);
  // Waits until the devices have nothing to do. For other users of the devices.
  void WaitForSteps();

  // Fills a state with zeros on every device that holds it.
  Status ClearState(std::string_view name);
  // Copies all bytes of a state, which a plan that uses it has created (Prepare). `data` has the
  // size of the state.
  [[nodiscard]] uint64_t StateBytes(std::string_view name) const {
    return resources_.StateBytes(name);
  }
  Status ReadState(std::string_view name, std::span<std::byte> data);
  Status WriteState(std::string_view name, std::span<const std::byte> data);

  // The number of cached rows of a slot. ForgetSlot() moves no data: old rows become invisible.
  [[nodiscard]] int32_t past(int32_t slot) const { return past_[static_cast<size_t>(slot)]; }
  void ForgetSlot(int32_t slot);

  // The following five block until the data is copied. `p` is 0 to past(slot). A position that the
  // slot cannot go back to (slot_log.h) is snapshot.rewind. A graph with states that are not slots'
  // is snapshot.state.
  //
  // Copies what the slot held at position p.
  Result<Snapshot> Save(int32_t slot, int32_t p, SnapshotContent content = SnapshotContent::kAll);
  // The complete snapshot that a snapshot of rings stands for, while its slot holds the other rows.
  // Errors: snapshot.stale.
  Result<Snapshot> Complete(const Snapshot& rings);
  // A copy of the rings of a snapshot, complete or not.
  [[nodiscard]] Result<Snapshot> CopyRings(const Snapshot& snapshot) const;
  // Makes a snapshot of rings one of a slot that holds the other rows up to its position.
  // Errors: snapshot.mismatch, snapshot.stale.
  Status Adopt(int32_t slot, Snapshot& rings) const;
  // Whether Restore() can put a snapshot into the slot. Errors: snapshot.mismatch, snapshot.stale.
  [[nodiscard]] Status CheckFits(int32_t slot, const Snapshot& snapshot) const;
  // Replaces the content of the slot and sets past(slot) to the snapshot's position. Errors:
  // snapshot.mismatch; snapshot.stale. If a device fails half-way the slot is forgotten.
  Status Restore(int32_t slot, const Snapshot& snapshot);
  // Replaces the content of slot `to` by that of `from`.
  Status Fork(int32_t from, int32_t to);
  // Goes back to position p.
  Status SetPast(int32_t slot, int32_t p);
  // Whether SetPast() can.
  [[nodiscard]] bool CanGoBack(int32_t slot, int32_t p) const;

  // Compiles the plan of a bucket now instead of on first use. `wanted`: the wanted rows, with
  // DemandMode::kPerOutput.
  Status Prepare(int64_t rows, DemandMode demand, GraphHandle graph = {}, int64_t wanted = 1);

  struct RefusedGraph {
    GraphHandle graph;
    Error error;  // IsRefusal()
  };
  // The bytes that each device will hold in addition to its present ones once every graph has run
  // its largest step. Allocates nothing on a device. With `refused`, graphs that the devices refuse
  // are returned there and not counted: whether one is needed shows when it is to run. The error of
  // the first if all are refused, or if any is and `refused` is null.
  [[nodiscard]] Result<std::vector<MemoryNeed>> PredictMemory(
      std::vector<RefusedGraph>* refused = nullptr) const;

  [[nodiscard]] std::span<const SessionGraph> graphs() const { return graphs_; }
  [[nodiscard]] const Graph& graph(GraphHandle graph = {}) const {
    return graphs_[graph.index].graph;
  }
  [[nodiscard]] int64_t slots() const { return std::ssize(past_); }
  // The largest step of a graph.
  [[nodiscard]] int64_t max_t(GraphHandle graph = {}) const { return graphs_[graph.index].MaxT(); }
  // The plugin of the main device, for messages.
  [[nodiscard]] const std::string& plugin_name() const {
    return resources_.devices().front()->plugin().name();
  }
  // The placement of the plan that was compiled last.
  [[nodiscard]] const PlacementReport& placement() const { return placement_; }
  Result<SessionStats> Stats();

 private:
  struct Plan {
    size_t graph = 0;
    Bucket bucket;
    bool may_cut = false;          // asked for when it was compiled
    bool wants_last_rows = false;  // Program::wants_last_rows
    std::unique_ptr<BoundPlan> bound;

    // A plan that might have been cut and was not serves all steps.
    [[nodiscard]] bool Serves(bool may_be_cut) const {
      return may_cut == may_be_cut || (may_cut && !wants_last_rows);
    }
  };

  // A place for a step in flight.
  class Lane final : public PipelinedStep {
   public:
    explicit Lane(std::span<Device* const> devices) : devices_(devices) {}
    [[nodiscard]] size_t segment_count() const override { return plan->segment_count(); }
    [[nodiscard]] size_t worker_of(size_t segment) const override;
    Status RunSegment(size_t segment) override { return plan->RunSegment(segment, step); }

    const BoundPlan* plan = nullptr;  // of the last step
    LaneStep step;
    bool started = false;  // and not finished

   private:
    std::span<Device* const> devices_;
  };

  Session(std::vector<SessionGraph> graphs, size_t slots, HostTables tables, SessionOptions options,
          Extents largest, WeightNames in_products);
  // Leaves tables that are read by row, and that no graph multiplies, out of the graphs.
  static Result<HostTables> TakeTables(std::vector<SessionGraph>& graphs,
                                       const WeightNames& in_products, const WeightSource& weights);
  static Result<SlotStates> FindSlotStates(std::span<const SessionGraph> graphs, size_t slots);

  Status CheckRows(const StepRows& rows);
  // Checks a step, finds its plan, and notes that its rows will be written. `alone`: no other step
  // runs before it ends.
  Result<BoundPlan*> BeginStep(const StepRows& rows, bool alone);
  // Whether a step in flight has rows of the slot.
  [[nodiscard]] bool IsInFlight(int32_t slot) const;
  [[nodiscard]] Status CheckLane(size_t lane, bool started) const;
  // The rows of a step that are wanted.
  enum class Wanted : uint8_t {
    kEach,
    kLast,  // the last ones of their slots, each once, in caches that have not wrapped
    kSome
  };
  [[nodiscard]] Wanted WantedOf(const StepRows& rows) const;
  // Whether plans for such steps may have what wanted rows alone need as a segment of its own.
  [[nodiscard]] bool MayCutWantedRows(size_t graph, const Bucket& bucket, Wanted wanted) const;
  [[nodiscard]] Result<Program> BuildProgramFor(size_t graph, const Bucket& bucket,
                                                bool wanted_rows_apart) const;
  // The program of the largest step of a graph.
  [[nodiscard]] Result<Program> BuildLargestProgram(size_t graph) const;
  // The first plan of a graph for prompts creates the arenas of the largest one, so that growing
  // prompts do not each create another one.
  Status MakeArenasFor(size_t graph, const Bucket& bucket);
  // The plan for `rows` rows.
  Result<BoundPlan*> FindOrCompilePlan(size_t graph, int64_t rows, DemandMode demand,
                                       int64_t wanted_count, Wanted wanted);

  [[nodiscard]] Status CheckSlot(int32_t slot) const;
  [[nodiscard]] Status CheckPosition(int32_t slot, int32_t p) const;
  [[nodiscard]] const SlotState& SlotStateOf(std::string_view name) const;
  [[nodiscard]] SnapshotInfo Describe(int32_t slot, int32_t p, SnapshotContent content) const;
  Status PrepareStates();

  std::vector<SessionGraph> graphs_;
  std::vector<bool> has_arenas_;  // by graph: MakeArenasFor() is done
  PlacementPolicy policy_;
  StepLimits limits_;
  Result<SlotStates> slot_states_;
  std::shared_ptr<const int> identity_;
  std::vector<int32_t> past_;                    // by slot
  std::vector<int32_t> next_past_;               // memory of CheckRows
  std::vector<int32_t> past_of_wanted_;          // by slot: rows before the last one of the step
  std::vector<int64_t> fewest_unwindowed_rows_;  // by graph (wanted_rows.h)
  std::vector<SlotLog> logs_;                    // by slot
  PlacementReport placement_;
  DeviceResources resources_;  // outlives the plans
  KeptInputs kept_inputs_;
  HostTables tables_;
  std::vector<Plan> plans_;
  BoundPlan* last_plan_ = nullptr;
  StepObserver* observer_;
  uint64_t steps_ = 0;
  std::deque<Lane> lanes_;
  std::unique_ptr<StepPipeline> pipeline_;  // null until a step is started in a lane
};

}  // namespace rullama
