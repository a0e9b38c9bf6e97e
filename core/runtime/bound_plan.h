// A graph compiled for one bucket of steps, with every input, import and output resolved to the
// buffers it is copied between. After its second execution a plan allocates nothing on the host.
//
// Ownership: owns the plans of the devices; borrows the devices, DeviceResources and KeptInputs,
// which outlive it. Thread safety: one thread at a time, but for RunSegment(). Errors: those of the
// passes and devices; session.internal for inputs of a wrong size. Execute blocks until the last
// segment was started; ReadOutput and RunSegment block until the values are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/passes/bucket.h"
#include "core/passes/pipeline.h"
#include "core/plugin/device.h"
#include "core/runtime/device_resources.h"
#include "core/runtime/kept_inputs.h"
#include "core/runtime/step_observer.h"
#include "core/runtime/step_rows.h"
#include "core/runtime/table_reader.h"

namespace rullama {

// The numbers of cached rows of each slot: before the step, and before its last row in the step.
// The latter only plans read that run wanted rows apart.
struct CachedRows {
  std::span<const int32_t> past;
  std::span<const int32_t> past_of_wanted;
};

// The memory of the host that a step needs to run concurrently with steps of other lanes: between
// its segments the buffers on the devices belong to others.
struct LaneStep {
  StepRows rows;
  std::vector<int32_t> past;  // the number of cached rows of each slot
  size_t lane = 0;
  std::vector<std::byte> values;  // what its segments export and give, where the plan has it
};

class BoundPlan {
 public:
  // Creates what the program needs in `resources` and compiles its segments.
  static Result<std::unique_ptr<BoundPlan>> Compile(Program program, DeviceResources& resources,
                                                    KeptInputs& kept, const HostTables& tables,
                                                    RecordTimes record_times);

  // Runs a step that fits the bucket the program was built for. With an observer it waits for each
  // segment.
  Status Execute(const StepRows& rows, const CachedRows& cached, StepObserver* observer);

  // Copies an output of the last successful Execute to `data`, whose size is that of the output's
  // type at the extents of that step. The first one of a segment's result record reads all of it.
  Status ReadOutput(std::string_view name, std::span<std::byte> data);

  // The segments, which run one after another, and the device of each.
  [[nodiscard]] size_t segment_count() const { return segments_.size(); }
  [[nodiscard]] const Device* device_of(size_t segment) const { return segments_[segment].device; }
  // Checks a step that RunSegment() is to run, and makes room for its values.
  Status Prepare(LaneStep& step) const;
  // Runs a segment of a prepared step whose earlier segments have run. Different segments may run
  // at the same time, for different steps, if their devices differ.
  Status RunSegment(size_t index, LaneStep& step) const;
  // ReadOutput() for a step all of whose segments have run.
  Status CopyOutput(std::string_view name, const LaneStep& step, std::span<std::byte> data) const;

  // Adds the counters of the devices' plans to `sum`; struct_size is left alone.
  Status AddStats(rl_plan_stats& sum) const;

 private:
  // An input that every step writes.
  enum class RowSource : uint8_t { kTokens, kPos, kSlot, kPast, kWanted, kPastOfWanted };
  struct RowBinding {
    RowSource source;
    const DeviceBuffer* buffer;
  };
  // An input that every step fills with the rows of a table that its tokens name.
  struct TableBinding {
    std::unique_ptr<TableReader> reader;
    const DeviceBuffer* buffer;
  };
  struct KeptBinding {
    const KeptInput* input;
    TensorType type;  // of the plan, which may differ from that of another graph
    KeptTarget* target;
  };
  // An output of an earlier segment that is an input of this one.
  struct ImportBinding {
    std::string name;
    Device* from_device;
    OutputPlace from;
    const DeviceBuffer* to;
    TensorType type;
    size_t offset;  // in LaneStep::values
  };
  struct OutputBinding {
    std::string name;
    OutputPlace place;
    TensorType type;
    size_t offset;  // in LaneStep::values
  };
  // The outputs of a segment that lie in the result record of its device.
  struct SegmentRecord {
    OutputPlace place;            // without a buffer: there are none
    size_t offset = 0;            // in LaneStep::values
    std::vector<std::byte> copy;  // of the last step outside lanes
    bool is_read = false;         // whether `copy` has the outputs of that step

    // An output's place in `copy`.
    [[nodiscard]] size_t OffsetOf(const OutputBinding& output) const {
      return output.offset - offset;
    }
  };
  struct BoundSegment {
    Device* device = nullptr;
    size_t device_index = 0;
    bool wanted_only = false;  // Segment::wanted_only
    // Its ops run on wanted rows only and its device is that of the segment before, whose outputs
    // it reads where they lie.
    bool continues = false;
    Graph graph;  // for messages of the device
    DevicePlan plan;
    std::vector<RowBinding> rows;
    std::vector<TableBinding> tables;
    std::vector<KeptBinding> kept;
    std::vector<ImportBinding> imports;
    std::vector<OutputBinding> outputs;
    SegmentRecord record;
  };

  BoundPlan() = default;
  static const RowSource* FindRowSource(std::string_view input);
  Status AddSegment(PlannedSegment planned, DeviceResources& resources, KeptInputs& kept,
                    const HostTables& tables, RecordTimes record_times);
  // The latest earlier segment and its output of this name; both null if there is none.
  struct FoundExport {
    const BoundSegment* segment = nullptr;
    const OutputBinding* output = nullptr;
  };
  [[nodiscard]] FoundExport FindExport(std::string_view name) const;
  // The inputs of a segment that continues which lie in outputs of earlier segments on its device.
  [[nodiscard]] std::vector<std::string> SharedNames(const BoundSegment& segment,
                                                     const Graph& graph) const;
  void BindOutputs(const Graph& graph, const DeviceResources& resources, BoundSegment& segment);
  Status BindInput(const Value& input, const DeviceResources& resources, KeptInputs& kept,
                   BoundSegment& segment);
  [[nodiscard]] Status CheckKeptInputs(const Extents& extents, StepLane lane) const;
  // Writes the inputs of a segment, and of those that continue it, that do not come from others.
  Status WriteInputs(size_t index, const StepRows& rows, const CachedRows& cached) const;
  static Status WriteInputsOf(const BoundSegment& segment, const StepRows& rows,
                              const CachedRows& cached, StepLane lane);
  Status CopyImports(const BoundSegment& segment, const Extents& extents, StepObserver* observer);
  static Status ExecuteSegment(const BoundSegment& segment, const StepRows& rows,
                               StepObserver* observer);
  struct FoundOutput {
    size_t segment;
    const OutputBinding* output;
  };
  // The output of this name and its bytes at these extents.
  [[nodiscard]] Result<FoundOutput> FindOutput(std::string_view name, const Extents& extents,
                                               size_t bytes) const;

  std::vector<BoundSegment> segments_;
  size_t value_bytes_ = 0;          // of LaneStep::values
  std::vector<std::byte> staging_;  // has room for the largest import
  Extents extents_;                 // of the last successful step
};

}  // namespace rullama
