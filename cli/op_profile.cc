#include "cli/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rullama::cli {
namespace {

double Seconds(StepSpan::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

OpTotal& OpTotal::operator+=(const OpTotal& other) {
  seconds += other.seconds;
  bytes += other.bytes;
  operations += other.operations;
  executions += other.executions;
  return *this;
}

double StepProfile::op_seconds() const {
  double sum = 0;
  for (const ProfiledOp& op : ops) sum += op.total.seconds;
  return sum;
}

std::vector<NamedTotal> KindsOf(const StepProfile& profile) {
  std::map<std::pair<std::string, std::string>, OpTotal> totals;
  for (const ProfiledOp& op : profile.ops) totals[{op.device, op.kind}] += op.total;
  std::vector<NamedTotal> kinds;
  kinds.reserve(totals.size());
  for (const auto& [key, total] : totals) kinds.push_back({key.first, key.second, total});
  std::ranges::stable_sort(kinds, [](const NamedTotal& a, const NamedTotal& b) {
    return a.total.seconds > b.total.seconds;
  });
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
  StepProfile profile{std::exchange(steps_, 0), std::exchange(seconds_, 0), {}};
  for (auto& [key, op] : std::exchange(ops_, {})) profile.ops.push_back(std::move(op));
  std::ranges::stable_sort(profile.ops, [](const ProfiledOp& a, const ProfiledOp& b) {
    return a.total.seconds > b.total.seconds;
  });
  return profile;
}

}  // namespace rullama::cli
