// The CUDA devices that can run this backend.
//
// Thread safety: made once; afterwards read only.
#pragma once

#include <cstdint>
#include <string>

#include "backends/cuda/api.h"
#include "backends/gpu/found_devices.h"

namespace rullama::cuda {

// The properties of a device that kernels depend on.
struct Facts {
  std::string name;
  std::string driver;       // the newest CUDA that it runs
  uint32_t capability = 0;  // compute capability: 90 for 9.0
  // The compute capability that its kernels were compiled for; 0 if it has none.
  uint32_t code_capability = 0;
  bool has_warpgroups = false;  // and that code uses them: that for 9.0 alone (sm_90a)
  uint64_t memory = 0;          // bytes
  uint64_t max_allocation = 0;  // bytes
  uint32_t multiprocessors = 0;
  uint32_t shared_memory = 0;       // bytes of a block that a kernel may declare
  uint32_t most_shared_memory = 0;  // and that a launch may give it
  bool integrated = false;          // shares the host's memory
};

struct PhysicalDevice {
  CUdevice id = 0;
  Facts facts;
};

class Instance : public gpu::FoundDevices<PhysicalDevice, Api> {
 public:
  // Never throws for want of a driver: then there are no devices and a reason.
  Instance();
  // Uses the functions of the caller; for tests.
  explicit Instance(const Api& api);

 private:
  void Enumerate();
  void Examine(CUdevice id, int driver);  // of this version: 13000 for CUDA 13.0
};

}  // namespace rullama::cuda
