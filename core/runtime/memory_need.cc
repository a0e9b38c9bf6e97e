#include "core/runtime/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/base/size_text.h"

namespace rullama {
namespace {

// A smaller context or fewer bits per weight that would fit.
std::string SuggestFit(const MemoryNeed& need, uint64_t free_bytes) {
  const uint64_t others = need.states + need.work;
  if (need.weight_elements == 0 || others >= free_bytes) {
    return fmt::format("a context or chunk that takes {} less",
                       SizeText(others - std::min(others, free_bytes)));
  }
  const auto bits = [&need](uint64_t bytes) {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(need.weight_elements);
  };
  return fmt::format("weights of at most {:.1f} bits (these have {:.1f})",
                     bits(free_bytes - others), bits(need.weights));
}

}  // namespace

Status CheckDeviceMemory(const DeviceDescription& device, const MemoryNeed& need,
                         uint64_t allocated_bytes) {
  if (device.memory_free == 0) return OkStatus();
  const uint64_t free_bytes = device.memory_free - std::min(device.memory_free, allocated_bytes);
  if (need.total() <= free_bytes) return OkStatus();
  return MakeError(ErrorKind::kOutOfMemory, "device.memory",
                   "the model needs {} on device '{}' ({} of weights, {} of caches, {} of work), "
                   "which has {} free of {}: {} are missing; {} would fit, or parts of the model "
                   "on another backend, or weights that stay in the file where the backend has an "
                   "option for that (cpu: weights=mapped)",
                   SizeText(need.total()), device.name, SizeText(need.weights),
                   SizeText(need.states), SizeText(need.work), SizeText(free_bytes),
                   SizeText(device.memory_total), SizeText(need.total() - free_bytes),
                   SuggestFit(need, free_bytes));
}

}  // namespace rullama
