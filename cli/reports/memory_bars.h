// Amounts of memory as bars of text. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/memory_need.h"

namespace rullama::cli {

struct MemoryAmount {
  std::string label;  // fit for a terminal
  uint64_t bytes = 0;
  std::string note = {};  // after the size
  bool has_bar = true;
};

// A line for each amount, in their order: label, size, bar, note. The longest bar is the largest
// amount with one; an amount above 0 has at least a sliver.
std::vector<std::string> MemoryBars(const std::vector<MemoryAmount>& amounts);

struct DeviceMemory {
  std::string name;
  MemoryNeed need;
  uint64_t free_bytes = 0;  // 0: not known
};

// Bars of the memory of each device: weights, states (KV caches), work (arenas of plans); and their
// sum. With names such as "vulkan:0", lines of a log fit into 80 columns.
std::vector<std::string> DeviceMemoryBars(const std::vector<DeviceMemory>& devices);

}  // namespace rullama::cli
