// The OpenCL backend: devices, options, and the objects the host holds.
#include "backends/gpu/backend.h"

#include <rullama/sdk/backend.h>
#include <rullama/sdk/export.h>

#include <memory>
#include <string>
#include <utility>

#include "backends/gpu/device.h"
#include "backends/gpu/options.h"
#include "backends/opencl/driver.h"
#include "backends/opencl/instance.h"
#include "backends/opencl/target.h"

namespace rullama::opencl {
namespace {

using Settings = gpu::OptionsOf<Facts, DriverOptions>;

// The kernels a device is best at.
Form FormFor(const Facts& facts) {
  if (facts.IsCpu()) return Form::kCpu;
  return facts.nvidia > 0 ? Form::kNvidia : Form::kGeneric;
}

Form ParseForm(const sdk::Option& option, const Facts& facts) {
  if (option.value == "cpu") return Form::kCpu;
  if (option.value == "generic") return Form::kGeneric;
  if (option.value != "nvidia") sdk::RefuseOption(option, "expected cpu, generic or nvidia");
  if (facts.nvidia == 0) {
    sdk::RefuseOption(option, "but the device is '" + facts.name +
                                  "', whose driver has no cl_nv_device_attribute_query");
  }
  return Form::kNvidia;
}

constexpr std::string_view kTensorCores = "tensor_cores";

const std::vector<sdk::OptionRow<Settings>>& OptionRows() {
  using sdk::Option;
  static const auto kRows = gpu::WithCommonRows<Settings>(
      {{{"kernels", "cpu, generic, nvidia", "what the device is",
         "how kernels are written: a work-group of one work-item that takes vectors; many "
         "work-items and local memory, in OpenCL C 1.2 alone; the same with PTX of NVIDIA's"},
        [](Settings& settings, const Option& option) {
          settings.driver.form = ParseForm(option, settings.facts);
        }},
       {{"cache", "on, off", "off for CPUs, whose drivers keep what they compile, else on",
         "keep compiled kernels on disk, by device, driver and source"},
        [](Settings& settings, const Option& option) {
          settings.driver.cache = sdk::ParseSwitch(option);
        }},
       {{kTensorCores, "on, off", "on on NVIDIA's GPUs from compute capability 8.0 on",
         "products of many rows in f16 (mma.sync); needs kernels: nvidia"},
        [](Settings& settings, const Option& option) {
          settings.driver.tensor_cores =
              gpu::ParseSwitchFor(option, HasTensorCores(settings.facts),
                                  "tensor cores of NVIDIA's, of compute capability 8.0 or later");
        }}},
      "products with the rows of a weight take an activation on tensor cores as the sum of two f16 "
      "numbers, nearly as exact as f32, at about half the speed; the forward pass of a mixture of "
      "experts in training always does");
  return kRows;
}

Settings ParseOptions(std::span<const sdk::Option> options, const Facts& facts) {
  // Drivers of CPUs keep what they have compiled themselves. A file of ours would make a warm start
  // quicker, but PoCL compiles each program a second time before it hands out its binary.
  Settings settings{facts, {FormFor(facts), !facts.IsCpu(), HasTensorCores(facts)}};
  sdk::ReadOptions<Settings>("opencl", OptionRows(), options, settings);
  if (settings.driver.form != Form::kNvidia && gpu::IsSwitchedOn(options, kTensorCores)) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "option tensor_cores is 'on', but needs kernels to be 'nvidia'");
  }
  return settings;
}

rl_device_type TypeOf(const Facts& facts) {
  if (facts.IsCpu()) return RL_DEVICE_SOFTWARE;
  if ((facts.type & CL_DEVICE_TYPE_GPU) == 0) return RL_DEVICE_OTHER;
  return facts.unified_memory ? RL_DEVICE_INTEGRATED_GPU : RL_DEVICE_GPU;
}

class OpenClBackend final : public gpu::GpuBackend<Instance> {
 public:
  explicit OpenClBackend(sdk::Host host)
      : GpuBackend(host, "opencl", sdk::InfosOf<Settings>(OptionRows())) {}
  std::unique_ptr<sdk::Device> Open(uint32_t index, std::span<const sdk::Option> options) override {
    const PhysicalDevice& physical = instance().devices()[index];
    const Settings settings = ParseOptions(options, physical.facts);
    return std::make_unique<gpu::GpuDevice>(
        std::make_unique<OpenClDriver>(instance().api(), physical, host(), settings.driver),
        settings.common);
  }

 private:
  std::unique_ptr<Instance> Find() override { return std::make_unique<Instance>(); }
  [[nodiscard]] sdk::DeviceInfo Describe(const PhysicalDevice& device) const override {
    const Facts& facts = device.facts;
    sdk::DeviceInfo info = InfoOf(TypeOf(facts), facts.name, facts.driver, facts.max_allocation);
    info.memory_total = facts.memory;
    return info;
  }
};

}  // namespace
}  // namespace rullama::opencl

RULLAMA_EXPORT_BACKEND(rullama::opencl::OpenClBackend)
