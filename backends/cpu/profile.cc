#include "backends/cpu/profile.h"

#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

namespace rullama::cpu {
namespace {

const char* OpName(uint32_t kind) {
  switch (kind) {
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  case RL_OP_##name:                                                      \
    return #name;
#include <rullama/ir/ops.def>
    default:
      return "?";
  }
}

}  // namespace

std::string ProfileName(const sdk::GraphView& graph, const rl_op& op) {
  std::string name = OpName(op.kind);
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* value = graph.input(op, i);
    if (value == nullptr || value->lifetime != RL_LIFETIME_CONSTANT || value->rank < 2) continue;
    name += " " + std::string(NameOf(static_cast<DType>(value->dtype)));
    for (uint32_t axis = 0; axis < value->rank; ++axis) {
      name += (axis == 0 ? " " : "x") + std::to_string(value->dims[axis].constant);
    }
    break;
  }
  return name;
}

void Profile::After(const std::string& name) {
  const Clock::time_point now = Clock::now();
  Entry& entry = entries_[name];
  entry.seconds += std::chrono::duration<double>(now - last_).count();
  ++entry.nodes;
  last_ = now;
}

std::vector<std::string> Profile::Report(uint64_t executions) const {
  std::vector<std::pair<double, std::string>> lines;
  double total = 0;
  for (const auto& [name, entry] : entries_) {
    total += entry.seconds;
    char text[64];
    std::snprintf(text, sizeof(text), "%10.2f ms %7llu x ", entry.seconds * 1e3,
                  static_cast<unsigned long long>(entry.nodes));
    lines.emplace_back(entry.seconds, text + name);
  }
  std::ranges::sort(lines, std::greater());
  char text[64];
  std::snprintf(text, sizeof(text), "%llu steps took %.2f ms",
                static_cast<unsigned long long>(executions), total * 1e3);
  std::vector<std::string> report = {text};
  for (auto& [seconds, line] : lines) report.push_back(std::move(line));
  return report;
}

}  // namespace rullama::cpu
