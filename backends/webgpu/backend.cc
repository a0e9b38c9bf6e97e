// The WebGPU backend: devices, options, and the objects the host holds.
#include "backends/gpu/backend.h"

#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <memory>
#include <vector>

#include "backends/gpu/device.h"
#include "backends/gpu/options.h"
#include "backends/webgpu/driver.h"
#include "backends/webgpu/instance.h"

namespace rullama::webgpu {
namespace {

using Settings = gpu::OptionsOf<Facts, DriverOptions>;

const std::vector<sdk::OptionRow<Settings>>& OptionRows() {
  static const auto kRows = gpu::WithCommonRows<Settings>(
      {}, "no effect: there are no products on matrix units, all are in f32");
  return kRows;
}

rl_device_type TypeOf(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_CPU:
      return RL_DEVICE_SOFTWARE;
    case WGPUAdapterType_DiscreteGPU:
      return RL_DEVICE_GPU;
    case WGPUAdapterType_IntegratedGPU:
      return RL_DEVICE_INTEGRATED_GPU;
    default:
      return RL_DEVICE_OTHER;
  }
}

class WebGpuBackend final : public gpu::GpuBackend<Instance> {
 public:
  explicit WebGpuBackend(sdk::Host host)
      : GpuBackend(host, "webgpu", sdk::InfosOf<Settings>(OptionRows())) {}
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance().devices()[index];
    Settings settings{physical.facts, {}};
    sdk::ReadOptions<Settings>("webgpu", OptionRows(), options, settings);
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<WebGpuDriver>(instance().api(), physical, host()), settings.common);
  }

 private:
  std::unique_ptr<Instance> Find() override { return std::make_unique<Instance>(); }
  [[nodiscard]] sdk::DeviceInfo Describe(const PhysicalDevice& device) const override {
    const Facts& facts = device.facts;
    return InfoOf(TypeOf(facts.type), facts.name, facts.driver, facts.max_allocation);
  }
};

}  // namespace
}  // namespace rullama::webgpu

RULLAMA_EXPORT_BACKEND(rullama::webgpu::WebGpuBackend)
