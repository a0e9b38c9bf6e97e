#include "backends/gpu/kernel_times.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

namespace rullama::gpu {

void KernelTimes::Add(const std::string& kernel, uint64_t nanoseconds) {
  Sum& sum = sums_[kernel];
  ++sum.dispatches;
  sum.nanoseconds += nanoseconds;
}

std::vector<std::string> KernelTimes::Report(uint64_t steps) const {
  std::vector<std::pair<uint64_t, std::string>> lines;
  uint64_t all = 0;
  for (const auto& [kernel, sum] : sums_) {
    all += sum.nanoseconds;
    char text[64];
    std::snprintf(text, sizeof(text), "%10.1f us %5llu x ",
                  static_cast<double>(sum.nanoseconds) / 1000,
                  static_cast<unsigned long long>(sum.dispatches));
    lines.emplace_back(sum.nanoseconds, text + kernel);
  }
  std::ranges::sort(lines, std::greater());
  std::vector<std::string> report = {std::to_string(steps) + " steps took " +
                                     std::to_string(all / 1000) + " us of the device's time"};
  for (auto& [time, line] : lines) report.push_back(std::move(line));
  return report;
}

}  // namespace rullama::gpu
