#include "cli/commands/placement_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace rullama::cli {
namespace {

struct Group {
  const PlacementReport::Decision* first;
  size_t count;
};

void DescribeDecisions(const std::vector<PlacementReport::Decision>& decisions,
                       std::string_view what, Console& console) {
  std::vector<Group> groups;
  for (const PlacementReport::Decision& decision : decisions) {
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      return group.first->kind == decision.kind && group.first->reason == decision.reason;
    });
    if (same == groups.end()) {
      groups.push_back({&decision, 1});
    } else {
      ++same->count;
    }
  }
  for (const Group& group : groups) {
    console.Note(fmt::format("{} ({}{}) {}: {}", NameOf(group.first->kind), group.first->op,
                             group.count > 1 ? fmt::format(" and {} more", group.count - 1) : "",
                             what, group.first->reason));
  }
}

}  // namespace

void DescribePlacement(const PlacementReport& report, const std::vector<std::string>& names,
                       Console& console) {
  for (size_t device = 0; device < report.ops_per_device.size(); ++device) {
    const size_t ops = report.ops_per_device[device];
    console.Note(device < names.size() ? fmt::format("{} runs {} ops", names[device], ops)
                                       : fmt::format("device {} runs {} ops", device, ops));
  }
  DescribeDecisions(report.moved_to_host, "moved to the host", console);
  DescribeDecisions(report.decomposed, "decomposed", console);
}

}  // namespace rullama::cli
