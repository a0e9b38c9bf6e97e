// Where the time of steps goes, by op: what `rullama profile` measures. An op takes the time from
// its first record to its last in an execution of its segment, whatever the number of its workers;
// its bytes and operations are those of core/ir/op_cost.h.
//
// Thread safety: none; used by the thread of the session.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/reports/op_groups.h"
#include "core/runtime/step_observer.h"

namespace rullama::cli {

// Sums over the executions of a run. Of several runs: the median, as a stall of one run says
// nothing about the op.
struct OpTotal {
  double seconds = 0;
  double bytes = 0;
  double operations = 0;
  int64_t executions = 0;
  std::vector<double> runs = {};  // the seconds of each run, if there are several

  // Sums of the same runs; their median is that of the sums.
  OpTotal& operator+=(const OpTotal& other);
  // The range of the runs as a part of their median; 0 for fewer than two.
  [[nodiscard]] double spread() const;
  // Per second; 0 if no time was seen.
  [[nodiscard]] double byte_rate() const { return seconds > 0 ? bytes / seconds : 0; }
  [[nodiscard]] double operation_rate() const { return seconds > 0 ? operations / seconds : 0; }
};

struct ProfiledOp {
  std::string device;  // its backend
  std::string kind;
  std::string value;
  std::string shapes;
  std::optional<int64_t> layer;
  OpTotal total;
};

// The time in which a worker ran ops: a thread of a CPU, a queue of a GPU. The rest of the time of
// the segments it waits, mostly for the others.
struct BusyWorker {
  std::string device;  // its backend
  uint32_t worker = 0;
  double seconds = 0;  // of several runs: the median
};

struct StepProfile {
  int64_t steps = 0;
  double seconds = 0;  // of all segments, between their start and the wait for their end
  std::vector<double> runs =
      {};                       // the same of each run, if there are several; `seconds`: the median
  std::vector<ProfiledOp> ops;  // longest first
  std::vector<BusyWorker> workers = {};  // by device and number

  // The sum of the ops. The rest of `seconds` is the time between ops: barriers, submission and
  // segments of backends that record no times.
  [[nodiscard]] double op_seconds() const;
};

// The sum of the ops that share a name.
struct NamedTotal {
  std::string device;  // of a kind; empty for layers
  std::string name;
  OpTotal total;
  std::optional<int64_t> layer = {};
};
// By device and kind, longest first.
std::vector<NamedTotal> KindsOf(const StepProfile& profile);
// By layer, ascending: "outside" those that belong to none, "0", "1", ...
std::vector<NamedTotal> LayersOf(const StepProfile& profile);

// Ops of the same kind, role and shapes in all layers, such as "blk.*.ffn.glu".
struct RoleTotal {
  std::string device, kind, role, shapes;
  size_t count = 0;  // ops
  OpTotal total;
  // The seconds of the fastest, the median and the slowest of these ops in a run.
  double best = 0, median = 0, worst = 0;
};
// Longest first.
std::vector<RoleTotal> RolesOf(const StepProfile& profile);

// The medians of runs of the same steps, at least one.
StepProfile MedianOf(const std::vector<StepProfile>& runs);

class OpProfiler final : public StepObserver {
 public:
  void OnSpan(const StepSpan& span) override;
  [[nodiscard]] bool wants_ops() const override { return true; }
  void OnOp(const SegmentRun& run, const OpTime& time) override;
  // The measurements since the last call.
  [[nodiscard]] StepProfile Take();

 private:
  struct Running {
    OpTime::Clock::time_point begin, end;
    OpCost cost;
    std::string_view device;
  };
  // Adds the ops of the execution whose records have arrived.
  void Flush();

  OpGroups groups_;
  std::map<const OpGroup*, Running> running_;  // of the last segment
  // By device, kind and value: plans of several sizes have the same ops.
  std::map<std::tuple<std::string, std::string, std::string>, ProfiledOp> ops_;
  std::map<std::pair<std::string, uint32_t>, double> busy_;  // seconds by device and worker
  int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace rullama::cli
