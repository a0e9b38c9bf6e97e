// When ops ran, of plugins that record it: inside their execution, by worker one after another, and
// of every op that had something to do.
#include <chrono>
#include <map>
#include <vector>

#include "conformance/check.h"
#include "conformance/layer.h"
#include "conformance/suite.h"

namespace rullama::conformance {
namespace {

using Clock = OpTime::Clock;

constexpr int kTimedExecutions = 8;

// Looks at the records of one execution.
class ExecutionTimes {
 public:
  ExecutionTimes(const Graph& graph, Clock::time_point begin, Clock::time_point end)
      : graph_(graph), begin_(begin), end_(end), covered_(graph.ops.size()) {}

  void Add(const OpTime& time) {
    for (const uint32_t op : time.ops) covered_[op] = true;
    const auto [last, is_first] = ends_.try_emplace(time.worker, begin_);
    if (status_ && time.begin < last->second) {
      status_ = Failed("op {} on worker {} begins {} ns before {}", time.ops.front(), time.worker,
                       std::chrono::nanoseconds(last->second - time.begin).count(),
                       is_first ? "its execution" : "the record before it ends");
    }
    if (status_ && time.end > end_) {
      status_ = Failed("op {} on worker {} ends {} ns after its execution", time.ops.front(),
                       time.worker, std::chrono::nanoseconds(time.end - end_).count());
    }
    last->second = time.end;
  }

  // Reports faults of the records, after all were added. An op without rows has nothing to do,
  // and a reshape none where both values share their memory.
  [[nodiscard]] Status Check(const Extents& extents) const {
    RL_RETURN_IF_ERROR(status_);
    for (OpIndex op = 0; op < covered_.size(); ++op) {
      if (graph_.ops[op].kind == OpKind::kReshape) continue;
      const bool has_rows = graph_.type(graph_.ops[op].results[0]).BytesAt(extents) > 0;
      if (has_rows && !covered_[op]) {
        return Failed("no record names op {} ({})", op, NameOf(graph_.ops[op].kind));
      }
    }
    return OkStatus();
  }

 private:
  const Graph& graph_;
  Clock::time_point begin_, end_;
  std::vector<bool> covered_;                   // by op
  std::map<uint32_t, Clock::time_point> ends_;  // of the last record of each worker
  Status status_ = OkStatus();
};

Status LieInsideTheirExecution(Suite& suite, Device& device) {
  if (!device.RecordsTimes()) return Unsupported("the plugin has no plan_times");
  const uint64_t seed = SeedOf(suite, "Times");
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, seed));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test, false, RecordTimes::kYes));
  RL_RETURN_IF_ERROR(program->BindAll(test));
  Steps steps(test, seed);
  size_t records = 0;
  for (int i = 0; i < kTimedExecutions; ++i) {
    const Steps::Step step = steps.Next();
    for (const auto& [name, bytes] : step.inputs) RL_RETURN_IF_ERROR(program->Bind(name, bytes));
    const auto begin = Clock::now();
    RL_RETURN_IF_ERROR(program->Run(step.extents));
    ExecutionTimes times(test.graph, begin, Clock::now());
    RL_RETURN_IF_ERROR(program->ReadTimes([&](const OpTime& time) {
      times.Add(time);
      ++records;
    }));
    if (i == 0 && records == 0) return Unsupported("the plugin records no times");
    RL_RETURN_IF_ERROR(times.Check(step.extents));
  }
  return OkStatus();
}

// Nobody asked this plan to record.
Status OnlyOnRequest(Suite& suite, Device& device) {
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Times")));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test));
  RL_RETURN_IF_ERROR(program->BindAll(test));
  RL_RETURN_IF_ERROR(program->Run(test.extents));
  size_t records = 0;
  RL_RETURN_IF_ERROR(program->ReadTimes([&](const OpTime&) { ++records; }));
  if (records > 0) return Failed("{} records of a plan without record_times", records);
  return OkStatus();
}

// Recording changes no result.
Status ChangeNoResult(Suite& suite, Device& device) {
  if (!device.description().deterministic) return Unsupported("the device is not deterministic");
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Times")));
  std::map<std::string, Bytes> results[2];
  for (const RecordTimes record : {RecordTimes::kNo, RecordTimes::kYes}) {
    RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test, false, record));
    RL_RETURN_IF_ERROR(program->BindAll(test));
    RL_RETURN_IF_ERROR(program->Run(test.extents));
    RL_ASSIGN_OR_RETURN(results[record == RecordTimes::kYes ? 1 : 0], ReadResults(*program, test));
  }
  RL_ASSIGN_OR_RETURN(const std::string difference, Difference(test, results[0], results[1]));
  if (difference.empty()) return OkStatus();
  return Failed("results differ when times are recorded: {}", difference);
}

}  // namespace

void AddTimesTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Times.lie_inside_their_execution", LieInsideTheirExecution});
  tests.push_back({"Times.only_on_request", OnlyOnRequest});
  tests.push_back({"Times.change_no_result", ChangeNoResult});
}

}  // namespace rullama::conformance
