#include "backends/cuda/instance.h"

#include <utility>

#include "backends/cuda/images.h"

namespace rullama::cuda {
namespace {

uint32_t Get(const Api& api, CUdevice device, CUdevice_attribute what) {
  int value = 0;
  if (api.DeviceGetAttribute(&value, what, device) != CUDA_SUCCESS || value < 0) return 0;
  return static_cast<uint32_t>(value);
}

std::string NameOf(const Api& api, CUdevice device) {
  char name[256] = {};
  if (api.DeviceGetName(name, sizeof(name) - 1, device) != CUDA_SUCCESS) return "NVIDIA GPU";
  return name;
}

// 0 if it does not say.
int DriverOf(const Api& api) {
  int version = 0;
  return api.DriverGetVersion(&version) == CUDA_SUCCESS ? version : 0;
}

// 13000 is "CUDA 13.0".
std::string VersionText(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Facts FactsOf(const Api& api, CUdevice device, std::string driver) {
  Facts facts{.name = NameOf(api, device), .driver = std::move(driver)};
  facts.capability = Get(api, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                     Get(api, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (HasCodeFor(facts.capability)) {
    facts.code_capability = CapabilityOfCodeFor(facts.capability);
    facts.has_warpgroups = HasWarpgroups(facts.capability);
  }
  size_t bytes = 0;
  if (api.DeviceTotalMem(&bytes, device) == CUDA_SUCCESS) facts.memory = bytes;
  facts.max_allocation = facts.memory;
  facts.multiprocessors = Get(api, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.shared_memory = Get(api, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  facts.most_shared_memory =
      Get(api, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  facts.integrated = Get(api, device, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
  return facts;
}

// Why cuInit has failed.
std::string WhyNotInitialised(const Api& api, CUresult result) {
  if (result == CUDA_ERROR_NO_DEVICE) {
    return "the NVIDIA driver finds no GPU; nvidia-smi shows more, and CUDA_VISIBLE_DEVICES may "
           "hide some";
  }
  return "the NVIDIA driver does not start: cuInit: " + cuda::NameOf(api, result) +
         "; its library and its kernel module may have different versions, or the module is not "
         "loaded; nvidia-smi shows more";
}

// Why a device cannot run the kernels; empty if it can.
std::string WhyNot(uint32_t capability, int driver) {
  if (!HasCodeFor(capability)) {
    return "it has compute capability " + CapabilityText(capability) +
           ", and the plugin has code for " + CodeText() +
           " only (RULLAMA_CUDA_ARCHITECTURES when it was built)";
  }
  const int oldest = IsPtxFor(capability) ? kOldestForPtx : kOldestForCode;
  if (driver >= oldest) return {};
  return "its driver is one of " + VersionText(driver) + ", and the plugin needs one of " +
         VersionText(oldest) + " or later; install a newer one, release " + kOldestRelease +
         " or later";
}

}  // namespace

Instance::Instance() {
  set_reason(LoadApi(writable_api()));
  if (reason().empty()) Enumerate();
}

Instance::Instance(const Api& api) : FoundDevices(api) { Enumerate(); }

void Instance::Enumerate() {
  if (const CUresult result = api().Init(0); result != CUDA_SUCCESS) {
    set_reason(WhyNotInitialised(api(), result));
    return;
  }
  int count = 0;
  if (api().DeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
    set_reason(WhyNotInitialised(api(), CUDA_ERROR_NO_DEVICE));
    return;
  }
  const int driver = DriverOf(api());
  for (int i = 0; i < count; ++i) {
    CUdevice id = 0;
    if (api().DeviceGet(&id, i) == CUDA_SUCCESS) Examine(id, driver);
  }
}

void Instance::Examine(CUdevice id, int driver) {
  const Facts facts = FactsOf(api(), id, VersionText(driver));
  Add({id, facts}, facts.name, WhyNot(facts.capability, driver));
}

}  // namespace rullama::cuda
