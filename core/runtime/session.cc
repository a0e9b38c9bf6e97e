#include "core/runtime/session.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/checked_math.h"
#include "core/runtime/memory_need.h"

namespace rullama {
namespace {

Error InternalError(std::string message) {
  return {ErrorKind::kRuntime, "session.internal", std::move(message)};
}

SupportQuery QueryOf(const std::vector<Device*>& devices) {
  return [&devices](int device, const Graph& graph) -> Result<std::vector<std::string>> {
    RL_ASSIGN_OR_RETURN(const auto support, devices[static_cast<size_t>(device)]->QueryOps(graph));
    std::vector<std::string> reasons;
    reasons.reserve(support.size());
    for (const OpSupport& op : support) {
      std::string reason;
      if (!op.supported) reason = op.reason.empty() ? "no reason given" : op.reason;
      reasons.push_back(std::move(reason));
    }
    return reasons;
  };
}

}  // namespace

Session::Session(std::vector<SessionGraph> graphs, const WeightSource& weights,
                 SessionOptions options)
    : graphs_(std::move(graphs)), weights_(weights), options_(std::move(options)) {
  largest_ = {options_.limits.max_rows, options_.limits.max_wanted};
  for (SessionGraph& graph : graphs_) {
    if (graph.buckets.empty()) graph.buckets = DefaultBuckets(options_.limits.max_rows);
    largest_.t = std::max(largest_.t, graph.buckets.back());
    AddWeightsInProducts(graph.graph, in_products_);
  }
  arenas_.resize(options_.devices.size());
  allocated_bytes_.resize(options_.devices.size());
}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Create(std::vector<SessionGraph> graphs,
                                                 const WeightSource& weights,
                                                 SessionOptions options) {
  if (graphs.empty() || options.devices.empty() || options.limits.max_rows < 1 ||
      options.limits.max_wanted < 1) {
    return tl::unexpected(InternalError("a session needs a graph, a device, rows and wanted rows"));
  }
  const Graph& first = graphs.front().graph;
  const ValueId past = first.Find(input_names::kPast);
  if (past == kNoValue || !first.type(past).rows().IsConstant()) {
    return tl::unexpected(InternalError("the graph has no input 'past' with a slot count"));
  }
  const auto slots = static_cast<size_t>(first.type(past).rows().constant);
  std::unique_ptr<Session> session(new Session(std::move(graphs), weights, std::move(options)));
  session->past_.assign(slots, 0);
  return session;
}

Result<std::unique_ptr<Session>> Session::Create(Graph graph, const WeightSource& weights,
                                                 SessionOptions options) {
  std::vector<SessionGraph> graphs;
  graphs.push_back({.graph = std::move(graph)});
  return Create(std::move(graphs), weights, std::move(options));
}

// ---- Compiling ----------------------------------------------------------------------------------

Result<Session::Plan*> Session::PlanFor(size_t graph, int64_t rows, DemandMode demand) {
  Bucket bucket;
  bucket.demand = demand;
  RL_ASSIGN_OR_RETURN(bucket.max_t, ChooseBucket(graphs_[graph].buckets, rows));
  bucket.max_r =
      demand == DemandMode::kPerOutput ? std::min(options_.limits.max_wanted, bucket.max_t) : 0;
  for (const auto& plan : plans_) {
    if (plan->graph == graph && plan->bucket == bucket) return plan.get();
  }
  RL_ASSIGN_OR_RETURN(Plan plan, Compile(graph, bucket));
  plans_.push_back(std::make_unique<Plan>(std::move(plan)));
  ++stats_.plans;
  return plans_.back().get();
}

Result<Session::Plan> Session::Compile(size_t graph, const Bucket& bucket) {
  PipelineOptions options;
  options.demand = bucket.demand;
  options.max_t = bucket.max_t;
  options.max_r = bucket.max_r;
  options.policy = options_.policy;
  for (const Device* device : options_.devices) {
    options.alignments.push_back(device->description().alignment);
  }
  RL_ASSIGN_OR_RETURN(Program program,
                      BuildProgram(graphs_[graph].graph, QueryOf(options_.devices), options));
  placement_ = std::move(program.report);
  RL_RETURN_IF_ERROR(CheckMemory(program));
  Plan plan;
  plan.graph = graph;
  plan.bucket = bucket;
  for (PlannedSegment& planned : program.segments) {
    RL_ASSIGN_OR_RETURN(const auto storage,
                        PlaceValues(planned.device, planned.graph, planned.memory));
    Device& device = *options_.devices[static_cast<size_t>(planned.device)];
    RL_ASSIGN_OR_RETURN(DevicePlan compiled, device.Compile(planned.graph, storage));
    plan.segments.push_back({planned.device, std::move(planned.graph), std::move(compiled)});
  }
  return plan;
}

// Checks that every device has free memory for the weights, states and arenas of its segments that
// it does not hold yet.
Status Session::CheckMemory(const Program& program) {
  std::vector<MemoryNeed> needs(options_.devices.size());
  std::set<std::pair<int, std::string>> counted;
  for (const auto& [device, graph, memory] : program.segments) {
    MemoryNeed& need = needs[static_cast<size_t>(device)];
    for (const Value& value : graph.values) {
      const bool constant = value.lifetime == Lifetime::kConstant;
      if (!constant && value.lifetime != Lifetime::kState) continue;
      const Value& owner = constant ? value : graph.value(value.state);
      const std::pair key(device, owner.name);
      const bool held = constant ? weight_handles_.contains(key) : states_.contains(key);
      if (held || !counted.insert(key).second) continue;
      if (!constant) {
        need.states += owner.type.BytesAt({});
        continue;
      }
      RL_ASSIGN_OR_RETURN(const WeightDesc desc, DescribeWeight(value));
      RL_ASSIGN_OR_RETURN(const WeightLayout layout,
                          options_.devices[static_cast<size_t>(device)]->LayoutWeight(desc));
      need.weights += layout.bytes;
      if (layout.bytes > 0)
        need.weight_elements += static_cast<uint64_t>(value.type.ElementsAt({}));
    }
    const bool has_arena = std::ranges::any_of(
        arenas_[static_cast<size_t>(device)],
        [bytes = memory.arena_bytes](const auto& arena) { return arena.first >= bytes; });
    if (!has_arena) need.work = std::max(need.work, memory.arena_bytes);
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    RL_RETURN_IF_ERROR(
        CheckDeviceMemory(options_.devices[i]->description(), needs[i], allocated_bytes_[i]));
    allocated_bytes_[i] += needs[i].total();
  }
  return OkStatus();
}

Result<std::vector<Storage>> Session::PlaceValues(int device, const Graph& graph,
                                                  const MemoryPlan& memory) {
  DeviceBuffer* arena = nullptr;
  if (memory.arena_bytes > 0) {
    RL_ASSIGN_OR_RETURN(arena, Arena(device, memory.arena_bytes));
  }
  std::vector<Storage> storage(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    Storage& place = storage[i];
    place.bytes = value.type.BytesAt(graph.MaxExtents());
    switch (value.lifetime) {
      case Lifetime::kConstant: {
        place.lifetime = RL_LIFETIME_CONSTANT;
        RL_ASSIGN_OR_RETURN(place.weight, Weight(device, value));
        break;
      }
      case Lifetime::kState: {
        place.lifetime = RL_LIFETIME_STATE;
        RL_ASSIGN_OR_RETURN(place.buffer, State(device, graph.value(value.state)));
        break;
      }
      case Lifetime::kInput: {
        place.lifetime = RL_LIFETIME_INPUT;
        RL_ASSIGN_OR_RETURN(const IoBuffer* io, Io(input_buffers_, device, value.name, value.type));
        place.buffer = io->buffer.get();
        break;
      }
      case Lifetime::kTransient:
        if (arena != nullptr) place.buffer = arena->get();
        place.offset = memory.offset[i];
        break;
    }
  }
  for (const Output& output : graph.outputs) {
    const Value& value = graph.value(output.value);
    RL_ASSIGN_OR_RETURN(const IoBuffer* io, Io(output_buffers_, device, output.name, value.type));
    Storage& place = storage[output.value];
    if (value.lifetime != Lifetime::kTransient || place.lifetime == RL_LIFETIME_OUTPUT) {
      return tl::unexpected(InternalError(
          fmt::format("output '{}' is not a value of its own; copy it first", output.name)));
    }
    place.lifetime = RL_LIFETIME_OUTPUT;
    place.buffer = io->buffer.get();
    place.offset = 0;
  }
  return storage;
}

Result<DeviceBuffer*> Session::Arena(int device, uint64_t bytes) {
  auto& arenas = arenas_[static_cast<size_t>(device)];
  // Steps run one after another, so plans can share any arena that is large enough.
  for (auto& [size, buffer] : arenas) {
    if (size >= bytes) return buffer.get();
  }
  RL_ASSIGN_OR_RETURN(
      DeviceBuffer buffer,
      options_.devices[static_cast<size_t>(device)]->CreateBuffer(bytes, RL_BUFFER_ARENA));
  stats_.arena_bytes += bytes;
  arenas.emplace_back(bytes, std::make_unique<DeviceBuffer>(std::move(buffer)));
  return arenas.back().second.get();
}

Result<rl_buffer*> Session::State(int device, const Value& state) {
  const std::pair key(device, state.name);
  if (const auto found = states_.find(key); found != states_.end()) {
    return found->second.buffer.get();
  }
  const uint64_t bytes = state.type.BytesAt({});
  RL_ASSIGN_OR_RETURN(
      DeviceBuffer buffer,
      options_.devices[static_cast<size_t>(device)]->CreateBuffer(bytes, RL_BUFFER_STATE));
  stats_.state_bytes += bytes;
  return states_.emplace(key, StateBuffer{std::move(buffer), bytes}).first->second.buffer.get();
}

Result<WeightDesc> Session::DescribeWeight(const Value& constant) const {
  RL_ASSIGN_OR_RETURN(const auto bytes, weights_.Bytes(constant));
  const uint32_t uses = in_products_.contains(constant.name) ? RL_WEIGHT_IN_PRODUCTS : 0;
  return WeightDesc{constant.name, constant.type, bytes, uses};
}

Result<rl_weight*> Session::Weight(int device, const Value& constant) {
  const std::pair key(device, constant.name);
  if (const auto found = weight_handles_.find(key); found != weight_handles_.end()) {
    return found->second.get();
  }
  RL_ASSIGN_OR_RETURN(const WeightDesc desc, DescribeWeight(constant));
  Device& owner = *options_.devices[static_cast<size_t>(device)];
  RL_ASSIGN_OR_RETURN(const WeightLayout layout, owner.LayoutWeight(desc));
  RL_ASSIGN_OR_RETURN(DeviceWeight weight, owner.CreateWeight(desc));
  stats_.weight_bytes += layout.bytes;
  if (layout.in_place) {
    stats_.weight_file_bytes += desc.data.size();
  } else {
    weights_.Release(desc.data);
  }
  return weight_handles_.emplace(key, std::move(weight)).first->second.get();
}

Result<Session::IoBuffer*> Session::Io(std::map<IoKey, IoBuffer>& table, int device,
                                       const std::string& name, const TensorType& type) {
  const IoKey key(device, name, ToString(type));
  if (const auto found = table.find(key); found != table.end()) return &found->second;
  const uint64_t bytes = std::max<uint64_t>(type.BytesAt(largest_), 1);
  RL_ASSIGN_OR_RETURN(
      DeviceBuffer buffer,
      options_.devices[static_cast<size_t>(device)]->CreateBuffer(bytes, RL_BUFFER_IO));
  stats_.io_bytes += bytes;
  IoBuffer& io = table.emplace(key, IoBuffer{std::move(buffer), bytes}).first->second;
  if (const auto kept = inputs_.find(name); &table == &input_buffers_ && kept != inputs_.end()) {
    RL_RETURN_IF_ERROR(
        options_.devices[static_cast<size_t>(device)]->Write(io.buffer, 0, kept->second));
  }
  return &io;
}

// ---- Running ------------------------------------------------------------------------------------

Status Session::SetInput(std::string_view name, std::span<const std::byte> data) {
  const Value* input = nullptr;
  for (const SessionGraph& graph : graphs_) {
    const ValueId id = graph.graph.Find(name);
    if (id != kNoValue && graph.graph.value(id).lifetime == Lifetime::kInput) {
      input = &graph.graph.value(id);
    }
  }
  if (input == nullptr) {
    return tl::unexpected(InternalError(fmt::format("no graph has an input '{}'", name)));
  }
  const bool fits = input->type.rows().IsConstant() ? data.size() == input->type.BytesAt({})
                                                    : data.size() <= input->type.BytesAt(largest_);
  if (!fits) {
    return tl::unexpected(InternalError(
        fmt::format("input '{}' is {}, found {} bytes", name, ToString(input->type), data.size())));
  }
  inputs_[std::string(name)].assign(data.begin(), data.end());
  for (const auto& [key, io] : input_buffers_) {
    if (std::get<1>(key) != name) continue;
    Device& device = *options_.devices[static_cast<size_t>(std::get<0>(key))];
    RL_RETURN_IF_ERROR(device.Write(io.buffer, 0, data));
  }
  return OkStatus();
}

Status Session::ClearState(std::string_view name) {
  for (const auto& [key, state] : states_) {
    if (key.second != name) continue;
    RL_RETURN_IF_ERROR(options_.devices[static_cast<size_t>(key.first)]->Write(
        state.buffer, 0, std::vector<std::byte>(state.bytes)));
  }
  return OkStatus();
}

// Checks that the inputs set by SetInput() have the size of their types in this step.
Status Session::CheckKeptInputs(const Plan& plan, const Extents& extents) const {
  for (const Segment& segment : plan.segments) {
    for (const Value& value : segment.graph.values) {
      if (value.lifetime != Lifetime::kInput) continue;
      const auto kept = inputs_.find(value.name);
      if (kept == inputs_.end() || kept->second.size() == value.type.BytesAt(extents)) continue;
      return tl::unexpected(InternalError(
          fmt::format("input '{}' was set to {} bytes, but is {} in a step of {} rows", value.name,
                      kept->second.size(), ToString(value.type), extents.t)));
    }
  }
  return OkStatus();
}

Status Session::WriteInput(int device, const Value& input, std::span<const std::byte> data) {
  if (data.empty()) return OkStatus();
  const IoBuffer& io = input_buffers_.at({device, input.name, ToString(input.type)});
  return options_.devices[static_cast<size_t>(device)]->Write(io.buffer, 0, data);
}

Status Session::CheckRows(const StepRows& rows) const {
  const size_t count = rows.tokens.size();
  if (rows.graph >= graphs_.size()) {
    return tl::unexpected(InternalError(fmt::format("graph {} of {}", rows.graph, graphs_.size())));
  }
  if (count == 0 || count > static_cast<size_t>(graphs_[rows.graph].buckets.back()) ||
      rows.pos.size() != count || rows.slot.size() != count ||
      (rows.demand == DemandMode::kPerOutput) == rows.wanted.empty() ||
      std::ssize(rows.wanted) > options_.limits.max_wanted) {
    return tl::unexpected(
        InternalError(fmt::format("a step has {} tokens, {} positions, {} slots and {} wanted rows",
                                  count, rows.pos.size(), rows.slot.size(), rows.wanted.size())));
  }
  std::vector<int32_t> next = past_;
  for (size_t i = 0; i < count; ++i) {
    const int32_t slot = rows.slot[i];
    if (slot < 0 || static_cast<size_t>(slot) >= next.size() ||
        rows.pos[i] != next[static_cast<size_t>(slot)]) {
      return tl::unexpected(
          InternalError(fmt::format("row {} has slot {} and position {}, which does not continue "
                                    "that slot",
                                    i, slot, rows.pos[i])));
    }
    ++next[static_cast<size_t>(slot)];
  }
  for (const int32_t row : rows.wanted) {
    if (row < 0 || static_cast<size_t>(row) >= count) {
      return tl::unexpected(InternalError(fmt::format("wanted row {} of {}", row, count)));
    }
  }
  return OkStatus();
}

Status Session::BindInputs(const Plan& plan, const StepRows& rows) {
  const std::pair<std::string_view, std::span<const int32_t>> bindings[] = {
      {input_names::kTokens, rows.tokens}, {input_names::kPos, rows.pos},
      {input_names::kSlot, rows.slot},     {input_names::kPast, past_},
      {input_names::kRows, rows.wanted},
  };
  for (const Segment& segment : plan.segments) {
    for (const Value& value : segment.graph.values) {
      if (value.lifetime != Lifetime::kInput) continue;
      for (const auto& [name, data] : bindings) {
        if (value.name != name) continue;
        RL_RETURN_IF_ERROR(WriteInput(segment.device, value, std::as_bytes(data)));
      }
    }
  }
  return OkStatus();
}

Status Session::Import(const Plan& plan, size_t segment, const Extents& extents) {
  const Segment& target = plan.segments[segment];
  for (const Value& value : target.graph.values) {
    if (value.lifetime != Lifetime::kInput) continue;
    // Import from the latest earlier segment that exports a value of this name.
    for (size_t i = segment; i-- > 0;) {
      const Segment& source = plan.segments[i];
      const auto exported = std::ranges::find(source.graph.outputs, value.name, &Output::name);
      if (exported == source.graph.outputs.end()) continue;
      std::vector<std::byte> bytes(value.type.BytesAt(extents));
      const TensorType& type = source.graph.type(exported->value);
      const IoBuffer& from = output_buffers_.at({source.device, value.name, ToString(type)});
      RL_RETURN_IF_ERROR(
          options_.devices[static_cast<size_t>(source.device)]->Read(from.buffer, 0, bytes));
      RL_RETURN_IF_ERROR(WriteInput(target.device, value, bytes));
      break;
    }
  }
  return OkStatus();
}

Status Session::Prepare(int64_t rows, DemandMode demand, size_t graph) {
  return PlanFor(graph, rows, demand).map([](Plan*) {});
}

Status Session::Run(const StepRows& rows) {
  RL_RETURN_IF_ERROR(CheckRows(rows));
  const Extents extents{static_cast<int64_t>(rows.tokens.size()),
                        static_cast<int64_t>(rows.wanted.size())};
  RL_ASSIGN_OR_RETURN(const Plan* plan, PlanFor(rows.graph, extents.t, rows.demand));
  RL_RETURN_IF_ERROR(CheckKeptInputs(*plan, extents));
  RL_RETURN_IF_ERROR(BindInputs(*plan, rows));
  for (size_t i = 0; i < plan->segments.size(); ++i) {
    if (i > 0) RL_RETURN_IF_ERROR(Import(*plan, i, extents));
    const Segment& segment = plan->segments[i];
    RL_RETURN_IF_ERROR(options_.devices[static_cast<size_t>(segment.device)]->Execute(
        segment.plan, extents, &segment.graph));
  }
  if (graphs_[rows.graph].extends_past) {
    for (const int32_t slot : rows.slot) ++past_[static_cast<size_t>(slot)];
  }
  last_plan_ = plan;
  last_extents_ = extents;
  ++stats_.steps;
  return OkStatus();
}

Status Session::ReadOutput(std::string_view name, std::span<std::byte> data) {
  if (last_plan_ != nullptr) {
    for (const Segment& segment : last_plan_->segments) {
      const auto output = std::ranges::find(segment.graph.outputs, name, &Output::name);
      if (output == segment.graph.outputs.end()) continue;
      const TensorType& type = segment.graph.type(output->value);
      const uint64_t bytes = type.BytesAt(last_extents_);
      if (bytes != data.size()) {
        return tl::unexpected(InternalError(
            fmt::format("output '{}' has {} bytes, asked for {}", name, bytes, data.size())));
      }
      return options_.devices[static_cast<size_t>(segment.device)]->Read(
          output_buffers_.at({segment.device, std::string(name), ToString(type)}).buffer, 0, data);
    }
  }
  return tl::unexpected(InternalError(fmt::format("the last step has no output '{}'", name)));
}

Result<SessionStats> Session::Stats() {
  SessionStats stats = stats_;
  for (const auto& plan : plans_) {
    for (const Segment& segment : plan->segments) {
      RL_ASSIGN_OR_RETURN(
          const rl_plan_stats counters,
          options_.devices[static_cast<size_t>(segment.device)]->Stats(segment.plan));
      stats.compilations += counters.compilations;
      stats.allocations += counters.allocations;
      stats.recordings += counters.recordings;
      stats.dispatches += counters.dispatches;
      stats.workspace_bytes += counters.workspace_bytes;
    }
  }
  return stats;
}

}  // namespace rullama
