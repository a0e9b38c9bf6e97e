// What compiling a plan will take of a device's memory, held against what the device has, so that a
// model that is too large is refused before gigabytes of it were copied.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/plugin/device.h"

namespace rullama {

// Bytes on one device, beside what it already holds for the session.
struct MemoryNeed {
  uint64_t weights = 0;
  uint64_t weight_elements = 0;  // how many values those weights are
  uint64_t states = 0;
  uint64_t work = 0;
  [[nodiscard]] uint64_t total() const { return weights + states + work; }
};

// `taken`: bytes the session got since the device was described. A device that does not say what it
// has free is believed to have enough. Errors: device.memory (kOutOfMemory) with what is missing
// and what would fit. Pure; any thread.
Status CheckRoom(const DeviceDescription& device, const MemoryNeed& need, uint64_t taken);

}  // namespace rullama
