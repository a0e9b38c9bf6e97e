#include "backends/webgpu/instance.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/dispatch.h"

namespace rullama::webgpu {
namespace {

constexpr uint32_t kMinSharedMemory = 32768;  // the tiles of matmul and attention
constexpr uint32_t kMinThreads = 256;
// Offsets in a binding have 32 bits, and copies take whole words.
constexpr uint64_t kMaxBinding = (uint64_t{1} << 32) - 256;
constexpr uint64_t kSizeAlignment = 256;

Facts FactsOf(const Api& api, WGPUAdapter adapter, const WGPULimits& limits) {
  WGPUAdapterInfo info{};
  Facts facts;
  if (api.AdapterGetInfo(adapter, &info) == WGPUStatus_Success) {
    facts.name = TextOf(info.device);
    facts.driver = "wgpu-native on Vulkan, " + TextOf(info.description);
    facts.type = info.adapterType;
    api.AdapterInfoFreeMembers(info);
  }
  const uint64_t binding =
      std::min({limits.maxBufferSize, limits.maxStorageBufferBindingSize, kMaxBinding});
  facts.max_allocation = binding / kSizeAlignment * kSizeAlignment;
  facts.shared_memory = limits.maxComputeWorkgroupStorageSize;
  facts.max_threads =
      std::min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX);
  facts.max_groups = limits.maxComputeWorkgroupsPerDimension;
  facts.max_buffers = limits.maxStorageBuffersPerShaderStage;
  facts.alignment = limits.minStorageBufferOffsetAlignment;
  return facts;
}

// Why an adapter cannot run the kernels; empty if it can.
std::string WhyNot(const Facts& facts) {
  if (facts.shared_memory < kMinSharedMemory) {
    return "its workgroups have " + std::to_string(facts.shared_memory) +
           " bytes of shared memory, needed are " + std::to_string(kMinSharedMemory);
  }
  if (facts.max_threads < kMinThreads) {
    return "its workgroups have at most " + std::to_string(facts.max_threads) +
           " invocations, needed are " + std::to_string(kMinThreads);
  }
  return {};
}

}  // namespace

Instance::Instance() {
  set_reason(LoadApi(writable_api()));
  if (reason().empty()) Enumerate();
}

Instance::Instance(const Api& api) : FoundDevices(api) { Enumerate(); }

void Instance::Enumerate() {
  WGPUInstanceExtras extras{};
  extras.chain.sType = static_cast<WGPUSType>(WGPUSType_InstanceExtras);
  extras.backends = WGPUInstanceBackend_Vulkan;
  // Drivers in software may not have passed Vulkan's tests.
  extras.flags = WGPUInstanceFlag_AllowUnderlyingNoncompliantAdapter;
  WGPUInstanceDescriptor descriptor{};
  descriptor.nextInChain = &extras.chain;
  instance_ = Own(api().CreateInstance(&descriptor), api().InstanceRelease);
  size_t count = 0;
  if (instance_ != nullptr) {
    count = api().InstanceEnumerateAdapters(instance_.get(), nullptr, nullptr);
  }
  if (count == 0) {
    set_reason(
        "WebGPU finds no adapter: wgpu-native needs a driver of Vulkan, which vulkaninfo shows "
        "(Debian: mesa-vulkan-drivers)");
    return;
  }
  std::vector<WGPUAdapter> adapters(count);
  api().InstanceEnumerateAdapters(instance_.get(), nullptr, adapters.data());
  for (WGPUAdapter adapter : adapters) adapters_.push_back(Own(adapter, api().AdapterRelease));
  for (WGPUAdapter adapter : adapters) Examine(adapter);
}

void Instance::Examine(WGPUAdapter adapter) {
  WGPULimits limits{};
  if (api().AdapterGetLimits(adapter, &limits) != WGPUStatus_Success) limits = {};
  limits.nextInChain = nullptr;
  const Facts facts = FactsOf(api(), adapter, limits);
  Add({adapter, limits, facts}, facts.name, WhyNot(facts));
}

}  // namespace rullama::webgpu
