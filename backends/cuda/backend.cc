// The CUDA backend: devices, options, and the objects the host holds.
#include "backends/gpu/backend.h"

#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/driver.h"
#include "backends/cuda/instance.h"
#include "backends/cuda/target.h"
#include "backends/gpu/device.h"
#include "backends/gpu/options.h"

namespace rullama::cuda {
namespace {

using Settings = gpu::OptionsOf<Facts, DriverOptions>;

const std::vector<sdk::OptionRow<Settings>>& OptionRows() {
  using sdk::Option;
  static const auto kRows = gpu::WithCommonRows<Settings>(
      {{{"graphs", "on, off", "on",
         "replay steps that are repeated as CUDA graphs, in place of launches of each kernel"},
        [](Settings& settings, const Option& option) {
          settings.driver.graphs = sdk::ParseSwitch(option);
        }},
       {{"tensor_cores", "on, off", "on", "products of many rows in f16 (mma.sync, wgmma)"},
        [](Settings& settings, const Option& option) {
          settings.driver.tensor_cores = sdk::ParseSwitch(option);
        }},
       {{"integer_dot", "on, off", "on",
         "products of one row by dot products of bytes: activations in 16 bits"},
        [](Settings& settings, const Option& option) {
          settings.driver.integer_dot = sdk::ParseSwitch(option);
        }}},
      "products with the rows of a weight take an activation on tensor cores as the sum of two f16 "
      "numbers, nearly as exact as f32, at less than half the speed; the forward pass of a mixture "
      "of experts in training always does");
  return kRows;
}

class CudaBackend final : public gpu::GpuBackend<Instance> {
 public:
  explicit CudaBackend(sdk::Host host)
      : GpuBackend(host, "cuda", sdk::InfosOf<Settings>(OptionRows())) {}
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance().devices()[index];
    Settings settings{physical.facts, {}};
    sdk::ReadOptions<Settings>("cuda", OptionRows(), options, settings);
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<CudaDriver>(instance().api(), physical, host(), settings.driver),
        settings.common);
  }

 private:
  std::unique_ptr<Instance> Find() override { return std::make_unique<Instance>(); }
  [[nodiscard]] sdk::DeviceInfo Describe(const PhysicalDevice& device) const override {
    const Facts& facts = device.facts;
    sdk::DeviceInfo info = InfoOf(facts.integrated ? RL_DEVICE_INTEGRATED_GPU : RL_DEVICE_GPU,
                                  facts.name, facts.driver, facts.max_allocation);
    info.memory_total = facts.memory;
    return info;
  }
};

}  // namespace
}  // namespace rullama::cuda

RULLAMA_EXPORT_BACKEND(rullama::cuda::CudaBackend)
