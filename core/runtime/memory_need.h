// Compares the device memory that compiling a plan will allocate with the free memory of the
// device, so that a model that is too large is refused before gigabytes of it have been copied.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/plugin/device.h"

namespace rullama {

// Bytes to allocate on one device, in addition to those the session already holds there.
struct MemoryNeed {
  uint64_t weights = 0;
  uint64_t weight_elements = 0;  // number of values in those weights
  uint64_t states = 0;
  uint64_t work = 0;
  [[nodiscard]] uint64_t total() const { return weights + states + work; }
};

// The bytes that sessions have allocated on each device of their list since the devices were
// described. Sessions on the same devices share one, so that each knows of what the others hold.
// Thread safety: one thread at a time.
using AllocatedBytes = std::vector<uint64_t>;

// `allocated_bytes`: bytes that have been allocated since the device was described. A device
// that does not report its free memory is assumed to have enough. Error device.memory
// (kOutOfMemory) with the missing amount and a model size that would fit. Pure; any thread.
Status CheckDeviceMemory(const DeviceDescription& device, const MemoryNeed& need,
                         uint64_t allocated_bytes);

}  // namespace rullama
