// The WebGPU adapters that can run this backend.
//
// Thread safety: made once; afterwards read only.
#pragma once

#include <cstdint>
#include <string>

#include "backends/gpu/found_devices.h"
#include "backends/webgpu/api.h"

namespace rullama::webgpu {

// The properties of an adapter that kernels depend on.
struct Facts {
  std::string name;
  std::string driver;
  WGPUAdapterType type = WGPUAdapterType_Unknown;
  uint64_t max_allocation = 0;  // bytes that one binding may have
  uint32_t shared_memory = 0;   // bytes of a workgroup
  uint32_t max_threads = 0;     // of a workgroup
  uint32_t max_groups = 0;      // along an axis
  uint32_t max_buffers = 0;     // bindings of a kernel
  uint32_t alignment = 0;       // of offsets of bindings

  [[nodiscard]] bool IsSoftware() const { return type == WGPUAdapterType_CPU; }
};

// `limits`: all that the adapter has.
struct PhysicalDevice {
  WGPUAdapter adapter = nullptr;
  WGPULimits limits{};
  Facts facts;
};

class Instance : public gpu::FoundDevices<PhysicalDevice, Api> {
 public:
  // Never throws for want of a library: then there are no devices and a reason.
  Instance();
  // Uses the functions of the caller; for tests.
  explicit Instance(const Api& api);

 private:
  void Enumerate();
  void Examine(WGPUAdapter adapter);

  Owned<WGPUInstance> instance_;
  std::vector<Owned<WGPUAdapter>> adapters_;
};

}  // namespace rullama::webgpu
