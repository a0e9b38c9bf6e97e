#include "core/runtime/bound_plan.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rullama {
namespace {

Extents ExtentsOf(const StepRows& rows) {
  return {std::ssize(rows.tokens), std::ssize(rows.wanted)};
}

}  // namespace

Result<std::unique_ptr<BoundPlan>> BoundPlan::Compile(Program program, DeviceResources& resources,
                                                      KeptInputs& kept, const HostTables& tables,
                                                      RecordTimes record_times) {
  std::unique_ptr<BoundPlan> plan(new BoundPlan());
  plan->segments_.reserve(program.segments.size());
  for (PlannedSegment& planned : program.segments) {
    RL_RETURN_IF_ERROR(plan->AddSegment(std::move(planned), resources, kept, tables, record_times));
  }
  return plan;
}

Status BoundPlan::AddSegment(PlannedSegment planned, DeviceResources& resources, KeptInputs& kept,
                             const HostTables& tables, RecordTimes record_times) {
  const int index = planned.device;
  BoundSegment segment;
  segment.device_index = static_cast<size_t>(index);
  segment.device = resources.devices()[segment.device_index];
  segment.wanted_only = planned.wanted_only;
  segment.continues = planned.wanted_only && !segments_.empty() &&
                      segments_.back().device_index == segment.device_index;
  const std::vector<std::string> shared = SharedNames(segment, planned.graph);
  RL_ASSIGN_OR_RETURN(const auto storage,
                      resources.AssignStorage(index, planned.graph, planned.memory, shared));
  RL_ASSIGN_OR_RETURN(segment.plan, segment.device->Compile(planned.graph, storage, record_times));
  for (const Value& value : planned.graph.values) {
    if (value.lifetime != Lifetime::kInput) continue;
    if (std::ranges::find(shared, value.name) != shared.end()) continue;
    if (auto reader = tables.ReaderOf(value.name, planned.graph.max_t)) {
      segment.tables.push_back({std::move(reader), &resources.input(index, value)});
      continue;
    }
    RL_RETURN_IF_ERROR(BindInput(value, resources, kept, segment));
  }
  for (const ImportBinding& import : segment.imports) {
    const auto bytes = static_cast<size_t>(import.type.BytesAt(planned.graph.MaxExtents()));
    staging_.resize(std::max(staging_.size(), bytes));
  }
  BindOutputs(planned.graph, resources, segment);
  segment.graph = std::move(planned.graph);
  segments_.push_back(std::move(segment));
  return OkStatus();
}

void BoundPlan::BindOutputs(const Graph& graph, const DeviceResources& resources,
                            BoundSegment& segment) {
  SegmentRecord& record = segment.record;
  uint64_t record_end = 0;
  for (const Output& output : graph.outputs) {
    const TensorType& type = graph.type(output.value);
    const OutputPlace& place =
        resources.output(static_cast<int>(segment.device_index), output.name, type);
    const uint64_t bytes = type.BytesAt(graph.MaxExtents());
    segment.outputs.push_back({output.name, place, type, value_bytes_});
    if (!place.in_record) {
      value_bytes_ += bytes;
      continue;
    }
    if (record.place.buffer == nullptr || place.offset < record.place.offset) record.place = place;
    record_end = std::max(record_end, place.offset + bytes);
  }
  if (record.place.buffer == nullptr) return;
  record.offset = value_bytes_;
  record.copy.resize(static_cast<size_t>(record_end - record.place.offset));
  value_bytes_ += record.copy.size();
  for (OutputBinding& output : segment.outputs) {
    if (!output.place.in_record) continue;
    output.offset = record.offset + static_cast<size_t>(output.place.offset - record.place.offset);
  }
}

const BoundPlan::RowSource* BoundPlan::FindRowSource(std::string_view input) {
  static constexpr std::array<std::pair<std::string_view, RowSource>, 6> kSources = {
      {{input_names::kTokens, RowSource::kTokens},
       {input_names::kPos, RowSource::kPos},
       {input_names::kSlot, RowSource::kSlot},
       {input_names::kPast, RowSource::kPast},
       {input_names::kRows, RowSource::kWanted},
       {input_names::kPastOfWanted, RowSource::kPastOfWanted}}};
  for (const auto& [name, source] : kSources) {
    if (name == input) return &source;
  }
  return nullptr;
}

BoundPlan::FoundExport BoundPlan::FindExport(std::string_view name) const {
  for (auto exporter = segments_.rbegin(); exporter != segments_.rend(); ++exporter) {
    const auto output = std::ranges::find(exporter->outputs, name, &OutputBinding::name);
    if (output != exporter->outputs.end()) return {&*exporter, &*output};
  }
  return {};
}

std::vector<std::string> BoundPlan::SharedNames(const BoundSegment& segment,
                                                const Graph& graph) const {
  std::vector<std::string> names;
  if (!segment.continues) return names;
  for (const Value& value : graph.values) {
    if (value.lifetime != Lifetime::kInput) continue;
    const FoundExport found = FindExport(value.name);
    if (found.segment == nullptr || found.segment->device_index != segment.device_index) continue;
    names.push_back(value.name);
  }
  return names;
}

Status BoundPlan::BindInput(const Value& input, const DeviceResources& resources, KeptInputs& kept,
                            BoundSegment& segment) {
  const DeviceBuffer& buffer = resources.input(static_cast<int>(segment.device_index), input);
  if (const RowSource* source = FindRowSource(input.name)) {
    segment.rows.push_back({*source, &buffer});
    return OkStatus();
  }
  if (const FoundExport found = FindExport(input.name); found.segment != nullptr) {
    segment.imports.push_back({input.name, found.segment->device, found.output->place, &buffer,
                               input.type, found.output->offset});
    return OkStatus();
  }
  const KeptInput* value = kept.Find(input.name);
  if (value == nullptr) {
    return MakeError(ErrorKind::kRuntime, "session.internal",
                     "input '{}' of a segment is neither an input of the graph nor an output of an "
                     "earlier segment",
                     input.name);
  }
  segment.kept.push_back({value, input.type, &kept.TargetOf(buffer)});
  return OkStatus();
}

Status BoundPlan::CheckKeptInputs(const Extents& extents, StepLane lane) const {
  for (const BoundSegment& segment : segments_) {
    for (const KeptBinding& kept : segment.kept) {
      const size_t bytes = kept.input->For(lane).bytes.size();
      if (bytes == 0 || bytes == kept.type.BytesAt(extents)) continue;
      return MakeError(ErrorKind::kRuntime, "session.internal",
                       "input '{}' was set to {} bytes, but is {} in a step of {} rows, {} of "
                       "them wanted",
                       kept.input->name, bytes, ToString(kept.type), extents.t, extents.r);
    }
  }
  return OkStatus();
}

Status BoundPlan::WriteInputs(size_t index, const StepRows& rows, const CachedRows& cached) const {
  do {
    RL_RETURN_IF_ERROR(WriteInputsOf(segments_[index], rows, cached, {}));
    ++index;
  } while (index < segments_.size() && segments_[index].continues);
  return OkStatus();
}

Status BoundPlan::WriteInputsOf(const BoundSegment& segment, const StepRows& rows,
                                const CachedRows& cached, StepLane lane) {
  // Indexed by RowSource.
  const std::array<std::span<const int32_t>, 6> sources = {
      rows.tokens, rows.pos, rows.slot, cached.past, rows.wanted, cached.past_of_wanted};
  for (const auto& [source, buffer] : segment.rows) {
    const std::span<const int32_t> data = sources[static_cast<size_t>(source)];
    if (data.empty()) continue;  // no row is wanted
    RL_RETURN_IF_ERROR(segment.device->Write(*buffer, 0, std::as_bytes(data)));
  }
  for (const TableBinding& table : segment.tables) {
    RL_ASSIGN_OR_RETURN(const auto numbers, table.reader->Read(rows.tokens));
    RL_RETURN_IF_ERROR(segment.device->Write(*table.buffer, 0, std::as_bytes(numbers)));
  }
  for (const KeptBinding& kept : segment.kept) {
    RL_RETURN_IF_ERROR(KeptInputs::WriteTo(*kept.target, *segment.device, kept.input->For(lane)));
  }
  return OkStatus();
}

Status BoundPlan::CopyImports(const BoundSegment& segment, const Extents& extents,
                              StepObserver* observer) {
  for (const ImportBinding& import : segment.imports) {
    const SpanTimer timer(observer);
    const auto bytes = std::span(staging_).first(static_cast<size_t>(import.type.BytesAt(extents)));
    RL_RETURN_IF_ERROR(import.from_device->Read(*import.from.buffer, import.from.offset, bytes));
    RL_RETURN_IF_ERROR(segment.device->Write(*import.to, 0, bytes));
    timer.End({.kind = StepSpan::Kind::kCopy, .name = import.name, .bytes = bytes.size()});
  }
  return OkStatus();
}

Status BoundPlan::ExecuteSegment(const BoundSegment& segment, const StepRows& rows,
                                 StepObserver* observer) {
  Extents extents = ExtentsOf(rows);
  if (segment.wanted_only) extents.t = extents.r;
  const SpanTimer timer(observer);
  RL_RETURN_IF_ERROR(segment.device->Execute(segment.plan, extents, &segment.graph));
  if (observer == nullptr) return OkStatus();
  RL_RETURN_IF_ERROR(segment.device->Wait());
  timer.End({.kind = StepSpan::Kind::kSegment,
             .name = segment.graph.name,
             .device = segment.device_index,
             .device_name = segment.device->plugin().name(),
             .rows = extents.t,
             .wanted = extents.r,
             .ops = segment.graph.ops.size()});
  if (!observer->wants_ops()) return OkStatus();
  const StepRows wanted = segment.wanted_only ? rows.AtWanted() : StepRows();
  const SegmentRun run{segment.graph, segment.wanted_only ? wanted : rows, segment.device_index,
                       segment.device->plugin().name()};
  return segment.device->ReadTimes(segment.plan, segment.graph,
                                   [&](const OpTime& time) { observer->OnOp(run, time); });
}

Status BoundPlan::Execute(const StepRows& rows, const CachedRows& cached, StepObserver* observer) {
  const Extents extents = ExtentsOf(rows);
  RL_RETURN_IF_ERROR(CheckKeptInputs(extents, {}));
  for (size_t i = 0; i < segments_.size(); ++i) {
    BoundSegment& segment = segments_[i];
    segment.record.is_read = false;
    // Writing waits for what the device still runs. So a segment of the host that comes first works
    // while the device of the next one finishes the step before, and what continues a segment gets
    // its inputs with it.
    if (!segment.continues) {
      const SpanTimer timer(observer);
      RL_RETURN_IF_ERROR(WriteInputs(i, rows, cached));
      timer.End({.kind = StepSpan::Kind::kInputs, .name = {}});
    }
    RL_RETURN_IF_ERROR(CopyImports(segment, extents, observer));
    RL_RETURN_IF_ERROR(ExecuteSegment(segment, rows, observer));
  }
  extents_ = extents;
  return OkStatus();
}

Status BoundPlan::Prepare(LaneStep& step) const {
  step.values.resize(std::max(step.values.size(), value_bytes_));
  return CheckKeptInputs(ExtentsOf(step.rows), step.lane);
}

Status BoundPlan::RunSegment(size_t index, LaneStep& step) const {
  const BoundSegment& segment = segments_[index];
  const Extents extents = ExtentsOf(step.rows);
  const auto part = [&](const auto& binding) {
    return std::span(step.values)
        .subspan(binding.offset, static_cast<size_t>(binding.type.BytesAt(extents)));
  };
  RL_RETURN_IF_ERROR(WriteInputsOf(segment, step.rows, {step.past, {}}, step.lane));
  for (const ImportBinding& import : segment.imports) {
    RL_RETURN_IF_ERROR(segment.device->Write(*import.to, 0, part(import)));
  }
  RL_RETURN_IF_ERROR(ExecuteSegment(segment, step.rows, nullptr));
  for (const OutputBinding& output : segment.outputs) {
    if (output.place.in_record) continue;
    RL_RETURN_IF_ERROR(
        segment.device->Read(*output.place.buffer, output.place.offset, part(output)));
  }
  if (const SegmentRecord& record = segment.record; record.place.buffer != nullptr) {
    RL_RETURN_IF_ERROR(
        segment.device->Read(*record.place.buffer, record.place.offset,
                             std::span(step.values).subspan(record.offset, record.copy.size())));
  }
  return segment.device->Wait();  // also where nothing is read
}

Status BoundPlan::ReadOutput(std::string_view name, std::span<std::byte> data) {
  RL_ASSIGN_OR_RETURN(const FoundOutput found, FindOutput(name, extents_, data.size()));
  BoundSegment& segment = segments_[found.segment];
  const OutputPlace& place = found.output->place;
  if (!place.in_record) return segment.device->Read(*place.buffer, place.offset, data);
  SegmentRecord& record = segment.record;
  if (!record.is_read) {
    RL_RETURN_IF_ERROR(
        segment.device->Read(*record.place.buffer, record.place.offset, record.copy));
    record.is_read = true;
  }
  std::ranges::copy(std::span(record.copy).subspan(record.OffsetOf(*found.output), data.size()),
                    data.begin());
  return OkStatus();
}

Status BoundPlan::CopyOutput(std::string_view name, const LaneStep& step,
                             std::span<std::byte> data) const {
  RL_ASSIGN_OR_RETURN(const FoundOutput found, FindOutput(name, ExtentsOf(step.rows), data.size()));
  std::ranges::copy(std::span(step.values).subspan(found.output->offset, data.size()),
                    data.begin());
  return OkStatus();
}

Result<BoundPlan::FoundOutput> BoundPlan::FindOutput(std::string_view name, const Extents& extents,
                                                     size_t bytes) const {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::vector<OutputBinding>& outputs = segments_[i].outputs;
    const auto output = std::ranges::find(outputs, name, &OutputBinding::name);
    if (output == outputs.end()) continue;
    const uint64_t expected = output->type.BytesAt(extents);
    if (expected != bytes) {
      return MakeError(ErrorKind::kRuntime, "session.internal",
                       "output '{}' has {} bytes, asked for {}", name, expected, bytes);
    }
    return FoundOutput{i, &*output};
  }
  return MakeError(ErrorKind::kRuntime, "session.internal", "the last step has no output '{}'",
                   name);
}

Status BoundPlan::AddStats(rl_plan_stats& sum) const {
  for (const BoundSegment& segment : segments_) {
    RL_ASSIGN_OR_RETURN(const rl_plan_stats counters, segment.device->Stats(segment.plan));
    sum.compilations += counters.compilations;
    sum.allocations += counters.allocations;
    sum.recordings += counters.recordings;
    sum.dispatches += counters.dispatches;
    sum.workspace_bytes += counters.workspace_bytes;
    sum.pending += counters.pending;
  }
  return OkStatus();
}

}  // namespace rullama
