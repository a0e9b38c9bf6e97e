#include "core/runtime/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace rullama {
namespace {

std::string Gibibytes(uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::string WhatWouldFit(const MemoryNeed& need, uint64_t room) {
  const uint64_t others = need.states + need.work;
  if (need.weight_elements == 0 || others >= room) {
    return fmt::format("a context or chunk that takes {} less",
                       Gibibytes(others - std::min(others, room)));
  }
  const auto bits = [&need](uint64_t bytes) {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(need.weight_elements);
  };
  return fmt::format("weights of at most {:.1f} bits (these have {:.1f})", bits(room - others),
                     bits(need.weights));
}

}  // namespace

Status CheckRoom(const DeviceDescription& device, const MemoryNeed& need, uint64_t taken) {
  if (device.memory_free == 0) return OkStatus();
  const uint64_t room = device.memory_free - std::min(device.memory_free, taken);
  if (need.total() <= room) return OkStatus();
  return MakeError(ErrorKind::kOutOfMemory, "device.memory",
                   "the model needs {} on device '{}' ({} of weights, {} of caches, {} of work), "
                   "which has {} free of {}: {} are missing; {} would fit, or parts of the model "
                   "on another backend, or weights that stay in the file where the backend has an "
                   "option for that (cpu: weights=mapped)",
                   Gibibytes(need.total()), device.name, Gibibytes(need.weights),
                   Gibibytes(need.states), Gibibytes(need.work), Gibibytes(room),
                   Gibibytes(device.memory_total), Gibibytes(need.total() - room),
                   WhatWouldFit(need, room));
}

}  // namespace rullama
