#include "cli/reports/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

namespace rullama::cli {
namespace {

double Seconds(StepSpan::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// The median of at least one number.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// "blk.3.ffn.glu" of any layer: "blk.*.ffn.glu".
std::string RoleOf(const std::string& value) {
  constexpr std::string_view kBlock = "blk.";
  if (!LayerOfName(value)) return value;
  return fmt::format("{}*{}", kBlock, value.substr(value.find('.', kBlock.size())));
}

void SortByTime(auto& totals) {
  std::ranges::stable_sort(
      totals, [](const auto& a, const auto& b) { return a.total.seconds > b.total.seconds; });
}

// The medians of the workers of at least one run; one that ran nothing in a run was busy for 0 s.
std::vector<BusyWorker> MedianWorkers(const std::vector<StepProfile>& runs) {
  std::map<std::pair<std::string, uint32_t>, std::vector<double>> busy;
  for (size_t run = 0; run < runs.size(); ++run) {
    for (const BusyWorker& of : runs[run].workers) {
      std::vector<double>& seconds = busy[{of.device, of.worker}];
      seconds.resize(runs.size());
      seconds[run] = of.seconds;
    }
  }
  std::vector<BusyWorker> workers;
  workers.reserve(busy.size());
  for (const auto& [key, seconds] : busy) {
    workers.push_back({key.first, key.second, Median(seconds)});
  }
  return workers;
}

}  // namespace

OpTotal& OpTotal::operator+=(const OpTotal& other) {
  if (runs.empty() && seconds == 0) runs.resize(other.runs.size());
  seconds += other.seconds;
  if (runs.size() == other.runs.size() && !runs.empty()) {
    std::ranges::transform(runs, other.runs, runs.begin(), std::plus());
    seconds = Median(runs);
  }
  bytes += other.bytes;
  operations += other.operations;
  executions += other.executions;
  return *this;
}

double OpTotal::spread() const {
  if (runs.size() < 2 || seconds <= 0) return 0;
  const auto [least, most] = std::ranges::minmax(runs);
  return (most - least) / seconds;
}

double StepProfile::op_seconds() const {
  OpTotal sum;
  for (const ProfiledOp& op : ops) sum += op.total;
  return sum.seconds;
}

std::vector<NamedTotal> KindsOf(const StepProfile& profile) {
  std::map<std::pair<std::string, std::string>, OpTotal> totals;
  for (const ProfiledOp& op : profile.ops) totals[{op.device, op.kind}] += op.total;
  std::vector<NamedTotal> kinds;
  kinds.reserve(totals.size());
  for (const auto& [key, total] : totals) kinds.push_back({key.first, key.second, total});
  SortByTime(kinds);
  return kinds;
}

std::vector<NamedTotal> LayersOf(const StepProfile& profile) {
  std::map<std::optional<int64_t>, OpTotal> totals;
  for (const ProfiledOp& op : profile.ops) totals[op.layer] += op.total;
  std::vector<NamedTotal> layers;
  layers.reserve(totals.size());
  for (const auto& [layer, total] : totals) {
    layers.push_back({"", layer ? fmt::format("{}", *layer) : "outside", total, layer});
  }
  return layers;
}

std::vector<RoleTotal> RolesOf(const StepProfile& profile) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, RoleTotal> roles;
  std::map<const RoleTotal*, std::vector<double>> times;  // of each op
  for (const ProfiledOp& op : profile.ops) {
    RoleTotal& role = roles[{op.device, op.kind, RoleOf(op.value), op.shapes}];
    role.total += op.total;
    times[&role].push_back(op.total.seconds);
  }
  std::vector<RoleTotal> result;
  for (auto& [key, role] : roles) {
    std::tie(role.device, role.kind, role.role, role.shapes) = key;
    const std::vector<double>& of = times[&role];
    role.count = of.size();
    role.best = std::ranges::min(of);
    role.median = Median(of);
    role.worst = std::ranges::max(of);
    result.push_back(role);
  }
  SortByTime(result);
  return result;
}

StepProfile MedianOf(const std::vector<StepProfile>& runs) {
  if (runs.size() == 1) return runs.front();
  StepProfile profile{runs.front().steps, 0, {}, {}};
  std::map<std::tuple<std::string, std::string, std::string>, ProfiledOp> ops;
  for (size_t run = 0; run < runs.size(); ++run) {
    profile.runs.push_back(runs[run].seconds);
    for (const ProfiledOp& op : runs[run].ops) {
      const auto [at, is_new] = ops.try_emplace({op.device, op.kind, op.value}, op);
      std::vector<double>& seconds = at->second.total.runs;
      if (is_new) seconds.assign(runs.size(), 0);
      seconds[run] += op.total.seconds;
    }
  }
  profile.seconds = Median(profile.runs);
  profile.workers = MedianWorkers(runs);
  for (auto& [key, op] : ops) {
    op.total.seconds = Median(op.total.runs);
    profile.ops.push_back(std::move(op));
  }
  SortByTime(profile.ops);
  return profile;
}

void OpProfiler::OnSpan(const StepSpan& span) {
  Flush();
  if (span.kind == StepSpan::Kind::kSegment) seconds_ += Seconds(span.end - span.begin);
  if (span.kind == StepSpan::Kind::kStep) ++steps_;
}

void OpProfiler::OnOp(const SegmentRun& run, const OpTime& time) {
  const Extents extents{std::ssize(run.rows.tokens), std::ssize(run.rows.wanted)};
  const CostedGroup& group =
      groups_.Find(run.graph, time.ops, {extents, run.rows.pos, run.rows.slot});
  const auto [op, is_new] = running_.try_emplace(group.group);
  Running& running = op->second;
  if (is_new) running = {time.begin, time.end, group.cost, run.device_name};
  running.begin = std::min(running.begin, time.begin);
  running.end = std::max(running.end, time.end);
  busy_[{std::string(run.device_name), time.worker}] += Seconds(time.end - time.begin);
}

void OpProfiler::Flush() {
  for (const auto& [group, running] : running_) {
    ProfiledOp& op = ops_[{std::string(running.device), group->kind, group->value}];
    if (op.kind.empty()) {
      op = {
          std::string(running.device), group->kind, group->value, group->shapes, group->layer, {}};
    }
    op.total += {.seconds = Seconds(running.end - running.begin),
                 .bytes = running.cost.bytes,
                 .operations = running.cost.operations,
                 .executions = 1};
  }
  running_.clear();
}

StepProfile OpProfiler::Take() {
  Flush();
  StepProfile profile{std::exchange(steps_, 0), std::exchange(seconds_, 0), {}, {}};
  for (auto& [key, op] : std::exchange(ops_, {})) profile.ops.push_back(std::move(op));
  SortByTime(profile.ops);
  for (const auto& [key, seconds] : std::exchange(busy_, {})) {
    profile.workers.push_back({key.first, key.second, seconds});
  }
  return profile;
}

}  // namespace rullama::cli
