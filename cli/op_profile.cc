#include "cli/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/json_text.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr double kGiga = 1e9;
constexpr double kMilli = 1e3;

double Seconds(StepSpan::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::string LayerText(const std::optional<int64_t>& layer) {
  return layer ? fmt::format("{}", *layer) : "outside";
}

// Totals by what `key` makes of an op.
template <typename Key>
auto TotalsBy(const StepProfile& profile, Key key) {
  std::map<decltype(key(profile.ops.front())), OpTotal> totals;
  for (const ProfiledOp& op : profile.ops) totals[key(op)] += op.total;
  return totals;
}

// Totals by kind, longest first.
std::vector<std::pair<std::string, OpTotal>> KindsOf(const StepProfile& profile) {
  const auto totals = TotalsBy(profile, [](const ProfiledOp& op) { return op.kind; });
  std::vector<std::pair<std::string, OpTotal>> kinds(totals.begin(), totals.end());
  std::ranges::stable_sort(
      kinds, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  return kinds;
}

std::map<std::optional<int64_t>, OpTotal> LayersOf(const StepProfile& profile) {
  return TotalsBy(profile, [](const ProfiledOp& op) { return op.layer; });
}

// "| 12.3 | 4.567 | 8.90 | 1.23 |": share of all segments, milliseconds of a step, rates.
std::string Numbers(const StepProfile& profile, const OpTotal& total) {
  const double share = profile.seconds > 0 ? 100 * total.seconds / profile.seconds : 0;
  const auto steps = static_cast<double>(std::max<int64_t>(1, profile.steps));
  return fmt::format("| {:.1f} | {:.3f} | {:.2f} | {:.2f} |\n", share,
                     total.seconds * kMilli / steps, total.byte_rate() / kGiga,
                     total.operation_rate() / kGiga);
}

std::string Head(std::string_view first) {
  return fmt::format("\n| {} | % of time | ms a step | GB/s | Gop/s |\n|---|---:|---:|---:|---:|\n",
                     first);
}

json ToJson(const OpTotal& total) {
  return {{"seconds", total.seconds},
          {"bytes", total.bytes},
          {"operations", total.operations},
          {"executions", total.executions}};
}

json Joined(json first, const json& more) {
  first.update(more);
  return first;
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

void OpProfiler::OnSpan(const StepSpan& span) {
  Flush();
  if (span.kind == StepSpan::Kind::kSegment) seconds_ += Seconds(span.end - span.begin);
  if (span.kind == StepSpan::Kind::kStep) ++steps_;
}

void OpProfiler::OnOp(const SegmentRun& run, const OpTime& time) {
  const OpGroup& group = groups_.Find(run.graph, time.ops);
  const auto [op, is_new] = running_.try_emplace(&group);
  Running& running = op->second;
  if (is_new) {
    const Extents extents{std::ssize(run.rows.tokens), std::ssize(run.rows.wanted)};
    running = {time.begin, time.end, group.cost.At({extents, run.rows.pos, run.rows.slot}),
               run.device_name};
  }
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

std::string ProfileText(const StepProfile& profile, size_t slowest) {
  std::string text = Head("kind");
  for (const auto& [kind, total] : KindsOf(profile)) {
    text += fmt::format("| {} {}", kind, Numbers(profile, total));
  }
  OpTotal between;
  between.seconds = std::max(0.0, profile.seconds - profile.op_seconds());
  text += fmt::format("| between ops {}", Numbers(profile, between));
  text += Head("layer");
  for (const auto& [layer, total] : LayersOf(profile)) {
    text += fmt::format("| {} {}", LayerText(layer), Numbers(profile, total));
  }
  text += Head("slowest ops");
  for (size_t i = 0; i < std::min(slowest, profile.ops.size()); ++i) {
    const ProfiledOp& op = profile.ops[i];
    text += fmt::format("| {} {} {}: {} {}", op.device, op.kind, op.value, op.shapes,
                        Numbers(profile, op.total));
  }
  return text;
}

std::string ProfileJson(const StepProfile& profile, const std::string& test) {
  json kinds = json::array(), layers = json::array(), ops = json::array();
  for (const auto& [kind, total] : KindsOf(profile)) {
    kinds.push_back(Joined({{"kind", kind}}, ToJson(total)));
  }
  for (const auto& [layer, total] : LayersOf(profile)) {
    layers.push_back(Joined({{"layer", layer ? json(*layer) : json()}}, ToJson(total)));
  }
  for (const ProfiledOp& op : profile.ops) {
    ops.push_back(Joined({{"device", op.device},
                          {"kind", op.kind},
                          {"value", op.value},
                          {"shapes", op.shapes},
                          {"layer", op.layer ? json(*op.layer) : json()}},
                         ToJson(op.total)));
  }
  return JsonLine({{"test", test},
                   {"steps", profile.steps},
                   {"seconds", profile.seconds},
                   {"op_seconds", profile.op_seconds()},
                   {"kinds", kinds},
                   {"layers", layers},
                   {"ops", ops}});
}

}  // namespace rullama::cli
