#include "cli/reports/memory_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/base/printable.h"
#include "core/base/size_text.h"

namespace rullama::cli {
namespace {

constexpr int64_t kColumns = 32;
constexpr int64_t kEighths = 8;  // of a column
constexpr std::array<std::string_view, kEighths> kPartialBlocks = {"",  "▏", "▎", "▍",
                                                                   "▌", "▋", "▊", "▉"};

std::string Bar(uint64_t bytes, uint64_t largest) {
  if (bytes == 0) return "";
  const double part = static_cast<double>(bytes) / static_cast<double>(largest);
  const auto eighths =
      std::max<int64_t>(1, std::lround(part * static_cast<double>(kColumns * kEighths)));
  std::string bar;
  for (int64_t i = 0; i < eighths / kEighths; ++i) bar += "█";
  return bar + std::string(kPartialBlocks[static_cast<size_t>(eighths % kEighths)]);
}

}  // namespace

std::vector<std::string> MemoryBars(const std::vector<MemoryAmount>& amounts) {
  uint64_t largest = 0;
  size_t width = 0;
  for (const MemoryAmount& amount : amounts) {
    if (amount.has_bar) largest = std::max(largest, amount.bytes);
    width = std::max(width, amount.label.size());
  }
  std::vector<std::string> lines;
  for (const MemoryAmount& amount : amounts) {
    std::string line = fmt::format("{:<{}} {:>10}", amount.label, width, SizeText(amount.bytes));
    for (const std::string& part :
         {amount.has_bar ? Bar(amount.bytes, largest) : std::string(), amount.note}) {
      if (!part.empty()) line += " " + part;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> DeviceMemoryBars(const std::vector<DeviceMemory>& devices) {
  std::vector<MemoryAmount> amounts;
  for (const DeviceMemory& device : devices) {
    const std::string name = ShownName(device.name);
    amounts.push_back({name + " weights", device.need.weights});
    amounts.push_back({name + " caches", device.need.states});
    amounts.push_back({name + " arenas", device.need.work});
    const std::string free =
        device.free_bytes > 0 ? fmt::format("of {} free", SizeText(device.free_bytes)) : "";
    amounts.push_back({name + " together", device.need.total(), free, false});
  }
  return MemoryBars(amounts);
}

}  // namespace rullama::cli
