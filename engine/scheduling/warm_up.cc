#include "engine/scheduling/warm_up.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

namespace rullama {
namespace {

class StepList {
 public:
  explicit StepList(const Session& session) : session_(session) {}

  // A step of decoding: the token after each row is drawn.
  void Decode(GraphHandle graph, int64_t rows) {
    steps_.push_back({graph, rows, DemandMode::kPerOutput, rows});
  }
  // The last chunk of a prompt: the token after it is drawn.
  void ReadAndDraw(GraphHandle graph, int64_t rows) {
    if (rows > 1) steps_.push_back({graph, rows, DemandMode::kPerOutput, 1});
  }
  void OfAllSizes(GraphHandle graph, DemandMode demand) {
    for (const int64_t rows : BucketsOf(graph)) steps_.push_back({graph, rows, demand, 0});
  }
  [[nodiscard]] std::span<const int64_t> BucketsOf(GraphHandle graph) const {
    return session_.graphs()[graph.index].buckets;
  }
  // The sizes of steps that decode for all slots, ascending.
  [[nodiscard]] std::vector<int64_t> DecodeSizesOf(GraphHandle graph, int64_t slots) const {
    const SessionGraph& of = session_.graphs()[graph.index];
    if (!of.buckets_of_wanted.empty()) return of.buckets_of_wanted;
    std::vector<int64_t> sizes;
    for (const int64_t rows : of.buckets) {
      if (sizes.empty() || sizes.back() < slots) sizes.push_back(rows);
    }
    return sizes;
  }
  [[nodiscard]] std::vector<ExpectedStep> Take() { return std::move(steps_); }

 private:
  const Session& session_;
  std::vector<ExpectedStep> steps_;
};

Status CheckNotCancelled(const std::atomic<bool>* cancelled) {
  if (cancelled == nullptr || !*cancelled) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "run.cancelled", "stopped while kernels were compiled");
}

void AddDraws(const ProgramGraphs& graphs, const RowChainOptions& usual, bool judges, int64_t slots,
              StepList& steps) {
  const GraphHandle draw = graphs.Draw(usual);
  const std::vector<int64_t> sizes = steps.DecodeSizesOf(draw, slots);
  steps.Decode(draw, 1);
  for (const int64_t rows : steps.BucketsOf(draw)) steps.ReadAndDraw(draw, rows);
  steps.OfAllSizes(graphs.read, DemandMode::kStateOnly);
  for (const int64_t rows : sizes) {
    if (rows > 1) steps.Decode(draw, rows);
  }
  for (size_t kind = 0; kind < kRowChainKinds; ++kind) {
    for (const bool logprobs : {false, true}) {
      const GraphHandle other = graphs.draw[kind][logprobs ? 1 : 0];
      if (other == draw) continue;
      steps.Decode(other, 1);
      if (sizes.back() > 1) steps.Decode(other, sizes.back());
      steps.ReadAndDraw(other, steps.BucketsOf(other).back());
    }
  }
  if (!graphs.drafts) return;
  for (const DraftGraphs::Length& length : graphs.drafts->lengths) {
    steps.OfAllSizes(length.graph, DemandMode::kAllRows);
    if (judges) steps.OfAllSizes(length.judging, DemandMode::kAllRows);
  }
}

void AddOthers(const ProgramGraphs& graphs, StepList& steps) {
  if (graphs.media) {
    steps.OfAllSizes(*graphs.media, graphs.logits ? DemandMode::kStateOnly : DemandMode::kAllRows);
  }
  if (graphs.hidden) steps.OfAllSizes(graphs.hidden->graph, DemandMode::kAllRows);
  if (graphs.logits) steps.OfAllSizes(graphs.logits->graph, DemandMode::kAllRows);
  if (graphs.head) steps.OfAllSizes(*graphs.head, DemandMode::kAllRows);
}

// The graphs for rows that have several adapters; null: there are none.
const ProgramGraphs* SeveralOf(const ProgramGraphs& graphs) {
  return graphs.adapters ? graphs.adapters->several.get() : nullptr;
}

}  // namespace

std::vector<ExpectedStep> StepsOfAnswers(const Session& session, const ProgramGraphs& graphs,
                                         const RowChainOptions& usual, bool judges,
                                         const AdaptersInForce* own) {
  StepList steps(session);
  if (graphs.denoise) {
    steps.OfAllSizes(graphs.read, DemandMode::kStateOnly);
    steps.OfAllSizes(*graphs.denoise, DemandMode::kAllRows);
  } else if (graphs.logits) {
    const ProgramGraphs* const several = SeveralOf(graphs);
    const bool several_first = several != nullptr && graphs.adapters->NeedSeveral(own);
    if (several_first) AddDraws(*several, usual, judges, session.slots(), steps);
    AddDraws(graphs, usual, judges, session.slots(), steps);
    if (several != nullptr && !several_first) {
      AddDraws(*several, usual, judges, session.slots(), steps);
    }
  }
  return steps.Take();
}

std::vector<ExpectedStep> OtherSteps(const Session& session, const ProgramGraphs& graphs) {
  StepList steps(session);
  AddOthers(graphs, steps);
  if (const ProgramGraphs* several = SeveralOf(graphs)) AddOthers(*several, steps);
  return steps.Take();
}

Status WarmUpSteps(Session& session, std::span<const ExpectedStep> steps,
                   const std::atomic<bool>* cancelled) {
  for (const ExpectedStep& step : steps) {
    RL_RETURN_IF_ERROR(CheckNotCancelled(cancelled));
    const Status prepared = session.Prepare(step.rows, step.demand, step.graph, step.wanted);
    if (!prepared && !IsRefusal(prepared.error())) return prepared;
  }
  return OkStatus();
}

Status WarnUnlessFatal(Status warmed_up, std::string_view what, Notices& notices) {
  if (warmed_up) return OkStatus();
  const Error& error = warmed_up.error();
  if (error.id == "run.cancelled" || error.id == "device.lost") return warmed_up;
  notices.Warn(
      fmt::format("{} could not be prepared, and requests for them fail as long as this is "
                  "so: {}",
                  what, error.ToString()));
  return OkStatus();
}

Status WaitForPending(Session& session, const std::atomic<bool>* cancelled) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  while (true) {
    RL_RETURN_IF_ERROR(CheckNotCancelled(cancelled));
    RL_ASSIGN_OR_RETURN(const SessionStats stats, session.Stats());
    if (stats.pending == 0) return OkStatus();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace rullama
