#include "core/runtime/session.h"

#include <rullama/sdk/slots.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "core/base/error_of.h"
#include "core/gguf/dequantize.h"
#include "core/passes/table_rows.h"
#include "core/passes/wanted_rows.h"
#include "core/runtime/device_program.h"

namespace rullama {
namespace {

using InternalError = ErrorOf<ErrorKind::kRuntime, "session.internal">;

bool WantsEachRow(const StepRows& rows) {
  if (rows.wanted.size() != rows.tokens.size()) return false;
  for (size_t i = 0; i < rows.wanted.size(); ++i) {
    if (rows.wanted[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

}  // namespace

bool IsRefusal(const Error& error) {
  return error.id == "placement.refused" || error.id == "passes.state_split";
}

Session::Session(std::vector<SessionGraph> graphs, size_t slots, HostTables tables,
                 SessionOptions options, Extents largest, WeightNames in_products)
    : graphs_(std::move(graphs)),
      has_arenas_(graphs_.size()),
      policy_(std::move(options.policy)),
      limits_(options.limits),
      slot_states_(FindSlotStates(graphs_, slots)),
      identity_(std::make_shared<const int>()),
      past_(slots),
      past_of_wanted_(slots),
      logs_(slots, slot_states_ ? SlotLog(slot_states_->shortest(), slot_states_->spare())
                                : SlotLog(kMaxRows)),
      resources_(std::move(options.devices), tables.weights, largest, std::move(in_products),
                 std::move(options.allocated)),
      kept_inputs_(largest, options.lanes),
      tables_(std::move(tables)),
      observer_(options.observer) {
  for (const SessionGraph& graph : graphs_) {
    kept_inputs_.Declare(graph.graph);
    fewest_unwindowed_rows_.push_back(FewestUnwindowedRows(graph.graph));
  }
  for (size_t lane = 0; lane < options.lanes; ++lane) {
    lanes_.emplace_back(resources_.devices()).step.lane = lane;
  }
}

Session::~Session() = default;

Result<HostTables> Session::TakeTables(std::vector<SessionGraph>& graphs,
                                       const WeightNames& in_products,
                                       const WeightSource& weights) {
  HostTables tables{.weights = weights, .lookups = {}};
  const auto is_read_by_row = [&](const Value& table) {
    return !in_products.contains(table.name) && CanDequantize(table.type.dtype) &&
           weights.IsReadByRow(table);
  };
  for (SessionGraph& graph : graphs) {
    RL_ASSIGN_OR_RETURN(graph.graph, ReplaceLookups(graph.graph, is_read_by_row, tables.lookups));
  }
  return tables;
}

Result<SlotStates> Session::FindSlotStates(std::span<const SessionGraph> graphs, size_t slots) {
  SlotStates states;
  for (size_t i = 0; i < graphs.size(); ++i) {
    if (!graphs[i].extends_past) continue;
    RL_RETURN_IF_ERROR(states.AddGraph(graphs[i].graph, i, static_cast<int64_t>(slots)));
  }
  return states;
}

Result<std::unique_ptr<Session>> Session::Create(std::vector<SessionGraph> graphs,
                                                 const WeightSource& weights,
                                                 SessionOptions options) {
  const StepLimits& limits = options.limits;
  if (graphs.empty() || options.devices.empty() || limits.max_t < 1 || limits.max_r < 1) {
    return InternalError("a session needs a graph, a device, rows and wanted rows");
  }
  if (options.lanes > 0 && options.observer != nullptr) {
    return InternalError("a session with lanes cannot be observed");
  }
  const Graph& first = graphs.front().graph;
  const ValueId past = first.Find(input_names::kPast);
  if (options.slots < 1 && (past == kNoValue || !first.type(past).rows().IsConstant())) {
    return InternalError("the graph has no input 'past' with a slot count");
  }
  const auto slots =
      static_cast<size_t>(options.slots > 0 ? options.slots : first.type(past).rows().constant);
  Extents largest = {limits.max_t, limits.max_r};
  WeightNames in_products;
  for (SessionGraph& graph : graphs) {
    if (graph.buckets.empty()) graph.buckets = DefaultBuckets(limits.max_t);
    largest.t = std::max(largest.t, graph.MaxT());
    AddWeightsInProducts(graph.graph, in_products);
  }
  RL_ASSIGN_OR_RETURN(HostTables tables, TakeTables(graphs, in_products, weights));
  return std::unique_ptr<Session>(new Session(std::move(graphs), slots, std::move(tables),
                                              std::move(options), largest, std::move(in_products)));
}

Result<std::unique_ptr<Session>> Session::Create(Graph graph, const WeightSource& weights,
                                                 SessionOptions options) {
  std::vector<SessionGraph> graphs;
  graphs.push_back({.graph = std::move(graph)});
  return Create(std::move(graphs), weights, std::move(options));
}

Session::Wanted Session::WantedOf(const StepRows& rows) const {
  if (WantsEachRow(rows)) return Wanted::kEach;
  const bool once =
      std::ranges::adjacent_find(rows.wanted, std::ranges::greater_equal()) == rows.wanted.end();
  const bool last = std::ranges::all_of(rows.wanted, [&](int32_t row) {
    const auto i = static_cast<size_t>(row);
    return rows.pos[i] < fewest_unwindowed_rows_[rows.graph.index] &&
           rows.pos[i] + 1 == next_past_[static_cast<size_t>(rows.slot[i])];
  });
  return once && last ? Wanted::kLast : Wanted::kSome;
}

// Steps that do not extend the past see no row after them.
bool Session::MayCutWantedRows(size_t graph, const Bucket& bucket, Wanted wanted) const {
  return wanted == Wanted::kLast && bucket.demand == DemandMode::kPerOutput &&
         ReadsPrompts({bucket.max_t, bucket.max_r}) && graphs_[graph].extends_past;
}

Result<Program> Session::BuildProgramFor(size_t graph, const Bucket& bucket,
                                         bool wanted_rows_apart) const {
  return BuildDeviceProgram(graphs_[graph].graph, resources_.devices(), policy_, bucket,
                            graphs_[graph].differentiation, wanted_rows_apart);
}

Result<BoundPlan*> Session::FindOrCompilePlan(size_t graph, int64_t rows, DemandMode demand,
                                              int64_t wanted_count, Wanted wanted) {
  Bucket bucket;
  bucket.demand = demand;
  const SessionGraph& of = graphs_[graph];
  const bool has_own = wanted == Wanted::kEach && !of.buckets_of_wanted.empty();
  // A row may be wanted several times, by each choice of a short prompt: a plan wants no more rows
  // than it has.
  const bool per_output = demand == DemandMode::kPerOutput;
  RL_ASSIGN_OR_RETURN(bucket.max_t, ChooseBucket(has_own ? of.buckets_of_wanted : of.buckets,
                                                 per_output ? std::max(rows, wanted_count) : rows));
  bucket.max_r = 0;
  if (per_output) {
    const auto wanted_bucket =
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(wanted_count, 1)));
    bucket.max_r = std::min({static_cast<int64_t>(wanted_bucket), limits_.max_r, bucket.max_t});
  }
  const bool may_cut = MayCutWantedRows(graph, bucket, wanted);
  for (const Plan& plan : plans_) {
    if (plan.graph == graph && plan.bucket == bucket && plan.Serves(may_cut)) {
      return plan.bound.get();
    }
  }
  WaitForSteps();
  const SpanTimer timer(observer_);
  RL_RETURN_IF_ERROR(MakeArenasFor(graph, bucket));
  RL_ASSIGN_OR_RETURN(Program program, BuildProgramFor(graph, bucket, may_cut));
  placement_ = std::move(program.report);
  RL_RETURN_IF_ERROR(resources_.CheckMemory(program));
  const bool wants_last_rows = program.wants_last_rows;
  const bool records = observer_ != nullptr && observer_->wants_ops();
  RL_ASSIGN_OR_RETURN(auto bound,
                      BoundPlan::Compile(std::move(program), resources_, kept_inputs_, tables_,
                                         records ? RecordTimes::kYes : RecordTimes::kNo));
  plans_.push_back({graph, bucket, may_cut, wants_last_rows, std::move(bound)});
  timer.End({.kind = StepSpan::Kind::kCompile,
             .name = graphs_[graph].graph.name,
             .rows = bucket.max_t,
             .wanted = bucket.max_r});
  return plans_.back().bound.get();
}

Status Session::CheckRows(const StepRows& rows) {
  const size_t count = rows.tokens.size();
  if (rows.graph.index >= graphs_.size()) {
    return InternalError("graph {} of {}", rows.graph.index, graphs_.size());
  }
  if (count == 0 || count > static_cast<size_t>(max_t(rows.graph)) || rows.pos.size() != count ||
      rows.slot.size() != count || (rows.demand == DemandMode::kPerOutput) == rows.wanted.empty() ||
      std::ssize(rows.wanted) > limits_.max_r) {
    return InternalError(
        "a step has {} tokens, {} positions, {} slots and {} wanted rows; expected 1 to {} rows "
        "and up to {} wanted ones",
        count, rows.pos.size(), rows.slot.size(), rows.wanted.size(), max_t(rows.graph),
        limits_.max_r);
  }
  next_past_.assign(past_.begin(), past_.end());
  for (size_t i = 0; i < count; ++i) {
    const int32_t slot = rows.slot[i];
    if (slot < 0 || static_cast<size_t>(slot) >= next_past_.size() || IsInFlight(slot) ||
        rows.pos[i] != next_past_[static_cast<size_t>(slot)]) {
      return InternalError("row {} has slot {} and position {}, which does not continue that slot",
                           i, slot, rows.pos[i]);
    }
    ++next_past_[static_cast<size_t>(slot)];
  }
  for (const int32_t row : rows.wanted) {
    if (row < 0 || static_cast<size_t>(row) >= count) {
      return InternalError("wanted row {} of {}", row, count);
    }
  }
  return OkStatus();
}

Status Session::SetInput(std::string_view name, std::span<const std::byte> data, StepLane lane) {
  if (!lane) WaitForSteps();  // which may read the common value
  if (lane) RL_RETURN_IF_ERROR(CheckLane(*lane, /*started=*/false));
  return kept_inputs_.Set(name, data, lane);
}

Status Session::Prepare(int64_t rows, DemandMode demand, GraphHandle graph, int64_t wanted) {
  const bool each = demand == DemandMode::kPerOutput && wanted == rows;
  return FindOrCompilePlan(graph.index, rows, demand, wanted, each ? Wanted::kEach : Wanted::kLast)
      .map([](BoundPlan*) {});
}

Result<Program> Session::BuildLargestProgram(size_t graph) const {
  const SessionGraph& of = graphs_[graph];
  Bucket bucket;
  bucket.max_t = of.MaxT();
  // Graphs that leave the caches alone are run for all of their rows, except in training.
  const bool per_output = of.extends_past || of.differentiation;
  bucket.demand = per_output ? DemandMode::kPerOutput : DemandMode::kAllRows;
  bucket.max_r = per_output ? std::min(limits_.max_r, bucket.max_t) : 0;
  return BuildProgramFor(graph, bucket, MayCutWantedRows(graph, bucket, Wanted::kLast));
}

Status Session::MakeArenasFor(size_t graph, const Bucket& bucket) {
  const SessionGraph& of = graphs_[graph];
  const bool reads_prompts = of.extends_past && bucket.max_t > sdk::kFewRows;
  if (!reads_prompts || bucket.max_t == of.MaxT() || has_arenas_[graph]) return OkStatus();
  RL_ASSIGN_OR_RETURN(const Program largest, BuildLargestProgram(graph));
  RL_RETURN_IF_ERROR(resources_.MakeArenas(largest));
  has_arenas_[graph] = true;
  return OkStatus();
}

Result<std::vector<MemoryNeed>> Session::PredictMemory(std::vector<RefusedGraph>* refused) const {
  std::vector<Program> programs;
  std::vector<RefusedGraph> without;
  for (size_t i = 0; i < graphs_.size(); ++i) {
    auto program = BuildLargestProgram(i);
    if (program) {
      programs.push_back(*std::move(program));
      continue;
    }
    if (refused == nullptr || !IsRefusal(program.error())) {
      return tl::unexpected(std::move(program).error());
    }
    without.push_back({GraphHandle{i}, std::move(program).error()});
  }
  if (programs.empty() && !without.empty()) return tl::unexpected(without.front().error);
  if (refused != nullptr) *refused = std::move(without);
  return resources_.NeedOf(programs);
}

Result<BoundPlan*> Session::BeginStep(const StepRows& rows, bool alone) {
  RL_RETURN_IF_ERROR(CheckRows(rows));
  Wanted wanted = WantedOf(rows);
  // Between two segments on one device another step may use the buffers of the first one.
  if (wanted == Wanted::kLast && !alone) wanted = Wanted::kSome;
  RL_ASSIGN_OR_RETURN(BoundPlan * plan,
                      FindOrCompilePlan(rows.graph.index, std::ssize(rows.tokens), rows.demand,
                                        std::ssize(rows.wanted), wanted));
  for (size_t slot = 0; graphs_[rows.graph.index].extends_past && slot < logs_.size(); ++slot) {
    logs_[slot].Append(next_past_[slot]);  // also if the step fails: it may have written rows
  }
  return plan;
}

Status Session::Run(const StepRows& rows) {
  WaitForSteps();
  const SpanTimer timer(observer_);
  RL_ASSIGN_OR_RETURN(BoundPlan * plan, BeginStep(rows, /*alone=*/true));
  std::ranges::transform(next_past_, past_of_wanted_.begin(),
                         [](int32_t past) { return std::max(past - 1, 0); });
  RL_RETURN_IF_ERROR(plan->Execute(rows, {past_, past_of_wanted_}, observer_));
  if (graphs_[rows.graph.index].extends_past) past_.swap(next_past_);
  last_plan_ = plan;
  ++steps_;
  timer.End({.kind = StepSpan::Kind::kStep,
             .name = graphs_[rows.graph.index].graph.name,
             .rows = std::ssize(rows.tokens),
             .wanted = std::ssize(rows.wanted)});
  return OkStatus();
}

Status Session::ReadOutput(std::string_view name, std::span<std::byte> data, StepLane lane) {
  if (lane) {
    RL_RETURN_IF_ERROR(CheckLane(*lane, /*started=*/false));
    const Lane& from = lanes_[*lane];
    if (from.plan != nullptr) return from.plan->CopyOutput(name, from.step, data);
  }
  if (lane || last_plan_ == nullptr) {
    return InternalError("no step has run, so there is no '{}'", name);
  }
  const SpanTimer timer(observer_);
  RL_RETURN_IF_ERROR(last_plan_->ReadOutput(name, data));
  timer.End({.kind = StepSpan::Kind::kRead, .name = name, .bytes = data.size()});
  return OkStatus();
}

Status Session::ClearState(std::string_view name) {
  WaitForSteps();
  return resources_.ClearState(name);
}

Status Session::ReadState(std::string_view name, std::span<std::byte> data) {
  if (resources_.StateBytes(name) != data.size()) {
    return InternalError("state '{}' has {} bytes, asked for {}", name, resources_.StateBytes(name),
                         data.size());
  }
  WaitForSteps();
  return resources_.ReadState(name, 0, data);
}

Status Session::WriteState(std::string_view name, std::span<const std::byte> data) {
  if (resources_.StateBytes(name) != data.size()) {
    return InternalError("state '{}' has {} bytes, given {}", name, resources_.StateBytes(name),
                         data.size());
  }
  WaitForSteps();
  return resources_.WriteState(name, 0, data);
}

Result<SessionStats> Session::Stats() {
  WaitForSteps();
  rl_plan_stats counters{};
  for (const Plan& plan : plans_) RL_RETURN_IF_ERROR(plan.bound->AddStats(counters));
  const ResourceBytes& bytes = resources_.bytes();
  return SessionStats{.steps = steps_,
                      .plans = plans_.size(),
                      .compilations = counters.compilations,
                      .allocations = counters.allocations,
                      .recordings = counters.recordings,
                      .dispatches = counters.dispatches,
                      .pending = counters.pending,
                      .weight_bytes = bytes.weights,
                      .weight_file_bytes = bytes.weights_in_file,
                      .state_bytes = bytes.states,
                      .arena_bytes = bytes.arenas,
                      .io_bytes = bytes.io,
                      .workspace_bytes = counters.workspace_bytes};
}

}  // namespace rullama
