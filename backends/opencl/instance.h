// The OpenCL devices of all platforms that can run this backend.
//
// Thread safety: made once; afterwards read only.
#pragma once

#include <string>

#include "backends/gpu/found_devices.h"
#include "backends/opencl/api.h"

namespace rullama::opencl {

// The properties of a device that kernels depend on.
struct Facts {
  std::string name;
  std::string driver;  // platform and version of the driver
  cl_device_type type = 0;
  uint64_t memory = 0;          // bytes
  uint64_t max_allocation = 0;  // bytes
  uint64_t local_memory = 0;    // bytes of a work-group
  size_t max_work_group = 0;
  uint32_t compute_units = 0;
  bool float64 = false;
  bool unified_memory = false;  // with the host
  uint32_t nvidia = 0;          // compute capability of NVIDIA's, 90 for 9.0; 0: another vendor

  [[nodiscard]] bool IsCpu() const { return (type & CL_DEVICE_TYPE_CPU) != 0; }
};

struct PhysicalDevice {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  Facts facts;
};

class Instance : public gpu::FoundDevices<PhysicalDevice, Api> {
 public:
  // Never throws for want of a loader or a driver: then there are no devices and a reason.
  Instance();
  // Uses the functions of the caller; for tests.
  explicit Instance(const Api& api);

 private:
  void Enumerate();
  void EnumeratePlatform(cl_platform_id platform);
};

}  // namespace rullama::opencl
